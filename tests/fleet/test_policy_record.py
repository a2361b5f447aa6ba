"""The policy of a cell: created once, changed with a journal entry, and applied by every process."""

from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta

import msgspec

from forewarn.clock import ManualClock, SystemClock
from forewarn.core.journal import EntryKind
from forewarn.core.policy import PRODUCTION, Policy
from forewarn.fleet.service import Fleet
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.settings.schema import PolicySettings
from forewarn.store.memory import MemoryStore
from forewarn.store.port import JournalQuery
from tests.core.sample_scopes import web_scope
from tests.fleet.fleets import request_from_guest, run_fleet, until

T0 = datetime(2026, 11, 16, 10, tzinfo=UTC)


async def test_policy_is_created_once_and_a_change_reaches_every_process() -> None:
    store, clock = MemoryStore(), SystemClock()

    def run() -> AbstractAsyncContextManager[Fleet]:
        return Fleet.run(
            store=store, platform=SimulatedPlatform(clock), clock=clock, policy=PRODUCTION, has_duties=False
        )

    async with run() as one, run() as two:
        assert one.cluster.policy.current is None
        assert await one.cluster.policy.create(PolicySettings(user_operations=3), by="ada", now=T0)
        assert not await one.cluster.policy.create(PolicySettings(user_operations=4), by="ada", now=T0)
        await until(lambda: two.scopes.policy.user_operations == 3)
        two.use_policy(Policy(user_operations=9, allows_unreleased=True))  # a reload of the settings
        assert (two.scopes.policy.user_operations, two.scopes.policy.allows_unreleased) == (3, True)
        values = {"idle_after": timedelta(hours=48)}
        assert await two.cluster.policy.change(values, PolicySettings(), by="eve", why="long weekend", now=T0)
        assert not await two.cluster.policy.change(values, PolicySettings(), by="eve", why="again", now=T0)
        await until(lambda: one.scopes.policy.idle_after == timedelta(hours=48))
        assert one.scopes.policy.user_operations == 3
        rows = await store.journal(JournalQuery(kinds=(EntryKind.POLICY_CHANGED,)))
        assert [(row.entry.by, row.entry.why) for row in rows] == [
            ("ada", "taken from the settings"),
            ("eve", "long weekend"),
        ]
        assert rows[1].entry.facts == {"idle_after": "P2D"}
    async with run() as later:
        assert later.scopes.policy.user_operations == 3


async def test_first_policy_that_another_process_creates_is_applied_to_existing_scopes() -> None:
    """A scope that was idle for two days is disabled at once."""
    store, clock = MemoryStore(), ManualClock(T0)
    never = msgspec.structs.replace(PRODUCTION, idle_after=None)
    async with (
        run_fleet(web_scope(), store=store, clock=clock, policy=never) as here,
        Fleet.run(store=store, platform=SimulatedPlatform(clock), clock=clock, policy=never, has_duties=False) as there,
    ):
        await request_from_guest(here)
        await here.time.advance(timedelta(days=2))
        assert here.replica.scope("web").enabled
        await there.cluster.policy.create(PolicySettings(idle_after=timedelta(days=1)), by="ada", now=clock.now())
        await until(lambda: not here.replica.scope("web").enabled)


async def test_change_of_a_cell_without_a_policy_keeps_the_other_settings() -> None:
    store, clock = MemoryStore(), SystemClock()
    async with Fleet.run(
        store=store, platform=SimulatedPlatform(clock), clock=clock, policy=PRODUCTION, has_duties=False
    ) as fleet:
        default = PolicySettings(user_operations=7)
        assert await fleet.cluster.policy.change({"enforce_notice": False}, default, by="ada", why="", now=T0)
        assert fleet.cluster.policy.current == PolicySettings(user_operations=7, enforce_notice=False)
