"""So many programs may run at the same time, and no place is lost."""

import asyncio

import pytest

from forewarn.platform.limiter import ConcurrencyLimiter, SlotTimeout


async def take(places: ConcurrencyLimiter) -> None:
    async with places.slot():
        pass


async def test_slot_timeout_is_raised() -> None:
    places = ConcurrencyLimiter(1)
    async with places.slot():
        with pytest.raises(SlotTimeout):
            async with places.slot(0.001):
                pass
    await asyncio.wait_for(take(places), timeout=30)


async def test_slot_of_a_waiter_cancelled_at_its_turn_goes_to_the_next() -> None:
    places = ConcurrencyLimiter(1)
    async with places.slot():
        leaving, next_ = asyncio.ensure_future(take(places)), asyncio.ensure_future(take(places))
        await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait_for(next_, timeout=30)
    assert leaving.cancelled()
    await asyncio.wait_for(take(places), timeout=30)


async def test_increased_limit_admits_waiters() -> None:
    places = ConcurrencyLimiter(1)
    async with places.slot():
        waiting = asyncio.ensure_future(take(places))
        await asyncio.sleep(0)
        places.set_limit(2)
        await asyncio.wait_for(waiting, timeout=30)
