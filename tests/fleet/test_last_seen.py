"""Last-seen tracking: which requests of guests are saved, and when a scope counts as silent."""

import asyncio
from datetime import timedelta

import msgspec

from forewarn.core.policy import PRODUCTION
from forewarn.fleet.last_seen import new_epoch
from tests.core.sample_scopes import TEN, web_scope
from tests.fleet.fleets import (
    FailingStore,
    GatedStore,
    request_from_guest,
    run_fleet,
    until,
)

MINUTE = timedelta(minutes=1)


HOUR = timedelta(hours=1)


async def test_first_request_enables_and_the_next_ones_save_nothing() -> None:
    """A scope that asks once a second costs one save an hour."""
    store = FailingStore()
    async with run_fleet(web_scope(), store=store, policy=PRODUCTION) as fleet:
        await asyncio.gather(*(request_from_guest(fleet) for _ in range(50)))
        assert fleet.replica.scope("web").enabled
        before = store.saves
        for _ in range(59):
            await fleet.time.advance(MINUTE)
            await request_from_guest(fleet)
        moved = store.saves - before
        assert fleet.replica.scope("web").seen_at == TEN
        assert moved == 59  # the manual clock's own position, and nothing else
        await fleet.time.advance(2 * MINUTE)
        await request_from_guest(fleet)
        await until(lambda: fleet.replica.scope("web").seen_at == TEN + 61 * MINUTE)


async def test_idle_timeout_of_a_day_counts_from_the_newest_request_even_if_not_saved() -> None:
    """The scheduler looks at the newest request, not at the saved one."""
    async with run_fleet(web_scope(), policy=PRODUCTION) as fleet:
        await request_from_guest(fleet)
        await fleet.time.advance(30 * MINUTE)
        await request_from_guest(fleet)
        await fleet.time.advance(24 * HOUR - timedelta(seconds=1))
        assert fleet.replica.scope("web").enabled
        await fleet.time.advance(timedelta(seconds=1))
        assert not fleet.replica.scope("web").enabled
        epoch = fleet.replica.scope("web").epoch
        await request_from_guest(fleet)
        again = fleet.replica.scope("web")
        assert (again.enabled, again.incarnation) == (True, 1)
        assert again.epoch != epoch


async def test_guests_get_responses_although_nothing_can_be_saved() -> None:
    """Guests get responses although the disk is full; the next request tries to save again."""
    store = FailingStore()
    async with run_fleet(web_scope(), store=store, policy=PRODUCTION) as fleet:
        store.full = True
        await request_from_guest(fleet)
        assert not fleet.replica.scope("web").enabled
        store.full = False
        await request_from_guest(fleet)
        assert fleet.replica.scope("web").enabled


async def test_scope_with_a_long_poll_is_not_idle() -> None:
    """A held request counts as one that is being made all the time."""
    async with run_fleet(web_scope(), policy=PRODUCTION) as fleet:
        await request_from_guest(fleet)
        view, news = fleet.replica.view("web"), asyncio.Event()
        view.wait_for_change(news.set)
        await fleet.time.advance(timedelta(days=3))
        assert fleet.replica.scope("web").enabled
        view.cancel_wait(news.set)
        await fleet.time.advance(timedelta(days=3))
        assert not fleet.replica.scope("web").enabled


async def test_newest_request_counts_whether_it_is_saved_or_not() -> None:
    async with run_fleet(web_scope(), policy=PRODUCTION) as fleet:
        view = fleet.replica.view("web")
        assert fleet.last_seen.of(view) is None
        await request_from_guest(fleet)
        await fleet.time.advance(MINUTE)
        await request_from_guest(fleet)
        assert (fleet.replica.scope("web").seen_at, fleet.last_seen.of(view)) == (TEN, TEN + MINUTE)
        assert (fleet.last_seen.busy, fleet.last_seen.waiting) == (0, 0)


async def test_request_from_an_enabled_scope_does_not_wait_for_the_store() -> None:
    store = GatedStore()
    async with run_fleet(web_scope(), store=store, policy=PRODUCTION) as fleet:
        await request_from_guest(fleet)
        await fleet.time.advance(2 * HOUR)
        store.may_save_scopes.clear()
        assert fleet.last_seen.record_request(fleet.replica.view("web")) is None
        assert fleet.last_seen.busy == 1
        store.may_save_scopes.set()
        await until(lambda: fleet.last_seen.busy == 0)
        assert fleet.replica.scope("web").seen_at == TEN + 2 * HOUR


def test_epochs_are_random_and_valid() -> None:
    epochs = {new_epoch() for _ in range(100)}
    assert len(epochs) == 100
    assert {msgspec.structs.replace(web_scope(), epoch=epoch).epoch for epoch in epochs} == epochs
