"""Action executor: what is done in the scopes, in the journal and at the gate, and what is found out."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest

from forewarn.clock import ManualClock
from forewarn.core.campaign.actions import (
    AnnounceWave,
    CheckGate,
    ClearWave,
    CloseScope,
    GateClosed,
    GateOpened,
    ReadOutcome,
    RetryEvent,
    ScopeClosed,
    WaveAnnounced,
    WaveEnded,
    WaveRefused,
    WithdrawEvent,
)
from forewarn.core.campaign.commands import abort, plan_progress, start
from forewarn.core.campaign.draft import CampaignDraft
from forewarn.core.campaign.index import CampaignIndex, observe
from forewarn.core.campaign.limits import Load
from forewarn.core.campaign.record import Campaign, WaveState
from forewarn.core.event import State
from forewarn.core.impact import Failed, ImpactState
from forewarn.core.impact_lifecycle import begin, settle
from forewarn.core.policy import EMULATOR
from forewarn.core.scope import EventOutcome
from forewarn.fleet import retry
from forewarn.fleet.campaign import executor
from forewarn.fleet.campaign.executor import ActionExecutor
from forewarn.fleet.campaign.time_zones import find_zone
from forewarn.fleet.service import Fleet
from forewarn.platform.port import GateChecker, GateFailed, GatePassed, GateRequest
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.port import NO_GUARDS, Guards
from tests.core.sample_scopes import TEN, scope, vm
from tests.fleet.campaign.campaigns import CAMPAIGN_ID, MINUTE, campaign_spec, plan_campaign
from tests.fleet.fleets import FailingStore, until

LOAD = Load("web", ("hv-0",), 1)
DUE = TEN + 15 * MINUTE
ANNOUNCE = AnnounceWave("web", 1, DUE, LOAD)


class Owner:
    """A campaign over the scope `web` that only the test carries on."""

    def __init__(self, fleet: Fleet, **policy: Any) -> None:
        spec = campaign_spec(**policy)
        plan = plan_campaign(fleet, spec)
        progress = plan_progress(plan.waves, started_at=TEN, seen=0)
        self._fleet = fleet
        self.record: Campaign = start(spec, plan, [progress], id_=CAMPAIGN_ID, by="ann", now=TEN).record
        self.index = CampaignIndex(self.record, fleet.scopes.rule_context, find_zone)
        self.look()

    def look(self) -> None:
        """See the scope as it is now."""
        observe(self.index, "web", self._fleet.replica.newest("web")[0])

    def take(self, record: Campaign) -> None:
        self.record = record
        self.index.rebase(record)
        self.look()

    @property
    def newest(self) -> Campaign:
        return self.record

    def guards(self) -> Guards:
        return NO_GUARDS

    duty_guards = guards

    def now(self) -> datetime:
        return self._fleet.clock.now()


class ScriptedGate:
    """A gate that returns or raises one thing, and remembers what it was asked."""

    gates = ("health",)

    def __init__(self, result: GatePassed | GateFailed | Exception) -> None:
        self._result = result
        self.requests: list[GateRequest] = []

    async def check(self, request: GateRequest) -> GatePassed | GateFailed:
        self.requests.append(request)
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


class Bench:
    """A fleet with one scope, a campaign over it, and the executor of its actions."""

    def __init__(
        self, fleet: Fleet, clock: ManualClock, store: FailingStore, checker: GateChecker, **policy: Any
    ) -> None:
        self.fleet, self.clock = fleet, clock
        self.owner = Owner(fleet, **policy)
        self.executor = ActionExecutor(self.owner, fleet.scopes, store, checker=checker)

    def let_notice_pass(self) -> None:
        """Have the campaign know that the wave is announced, and let it become due."""
        self.clock.set(DUE)
        draft = CampaignDraft(self.owner.record)
        draft.put_wave("web", 1, WaveState.ANNOUNCED, DUE)
        self.owner.take(draft.finish().record)

    @property
    def event(self) -> str:
        """The id of the only open event."""
        (event,) = self.fleet.replica.scope("web").events
        return event.id

    @property
    def impacts(self) -> list[ImpactState]:
        return [impact.state for event in self.fleet.replica.scope("web").events for impact in event.impacts]

    @property
    def states(self) -> list[State]:
        return [event.state for event in self.fleet.replica.scope("web").events]


@asynccontextmanager
async def run_bench(
    store: FailingStore | None = None, checker: GateChecker | None = None, **policy: Any
) -> AsyncIterator[Bench]:
    store = store or FailingStore()
    web = scope("web", vm("web-0", host="hv-0"), vm("web-1", domain=1, host="hv-1"))
    clock = ManualClock(TEN)
    async with Fleet.run(
        store=store, platform=SimulatedPlatform(clock), clock=clock, policy=EMULATOR, has_duties=False
    ) as fleet:
        await fleet.inventory.add_scope(web, by="test")
        yield Bench(fleet, clock, store, checker or ScriptedGate(GatePassed()), **policy)


async def test_announced_wave_has_its_events() -> None:
    async with run_bench() as bench:
        found = await bench.executor.execute(ANNOUNCE)
        assert found == WaveAnnounced("web", 1, 1, DUE, seen=0)
        (event,) = bench.fleet.replica.scope("web").events
        assert (event.vms, event.not_before, event.campaign, event.request) == (
            ("web-0",),
            DUE,
            CAMPAIGN_ID,
            bench.owner.record.request("web", 1),
        )


async def test_wave_that_a_rule_refuses_is_found_refused() -> None:
    async with run_bench() as bench:
        far = AnnounceWave("web", 1, TEN.replace(year=TEN.year + 2), LOAD)
        found = await bench.executor.execute(far)
        assert isinstance(found, WaveRefused)
        assert (found.scope, found.n) == ("web", 1)
        assert bench.states == []


async def test_cleared_wave_starts() -> None:
    async with run_bench() as bench:
        await bench.executor.execute(ANNOUNCE)
        bench.let_notice_pass()
        assert await bench.executor.execute(ClearWave("web", 1, (bench.event,), (LOAD,))) is None
        assert bench.states == [State.STARTED]


async def test_wave_that_could_not_be_saved_is_not_cleared_and_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executor, "CLEAR_PAUSE", 0.0)
    store = FailingStore()
    async with run_bench(store) as bench:
        await bench.executor.execute(ANNOUNCE)
        bench.let_notice_pass()
        store.full = True
        with caplog.at_level(logging.WARNING, logger=executor.__name__):
            await bench.executor.execute(ClearWave("web", 1, (bench.event,), (LOAD,)))
        assert (bench.states, store.refused) == ([State.SCHEDULED], 1)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        store.full = False


async def test_announcement_is_repeated_until_it_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.001)
    store = FailingStore()
    async with run_bench(store) as bench:
        store.full = True
        bench.fleet.start_task(execute(bench), name="announce")
        await until(lambda: store.refused > 2)
        assert bench.states == []
        store.full = False
        await until(lambda: bench.states == [State.SCHEDULED])


async def execute(bench: Bench) -> None:
    await bench.executor.execute(ANNOUNCE)


async def test_withdrawn_event_is_cancelled_in_the_name_of_the_one_who_aborted() -> None:
    async with run_bench() as bench:
        await bench.executor.execute(ANNOUNCE)
        bench.owner.take(abort(bench.owner.record, by="bob", why="no", now=TEN).record)
        assert await bench.executor.execute(WithdrawEvent("web", bench.event, "bob", "no")) is None
        scope_ = bench.fleet.replica.scope("web")
        assert (scope_.events, scope_.ended[-1].outcome) == ((), EventOutcome.CANCELED)
        found = await bench.executor.execute(ReadOutcome("web", 1))
        assert found == WaveEnded("web", 1, (EventOutcome.CANCELED,))


async def test_stuck_work_of_an_event_is_retried() -> None:
    async with run_bench() as bench:
        await bench.executor.execute(ANNOUNCE)
        bench.let_notice_pass()
        await bench.executor.execute(ClearWave("web", 1, (bench.event,), (LOAD,)))
        context = bench.fleet.scopes.rule_context
        await bench.fleet.scopes.apply("web", lambda value: begin(value, bench.event, "web-0", now=DUE))
        await bench.fleet.scopes.apply(
            "web", lambda value: settle(value, bench.event, "web-0", Failed("no power"), context, now=DUE)
        )
        assert bench.impacts == [ImpactState.FAILED]
        assert await bench.executor.execute(RetryEvent("web", bench.event, "bob", None)) is None
        assert bench.impacts == [ImpactState.PENDING]


async def test_unknown_outcome_of_a_wave_is_empty() -> None:
    async with run_bench() as bench:
        assert await bench.executor.execute(ReadOutcome("web", 1)) == WaveEnded("web", 1, ())


async def test_closed_scope_has_the_vms_that_no_wave_has_done() -> None:
    async with run_bench() as bench:
        found = await bench.executor.execute(CloseScope("web"))
        assert found == ScopeClosed("web", ((0, 1), (1, 1)))


async def test_open_gate_is_found_open_as_of_the_moment_it_was_asked() -> None:
    gate = ScriptedGate(GatePassed())
    async with run_bench(checker=gate, gate="health") as bench:
        assert await bench.executor.execute(CheckGate("web", 2)) == GateOpened("web", 2, TEN)
    assert gate.requests == [GateRequest(gate="health", campaign=CAMPAIGN_ID, name="kernel", scope="web", wave=2)]


@pytest.mark.parametrize(
    ("result", "reason"), [(GateFailed("sick"), "sick"), (RuntimeError("broken"), "RuntimeError('broken')")]
)
async def test_gate_that_is_closed_or_cannot_be_asked_is_found_closed(
    result: GateFailed | Exception, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_bench(checker=ScriptedGate(result), gate="health") as bench:
        found = await bench.executor.execute(CheckGate("web", 2))
    assert isinstance(found, GateClosed)
    assert reason in found.reason
    assert [record.levelname for record in caplog.records] == (["ERROR"] if isinstance(result, Exception) else [])


async def test_campaign_without_a_gate_finds_it_closed() -> None:
    gate = ScriptedGate(GatePassed())
    async with run_bench(checker=gate) as bench:
        assert isinstance(await bench.executor.execute(CheckGate("web", 2)), GateClosed)
    assert gate.requests == []
