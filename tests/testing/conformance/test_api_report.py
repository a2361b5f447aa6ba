"""The report of a conformance check for the API has every row, and first those that are wrong or differ."""

import msgspec

from forewarn.api import v1
from forewarn.testing.conformance import Finding, Report, Verdict, api_report, summary


def a_report(*verdicts: Verdict) -> Report:
    findings = tuple(
        Finding(
            row=f"row-{n}",
            section="Documents",
            rule="| A rule | (D)",
            is_own=False,
            verdict=verdict,
            why="" if verdict is Verdict.PASSED else "it was different",
            seen=("GET / → 500 " + "x" * 9000,) if verdict is Verdict.WRONG else (),
        )
        for n, verdict in enumerate(verdicts)
    )
    return Report(endpoint="http://127.0.0.1:1", requests=3, findings=findings)


def test_report_has_all_rows_and_problems_first() -> None:
    made = api_report(a_report(Verdict.PASSED, Verdict.DIFFERS, Verdict.WRONG, Verdict.UNCHECKED))
    assert (made.kind, made.subject, made.passed) == (v1.ReportKind.CONFORMANCE, "http://127.0.0.1:1", False)
    assert [(problem.title, problem.mark) for problem in made.problems] == [
        ("row-2: wrong", "failed"),
        ("row-1: differs", "warning"),
    ]
    assert [(each.name, each.mark, each.verdict, each.expected, each.seen) for each in made.findings] == [
        ("row-0", "passed", "passed", "A rule · (D)", ""),
        ("row-1", "warning", "differs", "A rule · (D)", "it was different"),
        ("row-2", "failed", "wrong", "A rule · (D)", "it was different"),
        ("row-3", "not-judged", "not checked", "A rule · (D)", "it was different"),
    ]
    sent = msgspec.json.encode(made)
    assert msgspec.json.encode(msgspec.json.decode(sent, type=v1.AddReport)) == sent


def test_endpoint_without_a_wrong_row_passes() -> None:
    report = a_report(Verdict.PASSED, Verdict.DIFFERS, Verdict.DIFFERS)
    assert api_report(report).passed
    assert summary(report) == "3 rows at http://127.0.0.1:1: 1 passed, 0 wrong, 2 differ, 0 not checked. 3 requests."


def test_report_on_a_long_url_is_accepted_by_the_api() -> None:
    made = api_report(msgspec.structs.replace(a_report(Verdict.PASSED), endpoint="http://127.0.0.1:1/" + "x" * 2000))
    sent = msgspec.json.encode(made)
    assert msgspec.json.encode(msgspec.json.decode(sent, type=v1.AddReport)) == sent
