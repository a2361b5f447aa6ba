"""Causes: findings of several scenarios with the same reason are one cause."""

from pathlib import Path

import msgspec
import pytest

from forewarn.testing.exam.causes import causes, last_own_frame
from forewarn.testing.exam.checks import Finding, Polarity, Verdict
from forewarn.testing.exam.report import Report
from forewarn.testing.exam.scenario_run import Result

PYTHON = """\
Traceback (most recent call last):
  File "/app/handler.py", line 74, in look
    document = json.loads(body)
  File "/usr/lib/python3.11/json/__init__.py", line 346, in loads
    return _default_decoder.decode(s)
  File "/app/.venv/lib/python3.11/site-packages/x/y.py", line 3, in z
json.decoder.JSONDecodeError: Expecting value
"""
NODE = """\
/app/handler.js:3
SyntaxError: Unexpected end of JSON input
    at JSON.parse (<anonymous>)
    at read (/app/node_modules/x/index.js:2:1)
    at poll (/app/handler.js:3:9)
    at main (/app/main.js:30:9)
    at node:internal/main/run_main_module:23:47
"""


def finding(demand: str, verdict: Verdict = Verdict.BROKEN, *, seen: str = "seen") -> Finding:
    return Finding(demand=demand, mood=Polarity.MUST, expected="must", verdict=verdict, seen=seen)


def not_approved(kind: str, demand: str = "approves-E1") -> Finding:
    seen = finding(demand, seen=f"it received {demand}")
    return msgspec.structs.replace(seen, event_kind=kind, advice=f"--expect {kind}=ignore")


def result(scenario: str, *findings: Finding, exit_code: int | None = None, output: str = "") -> Result:
    return Result(
        scenario=scenario,
        title="",
        findings=findings,
        seconds=1.0,
        is_finished=True,
        exit_code=exit_code,
        output=output,
    )


def found(*results: Result) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(cause.demand, cause.summary, cause.scenarios) for cause in causes(Report(results=results))]


def test_kind_of_event_that_is_never_approved_is_one_cause() -> None:
    user = not_approved("Reboot/User")
    platform = [
        result("a", not_approved("Reboot/Platform")),
        result("b", not_approved("Reboot/Platform", "approves-E2")),
    ]
    assert found(*platform, result("c", user)) == [
        ("approves-E…", "it approved no Reboot of source Platform", ("a", "b")),
        ("approves-E1", "it approved no Reboot of source User", ("c",)),
    ]


def test_kind_of_event_that_is_approved_elsewhere_has_another_cause() -> None:
    kept = msgspec.structs.replace(not_approved("Reboot/Platform"), verdict=Verdict.KEPT)
    assert found(result("a", kept), result("b", not_approved("Reboot/Platform"))) == [("approves-E1", "", ("b",))]


def test_findings_that_differ_only_in_numbers_are_one_cause() -> None:
    results = (result(name, finding("keeps-running", seen=f"it ended at {name} s")) for name in ("1.5", "22.0"))
    assert found(*results) == [("keeps-running", "", ("1.5", "22.0"))]


def test_crashes_at_different_places_are_different_causes() -> None:
    crash = finding("keeps-running")
    results = (
        result("a", crash, exit_code=1, output=PYTHON),
        result("b", crash, exit_code=1, output=PYTHON.replace("74", "80")),
    )
    assert [cause.frame for cause in causes(Report(results=results))] == [
        "/app/handler.py:74 in look",
        "/app/handler.py:80 in look",
    ]


def test_crashes_at_one_place_are_one_cause_for_each_type_of_error() -> None:
    crashes = {"a": "urllib.error.HTTPError: 410 Gone", "b": "urllib.error.HTTPError: 500 Oops", "c": "OSError: reset"}
    results = (
        result(name, finding("keeps-running", seen=error), exit_code=1, output=f"{PYTHON}{error}\n")
        for name, error in crashes.items()
    )
    assert found(*results) == [("keeps-running", "", ("a", "b")), ("keeps-running", "", ("c",))]


def test_broken_checks_come_before_warnings() -> None:
    warned = finding("approves-again", Verdict.WARNING)
    results = (result("a", warned), result("b", warned, finding("asks")), result("c", finding("hammers", Verdict.KEPT)))
    assert found(*results) == [("asks", "", ("b",)), ("approves-again", "", ("a", "b"))]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (PYTHON, "handler.py:74 in look"),
        (NODE, "handler.js:3 in poll"),
        ("no valid answer\n", None),
        ('  File "<string>", line 1, in <module>\n', None),
    ],
    ids=["Python", "Node", "no traceback", "no file"],
)
def test_last_frame_is_in_the_users_own_file(output: str, expected: str | None) -> None:
    assert last_own_frame(output, Path("/app")) == expected
