"""Clocks: the system clock, which can be stepped, and the manual clock, which never goes back."""

import asyncio
from datetime import timedelta

import pytest

from forewarn.clock import ManualClock, SystemClock, wait_until
from tests.core.sample_scopes import TEN
from tests.fleet.fleets import SteppedClock, until

MINUTE = timedelta(minutes=1)


def test_system_clock_is_aware_and_in_utc() -> None:
    """Every point in time is an aware UTC datetime."""
    assert SystemClock().now().utcoffset() == timedelta(0)


async def test_step_forward_of_the_system_clock_is_noticed_within_a_nap() -> None:
    """A timer an hour ahead fires soon after the clock is set past it."""
    clock, rung = SteppedClock(), asyncio.Event()
    clock.call_at(clock.now() + timedelta(hours=1), rung.set)
    clock.step = timedelta(hours=2)
    await asyncio.wait_for(rung.wait(), timeout=60)


async def test_step_back_of_the_system_clock_delays_the_timer() -> None:
    """A timer compares with the current clock, not with a duration measured at its start."""
    clock, rung_at = SteppedClock(), []
    moment = clock.now() + timedelta(milliseconds=20)
    clock.call_at(moment, lambda: rung_at.append(clock.now()))
    clock.step = -timedelta(milliseconds=300)
    await until(lambda: bool(rung_at))
    assert rung_at[0] >= moment


async def test_cancelled_timer_of_the_system_clock_never_fires() -> None:
    """A cancelled timer does not fire even if its time is reached."""
    clock, rung, later = SystemClock(), [], asyncio.Event()
    clock.call_at(clock.now(), lambda: rung.append("cancelled")).cancel()
    clock.call_at(clock.now(), later.set)
    await asyncio.wait_for(later.wait(), timeout=60)
    assert rung == []


def test_manual_clock_cannot_be_set_back() -> None:
    """Its position never goes back."""
    clock = ManualClock(TEN)
    clock.set(TEN + MINUTE)
    with pytest.raises(ValueError, match="cannot be set back"):
        clock.set(TEN)
    assert clock.now() == TEN + MINUTE


async def test_manual_clock_fires_timers_in_order_of_time_then_of_creation() -> None:
    """Timers that are due at the same time fire in a fixed order, so that runs are reproducible."""
    clock, called = ManualClock(TEN), []
    clock.call_at(TEN + 2 * MINUTE, lambda: called.append("second"))
    clock.call_at(TEN + MINUTE, lambda: called.append("first"))
    clock.call_at(TEN + 2 * MINUTE, lambda: called.append("third"))
    clock.call_at(TEN + MINUTE, lambda: called.append("never")).cancel()
    clock.set(TEN + 5 * MINUTE)
    assert called == ["first", "second", "third"]
    assert (clock.timer_count, clock.next_timer_at) == (0, None)


async def test_cancelled_wait_leaves_no_timer() -> None:
    """A cancelled wait removes its timer."""
    clock = ManualClock(TEN)
    waiting = asyncio.ensure_future(wait_until(clock, TEN + MINUTE))
    await until(lambda: clock.timer_count == 1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert clock.next_timer_at is None


async def test_past_timer_fires_without_moving_the_manual_clock() -> None:
    """A timer for now fires in the next iteration of the event loop."""
    clock, rung = ManualClock(TEN), asyncio.Event()
    clock.call_at(TEN, rung.set)
    assert not rung.is_set()
    await asyncio.wait_for(rung.wait(), timeout=60)
