"""Handlers with typical bugs: each breaks exactly the checks for its bug, and correct handlers pass."""

import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from forewarn.testing.exam import (
    LIMIT,
    ExamOptions,
    LaunchOptions,
    Markers,
    Report,
    exam_scenarios,
    examine,
    parse_expectations,
)

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]
"""The first test waits for exams that run in parallel; on a busy machine, their limits last up to ten times longer."""

HANDLER = Path(__file__).with_name("sample_handler.py")
AT_ONCE = 8
SLOW = 5.0
"""How much slower than an idle machine this one may be. It costs time only if the exam waits until a timeout."""

Case = tuple[str, str, frozenset[str]]

WRONG: tuple[Case, ...] = (
    ("approves everything", "event-for-another-vm", frozenset({"approves-others", "prepares-for-others"})),
    ("reads the first event only", "unknown-event-type", frozenset({"approves-E2"})),
    ("approves without the header", "user-restart", frozenset({"asks-rightly"})),
    ("crashes on an empty body", "empty-body", frozenset({"keeps-running"})),
    ("ignores lower incarnations", "service-off-for-a-day", frozenset({"approves-E3"})),
    ("asks with an old version", "eviction-8s", frozenset({"approves-E1"})),
    ("asks with an old version", "terminate-on-scale-in", frozenset({"approves-E1"})),
    ("sleeps after errors", "answers-500", frozenset({"asks-often"})),
    ("exits after the first event", "user-restart", frozenset({"keeps-running"})),
    ("takes its host name for the VM's", "another-host-name", frozenset({"approves-E1"})),
    ("crashes on unknown types", "unknown-event-type", frozenset({"keeps-running"})),
    ("trusts the Date header", "wrong-date", frozenset({"approves-E1"})),
    ("uses the proxy", "proxy-in-the-environment", frozenset({"uses-proxy"})),
    ("approves nothing", "live-migration", frozenset({"approves-E1"})),
    ("prepares too late", "user-restart", frozenset({"prepares-E1"})),
    ("does not recover", "user-restart", frozenset({"recovers-E1"})),
    ("polls without a pause", "user-restart", frozenset({"hammers"})),
    ("polls rarely", "user-restart", frozenset({"asks-often"})),
    ("hangs", "user-restart", frozenset({"asks-often"})),
)
TOLERATED: tuple[Case, ...] = (
    ("approves started events", "hardware-failure", frozenset({"approves-started"})),
    ("forgets its approvals", "cancelled-event", frozenset({"approves-again"})),
    ("approves ended events", "cancelled-event", frozenset({"approves-again", "approves-gone"})),
)
"""Azure answers 200 to these approvals, so they are warnings."""

CORRECT: tuple[Case, ...] = (
    ("none", "withdrawn-and-scheduled-again", frozenset()),
    ("none", "eviction-8s", frozenset()),
    ("none", "storm-of-20", frozenset()),
    ("none", "two-events-at-once", frozenset()),
    ("approves at the last moment", "user-restart", frozenset()),
    ("approves at the last moment", "wrong-date", frozenset()),
    ("prints a lot", "user-restart", frozenset()),
    ("polls slowly and approves at the third look", "user-restart", frozenset()),
)
IN_VAIN = {
    "reads the first event only",
    "approves without the header",
    "ignores lower incarnations",
    "asks with an old version",
    "takes its host name for the VM's",
    "trusts the Date header",
    "approves nothing",
    "does not recover",
    "polls rarely",
    "hangs",
}
"""For these bugs the exam waits until a timeout, so a longer one would not change the result."""


def name_of(case: Case) -> str:
    error, scenario, _ = case
    return f"{error} in {scenario}"


@pytest.fixture(scope="module")
def reports() -> Iterator[dict[str, Future[Report]]]:
    """Run all exams in parallel, because a handler waits most of the time."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name_of(case): pool.submit(examined, *case[:2]) for case in (*WRONG, *TOLERATED, *CORRECT)}


def examined(error: str, scenario: str) -> Report:
    ask = ExamOptions(
        way=LaunchOptions(command=(sys.executable, str(HANDLER), error), url_variable="EXAM_URL"),
        markers=Markers(prepared=Path("{dir}/prepared"), recovered=Path("{dir}/recovered")),
        wishes=parse_expectations([]),
        limit=SLOW * LIMIT,
        pace=1.0 if error in IN_VAIN else SLOW,
    )
    return examine(ask, [sheet for sheet in exam_scenarios() if sheet.name == scenario], jobs=1)


@pytest.mark.parametrize("case", WRONG, ids=name_of)
def test_wrong_handler_breaks_exactly_the_checks_for_its_bug(reports: dict[str, Future[Report]], case: Case) -> None:
    _, scenario, broken = case
    report = reports[name_of(case)].result()
    assert report.broken == {(scenario, demand) for demand in broken}, report.results[0]
    assert not report.is_passed


@pytest.mark.parametrize("case", TOLERATED, ids=name_of)
def test_tolerated_behaviour_is_a_warning(reports: dict[str, Future[Report]], case: Case) -> None:
    report = reports[name_of(case)].result()
    assert report.broken == frozenset(), report.results[0]
    assert {finding.demand for finding in report.results[0].warnings} == case[2]
    assert report.is_passed


@pytest.mark.parametrize("case", CORRECT, ids=name_of)
def test_correct_handler_passes(reports: dict[str, Future[Report]], case: Case) -> None:
    report = reports[name_of(case)].result()
    assert report.broken == frozenset(), report.results[0]
    assert report.is_passed
    assert report.results[0].kept
