"""Handlers that make the errors that others made: each fails for exactly the right reason, and honest ones do not."""

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

pytestmark = pytest.mark.process

HANDLER = Path(__file__).with_name("sample_handler.py")
AT_ONCE = 8
SLOW = 5.0
"""How much slower than an idle one a machine may be. It costs time only where the exam waits in vain."""

Case = tuple[str, str, frozenset[str]]

WRONG: tuple[Case, ...] = (
    ("approves everything", "event-for-another-vm", frozenset({"approves-others", "prepares-for-others"})),
    ("reads the first event only", "unknown-event-type", frozenset({"approves-E2", "prepares-E2"})),
    ("approves without the header", "user-restart", frozenset({"asks-rightly"})),
    ("dies of an empty body", "empty-body", frozenset({"keeps-running"})),
    ("believes the highest number", "service-off-for-a-day", frozenset({"approves-E3", "prepares-E3"})),
    ("approves what has started", "hardware-failure", frozenset({"approves-started"})),
    ("forgets what it approved", "cancelled-event", frozenset({"approves-again"})),
    ("approves all it ever saw", "cancelled-event", frozenset({"approves-again", "approves-gone"})),
    ("ends after the first event", "user-restart", frozenset({"keeps-running"})),
    ("knows itself by its host name", "another-host-name", frozenset({"approves-E1", "prepares-E1"})),
    ("knows no new types", "unknown-event-type", frozenset({"keeps-running"})),
    ("believes the date of an answer", "wrong-date", frozenset({"approves-E1", "prepares-E1"})),
    ("uses the proxy", "proxy-in-the-environment", frozenset({"uses-proxy"})),
    ("approves nothing", "live-migration", frozenset({"approves-E1"})),
    ("prepares too late", "user-restart", frozenset({"prepares-E1"})),
    ("does not recover", "user-restart", frozenset({"recovers-E1"})),
    ("hammers", "user-restart", frozenset({"hammers"})),
    ("asks seldom", "user-restart", frozenset({"asks-often"})),
    ("hangs", "user-restart", frozenset({"asks-often"})),
)
HONEST: tuple[Case, ...] = (
    ("none", "withdrawn-and-scheduled-again", frozenset()),
    ("none", "eviction-8s", frozenset()),
    ("none", "storm-of-20", frozenset()),
    ("approves at the last moment", "user-restart", frozenset()),
    ("approves at the last moment", "wrong-date", frozenset()),
    ("prints a lot", "user-restart", frozenset()),
)
IN_VAIN = {
    "reads the first event only",
    "approves without the header",
    "believes the highest number",
    "knows itself by its host name",
    "believes the date of an answer",
    "approves nothing",
    "does not recover",
    "asks seldom",
    "hangs",
}
"""For them the exam waits in vain, and what they do when they are late is what they do anyway."""


def name_of(case: Case) -> str:
    error, scenario, _ = case
    return f"{error} in {scenario}"


@pytest.fixture(scope="module")
def reports() -> Iterator[dict[str, Future[Report]]]:
    """Most of the time a handler waits: they do so side by side."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name_of(case): pool.submit(examined, *case[:2]) for case in (*WRONG, *HONEST)}


def examined(error: str, scenario: str) -> Report:
    ask = ExamOptions(
        way=LaunchOptions(command=(sys.executable, str(HANDLER), error), url_variable="EXAM_URL"),
        markers=Markers(prepared=Path("prepared"), recovered=Path("recovered")),
        wishes=parse_expectations([]),
        limit=SLOW * LIMIT,
        pace=1.0 if error in IN_VAIN else SLOW,
    )
    return examine(ask, [sheet for sheet in exam_scenarios() if sheet.name == scenario], jobs=1)


@pytest.mark.parametrize("case", WRONG, ids=name_of)
def test_wrong_handler_fails_for_the_right_reason(reports: dict[str, Future[Report]], case: Case) -> None:
    _, scenario, broken = case
    report = reports[name_of(case)].result()
    assert report.broken == {(scenario, demand) for demand in broken}, report.results[0]
    assert not report.is_passed


@pytest.mark.parametrize("case", HONEST, ids=name_of)
def test_honest_handler_passes(reports: dict[str, Future[Report]], case: Case) -> None:
    report = reports[name_of(case)].result()
    assert report.broken == frozenset(), report.results[0]
    assert report.is_passed
    assert report.results[0].kept
