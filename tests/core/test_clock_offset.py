"""The offset of a clock: the median over servers, steps by the monotonic clock, and the two limits."""

from datetime import timedelta

import pytest

from forewarn.core.clock_offset import (
    ClockState,
    TimeResponse,
    describe_offset,
    find_origin,
    judge_offset,
    measure_offset,
)
from tests.core.sample_scopes import TEN


def response(offset: float, *, sent: float = 100.0, took: float = 0.0) -> TimeResponse:
    """Return the time of a server that is ahead of TEN at 100 s by some seconds."""
    middle = sent + took / 2 - 100.0
    return TimeResponse(at=TEN + timedelta(seconds=offset + middle), sent=sent, received=sent + took)


def test_one_wrong_server_of_three_has_no_effect() -> None:
    assert find_origin([response(30), response(0), response(0.01)]) == find_origin([response(0.01)])


def test_origin_takes_the_round_trip_into_account() -> None:
    origin = find_origin([response(0)])
    assert origin is not None
    assert find_origin([response(0, sent=117.0, took=0.8)]) == pytest.approx(origin)


def test_slow_answer_is_not_used() -> None:
    assert find_origin([response(0, took=1.5)]) is None
    assert find_origin([]) is None


def test_step_of_the_clock_is_seen_without_another_reading() -> None:
    origin = find_origin([response(0)])
    assert origin is not None
    assert measure_offset(TEN + timedelta(minutes=1), 160.0, origin) == timedelta(0)
    assert measure_offset(TEN + timedelta(hours=1), 101.0, origin) == timedelta(seconds=3599)
    assert measure_offset(TEN - timedelta(hours=1), 101.0, origin) == timedelta(seconds=-3601)


@pytest.mark.parametrize(
    ("seconds", "state"),
    [
        (0.0, ClockState.EXACT),
        (-1.0, ClockState.EXACT),
        (1.1, ClockState.OFF),
        (-5.0, ClockState.OFF),
        (5.1, ClockState.WRONG),
        (-3600.0, ClockState.WRONG),
    ],
)
def test_offset_has_two_limits(seconds: float, state: ClockState) -> None:
    assert judge_offset(timedelta(seconds=seconds)) is state


def test_offset_that_is_not_known() -> None:
    assert judge_offset(None) is ClockState.UNKNOWN


def test_description_says_in_which_direction_a_clock_is_off() -> None:
    assert describe_offset(timedelta(seconds=2.46)) == "2.5 s fast"
    assert describe_offset(timedelta(seconds=-30)) == "30.0 s slow"
