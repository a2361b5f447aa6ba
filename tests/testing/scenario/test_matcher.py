"""Matching facts against expectations while time advances."""

from datetime import UTC, datetime, timedelta

from forewarn.testing.scenario.commands import Expect
from forewarn.testing.scenario.matcher import Advance, ExpectationMatcher
from forewarn.testing.scenario.runner import CommandResult

LIMIT = datetime(2026, 3, 2, 11, tzinfo=UTC)


def advancing(*facts: list[str]) -> Advance:
    """Return a time in which these facts occur, one after the other, before the limit is reached."""
    left = list(facts)
    return lambda _: left.pop(0) if left else None


STARTED = "E1 Started (due), incarnation 3"


def expect(matcher: ExpectationMatcher, fact: str, *facts: list[str]) -> CommandResult:
    subject, *happening = fact.split()
    command = Expect(subject=subject, happening=tuple(happening), within=timedelta(hours=1))
    return matcher.expect(command, advancing(*facts), limit=LIMIT)


def test_time_advances_until_the_expected_fact_occurs() -> None:
    matcher = ExpectationMatcher()
    result = expect(matcher, "E1 Started", ["other"], [STARTED], ["later"])
    assert result == CommandResult(("other", STARTED))


def test_fact_that_has_occurred_already_needs_no_time_and_matches_once() -> None:
    matcher = ExpectationMatcher()
    matcher.reset([STARTED])
    assert expect(matcher, "E1 Started") == CommandResult(())
    assert expect(matcher, "E1 Started") == CommandResult((), is_met=False)
    matcher.add([STARTED])
    matcher.reset([])
    assert not expect(matcher, "E1 Started").is_met


def test_nothing_is_expected_until_the_limit_and_only_facts_about_events_count() -> None:
    assert expect(ExpectationMatcher(), "nothing", ["web enabled"]).is_met
    result = expect(ExpectationMatcher(), "nothing", ["web enabled"], [STARTED])
    assert result == CommandResult(("web enabled", STARTED), is_met=False)
