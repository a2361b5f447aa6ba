"""Impacts and the outcomes that a platform reports."""

import re
from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from forewarn.core.errors import Invalid
from forewarn.core.impact import MAX_RETRY_DELAY, SETTLED, STUCK, Done, Impact, ImpactState, Retry
from forewarn.core.limits import MAX_IMPACT_TEXT_BYTES
from tests.core.builders import NOW

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "endless pause": (lambda: Retry(timedelta(days=8)), "the retry delay must be 0 to 7 days"),
    "outcome on no host": (lambda: Done("a b"), "host 'a b'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_outcome_is_refused(case: str) -> None:
    create, message = REFUSED[case]
    with pytest.raises(Invalid, match=re.escape(message)):
        create()


@pytest.mark.parametrize("after", [timedelta(0), MAX_RETRY_DELAY])
def test_retry_takes_a_delay_of_up_to_a_week(after: timedelta) -> None:
    assert Retry(after).after == after


def test_retry_takes_no_negative_delay() -> None:
    with pytest.raises(Invalid):
        Retry(-timedelta.resolution)


def test_impact_in_another_state_keeps_its_attempt_and_drops_reason_and_delay() -> None:
    begun = Impact(vm="v0", state=ImpactState.BEGUN, attempt=2, begun_at=NOW)
    retry = begun.with_state(ImpactState.RETRY, why="busy", retry_at=NOW + timedelta(minutes=1))
    assert retry == Impact(
        vm="v0",
        state=ImpactState.RETRY,
        attempt=2,
        begun_at=NOW,
        retry_at=NOW + timedelta(minutes=1),
        why="busy",
    )
    assert retry.with_state(ImpactState.BEGUN) == begun


def test_reason_of_an_impact_is_cut_to_its_limit_in_bytes() -> None:
    failed = Impact(vm="v0").with_state(ImpactState.FAILED, why="ü" * MAX_IMPACT_TEXT_BYTES)
    assert failed.why == "ü" * ((MAX_IMPACT_TEXT_BYTES - 3) // 2) + "…"
    assert len(failed.why.encode()) <= MAX_IMPACT_TEXT_BYTES


def test_state_of_work_is_either_settled_or_stuck_or_under_way() -> None:
    assert SETTLED.isdisjoint(STUCK)
    assert set(ImpactState) - SETTLED - STUCK == {ImpactState.PENDING, ImpactState.BEGUN, ImpactState.RETRY}


def test_impact_is_stuck_since_an_entry_until_its_state_changes() -> None:
    failed = Impact(vm="v0", state=ImpactState.FAILED, stuck_entry=7)
    assert [failed.is_stuck(seen) for seen in (None, 8, 7, 6)] == [True, True, True, False]
    assert Impact(vm="v0", state=ImpactState.UNKNOWN).is_stuck(1), "saved by an older version"
    pending = failed.with_state(ImpactState.PENDING)
    assert (pending, pending.is_stuck()) == (Impact(vm="v0"), False)


def test_impact_is_stored_without_defaults_and_decoded_as_it_was() -> None:
    assert msgspec.to_builtins(Impact(vm="v0")) == {"vm": "v0"}
    impact = Impact(vm="v0", state=ImpactState.GIVEN_UP, attempt=3, begun_at=NOW, why="given up by ann")
    assert msgspec.json.decode(msgspec.json.encode(impact), type=Impact) == impact
