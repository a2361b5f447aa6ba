"""Reports for tests, with hostile texts."""

from forewarn.api import v1

HOSTILE = "<script>alert(1)</script>"


def sample_report(subject: str = "./handler --fast", *, passed: bool = False) -> v1.AddReport:
    """Return a report of an exam with a problem, two scenarios and three findings."""
    mark = v1.ReportMark.PASSED if passed else v1.ReportMark.FAILED
    return v1.AddReport(
        kind=v1.ReportKind.EXAM,
        subject=subject,
        passed=passed,
        summary="2 scenarios: 1 passed, 1 failed.",
        version="1.0",
        problems=[
            v1.ReportProblem(
                title="approves-E1",
                mark=mark,
                expected="it approves E1",
                seen=f"it never approved {HOSTILE}",
                location="handler.py:12 in poll",
                advice="approve the event of your VM",
                places=["user-restart"],
                output=[f"Traceback {HOSTILE}"],
            )
        ],
        results=[
            v1.ReportResult(
                name="user-restart",
                title="The owner restarts a VM",
                mark=mark,
                verdict="failed",
                counts={"kept": 1, "warning": 0, "broken": 1, "not judged": 0},
                seconds=2.5,
            ),
            v1.ReportResult(
                name="eviction-30s",
                title="A VM is evicted",
                mark=v1.ReportMark.PASSED,
                verdict="passed",
                counts={"kept": 1, "warning": 0, "broken": 0, "not judged": 0},
                seconds=1.5,
            ),
        ],
        findings=[
            v1.ReportFinding(
                place="user-restart", name="approves-E1", mark=mark, verdict="broken", expected="it approves E1"
            ),
            v1.ReportFinding(
                place="user-restart", name="asks", mark=v1.ReportMark.PASSED, verdict="kept", seen="it asked"
            ),
            v1.ReportFinding(
                place="eviction-30s", name="asks", mark=v1.ReportMark.PASSED, verdict="kept", evidence=["GET / → 200"]
            ),
        ],
    )
