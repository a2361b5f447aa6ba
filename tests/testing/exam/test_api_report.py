"""The report of an exam for the API has the problems, results and findings of the text report."""

import msgspec

from forewarn.api import v1
from forewarn.testing.exam.api_report import api_report
from forewarn.testing.exam.checks import Finding, Polarity, Verdict
from forewarn.testing.exam.report import Report
from forewarn.testing.exam.scenario_run import Result

EVENT = "5B067F98-E790-5859-9A37-B75D86282A82"


def finding(demand: str, verdict: Verdict, seen: str = "it asked", **more: object) -> Finding:
    made = Finding(demand=demand, mood=Polarity.MUST, expected="asks", verdict=verdict, seen=seen)
    return msgspec.structs.replace(made, **more)


def result(name: str, *findings: Finding, **more: object) -> Result:
    made = Result(scenario=name, title="T.", findings=findings, seconds=2.55, is_finished=True)
    return msgspec.structs.replace(made, **more)


def test_report_has_problems_results_and_findings() -> None:
    broken = finding(
        "approves-E1",
        Verdict.BROKEN,
        f"it did not approve {EVENT.lower()}",
        advice="approve it",
        event_kind="Reboot/User",
    )
    idle = finding("asks", Verdict.NOT_JUDGED, "no event came", is_exercised=False)
    report = Report(
        results=(
            result("reboot", broken, finding("asks", Verdict.KEPT), labels={"E1": EVENT}, exit_code=1, output="x\ny\n"),
            result("evict", idle, essential=("asks",), is_exercised=False),
            result("freeze", finding("asks", Verdict.KEPT), is_finished=False, problem="the machine was too slow"),
        )
    )
    made = api_report(report, ["./my handler", "-v"])
    assert (made.kind, made.subject, made.passed) == (v1.ReportKind.EXAM, "'./my handler' -v", False)
    assert made.summary == "3 scenarios: 1 failed, 1 not judged, 1 not finished."
    assert [(problem.title, problem.mark, problem.seen) for problem in made.problems] == [
        ("approves-E1: it approved no Reboot of source User", "failed", "it did not approve E1"),
        ("evict: not judged", "not-judged", "no event came"),
        ("freeze: not finished", "warning", "the machine was too slow"),
    ]
    assert (made.problems[0].advice, made.problems[0].output) == ("approve it", ["x", "y"])
    assert [(each.name, each.verdict, each.counts["kept"]) for each in made.results] == [
        ("reboot", "failed", 1),
        ("evict", "not judged", 0),
        ("freeze", "not finished", 1),
    ]
    assert [(each.place, each.name, each.verdict, each.seen) for each in made.findings] == [
        ("reboot", "approves-E1", "broken", "it did not approve E1"),
        ("reboot", "asks", "kept", "it asked"),
        ("evict", "asks", "not judged", "no event came"),
        ("freeze", "asks", "kept", "it asked"),
    ]


def test_long_texts_are_cut_to_what_the_api_accepts() -> None:
    traceback = f'  File "/{"d/" * 300}handler.py", line 12, in poll\n'
    broken = finding("asks", Verdict.BROKEN, "x" * 9000)
    report = Report(results=(result("reboot", broken, exit_code=1, output=traceback),))
    made = api_report(report, ["y" * 2000])
    assert made.problems[0].location.endswith("handler.py:12 in poll")
    sent = msgspec.json.encode(made)
    assert msgspec.json.encode(msgspec.json.decode(sent, type=v1.AddReport)) == sent
