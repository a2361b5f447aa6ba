"""What the fleet measures of itself, as its events live, and whether it is ready."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from forewarn.core.event import Cause, EventType, State
from forewarn.core.impact import Done, Failed, ImpactOutcome, ImpactState, NotStarted, Unknown
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.schedule import ScheduleRequest
from forewarn.fleet.errors import SaveFailed
from forewarn.fleet.metrics import Histogram
from forewarn.fleet.service import Fleet
from forewarn.platform.port import Work
from forewarn.store.memory import MemoryStore
from forewarn.store.port import NO_GUARDS, Guards, RecordKey, RevisionConflict
from tests.core.sample_scopes import schedule_request, scope, vm, web_scope
from tests.fleet.fleets import FailingStore, run_fleet, until

MINUTES = timedelta(minutes=1)
REBOOT, FREEZE, REDEPLOY = EventType.REBOOT, EventType.FREEZE, EventType.REDEPLOY


def planned(type_: EventType, *vms: str, number: int = 1, notice: int = 15) -> ScheduleRequest:
    return schedule_request(type_, *vms, number=number, notice=notice * MINUTES)


def seen(histogram: Histogram) -> tuple[int, float]:
    return histogram.count, histogram.sum


def test_histogram_counts_up_to_each_bound() -> None:
    histogram = Histogram((1, 5))
    for value in (0.5, 1, 2, timedelta(seconds=9), -3):
        histogram.observe(value)
    assert list(histogram.cumulative()) == [(1, 3), (5, 4), (float("inf"), 5)]
    assert seen(histogram) == (5, 12.5)


async def test_steps_of_an_event_are_measured() -> None:
    async with run_fleet(web_scope()) as fleet:
        [(_, event)] = await fleet.events.schedule(planned(REBOOT, "web-0"))
        assert seen(fleet.metrics.notice[REBOOT, Cause.MAINTENANCE]) == (1, 900)
        assert fleet.metrics.counts.events == {(REBOOT, State.SCHEDULED): 1}
        await fleet.time.advance(2 * MINUTES)
        await fleet.events.approve("web", "web-0", [event])
        assert seen(fleet.metrics.approval[REBOOT]) == (1, 120)
        assert +fleet.metrics.counts.events == {(REBOOT, State.STARTED): 1}
        await fleet.time.advance(60 * MINUTES)
        assert fleet.metrics.impact[REBOOT].count == 1
        assert fleet.metrics.impact[REBOOT].sum > 0
        assert fleet.metrics.changes == {
            (REBOOT, EntryKind.SCHEDULED): 1,
            (REBOOT, EntryKind.STARTED): 1,
            (REBOOT, EntryKind.COMPLETED): 1,
        }
        assert fleet.metrics.outcomes == {(REBOOT, EntryKind.IMPACT_DONE): 1}
        assert not +fleet.metrics.counts.events
        assert REBOOT not in fleet.metrics.lateness  # it was approved: it was never due


async def test_failure_gives_no_notice() -> None:
    async with run_fleet(web_scope()) as fleet:
        await fleet.events.schedule(schedule_request(REDEPLOY, "web-0", failure=True))
        assert seen(fleet.metrics.notice[REDEPLOY, Cause.FAILURE]) == (1, 0)


async def test_start_on_time_is_not_late() -> None:
    async with run_fleet(web_scope()) as fleet:
        await fleet.events.schedule(planned(FREEZE, "web-0"))
        await fleet.time.advance(20 * MINUTES)
        assert seen(fleet.metrics.lateness[FREEZE]) == (1, 0)


async def test_late_start_is_measured() -> None:
    async with run_fleet(web_scope()) as fleet:
        await fleet.events.schedule(planned(FREEZE, "web-0"))
        view = fleet.replica.view("web")
        due_at = view.scope.events[0].not_before if view.scope else fleet.clock.now()
        entry = Entry(n=9, at=due_at + timedelta(seconds=7), kind=EntryKind.STARTED, by="clock", event=_event(fleet))
        fleet.metrics.observe_save(view.scope, view.scope, [entry], fleet.scopes.rule_context)
        assert seen(fleet.metrics.lateness[FREEZE]) == (1, 7)


def _event(fleet: Fleet) -> str:
    view = fleet.replica.view("web")
    assert view.scope is not None
    return view.scope.events[0].id


async def test_event_that_waited_for_its_turn_is_not_late() -> None:
    async with run_fleet(web_scope()) as fleet:
        await fleet.events.schedule(planned(REBOOT, "web-0", "web-1"))
        await fleet.time.advance(120 * MINUTES)
        assert fleet.metrics.changes[REBOOT, EntryKind.COMPLETED] == 2
        assert seen(fleet.metrics.lateness[REBOOT]) == (1, 0)


@pytest.mark.parametrize("held", [None, "web"], ids=["whole fleet", "scope"])
async def test_event_that_was_held_is_not_late(held: str | None) -> None:
    async with run_fleet(web_scope()) as fleet:
        await fleet.holds.set(by="ada", reason="audit", scope=held)
        await fleet.events.schedule(planned(FREEZE, "web-0"))
        await fleet.time.advance(60 * MINUTES)
        assert (fleet.metrics.counts.held, fleet.holds.current is not None) == (
            (0, True) if held is None else (1, False)
        )
        await fleet.holds.release(by="ada", scope=held)
        await fleet.time.advance(1 * MINUTES)
        assert fleet.metrics.changes[FREEZE, EntryKind.STARTED] == 1
        assert fleet.metrics.lateness[FREEZE].sum == 0


class Stubborn:
    """A platform on which everything fails, or ends in the unknown."""

    repeatable = False

    def __init__(self, outcome: ImpactOutcome) -> None:
        self.outcome = outcome

    async def carry_out(self, work: Work) -> ImpactOutcome:
        return self.outcome

    async def probe(self, work: Work) -> Done | NotStarted | Unknown:
        return NotStarted()


@pytest.mark.parametrize(
    ("outcome", "state", "did"),
    [
        pytest.param(Failed("no"), ImpactState.FAILED, EntryKind.IMPACT_FAILED, id="failed"),
        pytest.param(Unknown("?"), ImpactState.UNKNOWN, EntryKind.IMPACT_UNKNOWN, id="unknown"),
    ],
)
async def test_impact_that_waits_for_a_person_is_counted_until_it_is_resolved(
    outcome: ImpactOutcome, state: ImpactState, did: EntryKind
) -> None:
    async with run_fleet(web_scope(), platform=Stubborn(outcome)) as fleet:
        await fleet.events.schedule(schedule_request(REDEPLOY, "web-0", failure=True))
        await until(lambda: fleet.metrics.counts.stuck[REDEPLOY, state] == 1)
        assert fleet.metrics.outcomes[REDEPLOY, did] == 1
        await fleet.events.resolve(_event(fleet), by="ada", why="seen to", done=True)
        assert not +fleet.metrics.counts.stuck
        assert not fleet.metrics.impact[REDEPLOY].count  # a person's word is no measure of the platform


async def test_counts_follow_added_and_removed_scopes() -> None:
    async with run_fleet(web_scope(), scope("batch", vm("batch-0"))) as fleet:
        assert (fleet.metrics.counts.scopes, fleet.metrics.counts.enabled) == (2, 0)
        noted = fleet.last_seen.record_request(fleet.replica.view("web"))
        assert noted is not None
        await noted
        assert fleet.metrics.counts.enabled == 1
        await fleet.inventory.remove_scope("web", by="ada", force=True)
        assert (fleet.metrics.counts.scopes, fleet.metrics.counts.enabled) == (1, 0)


async def test_counts_are_correct_after_a_restart() -> None:
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        await fleet.events.schedule(planned(FREEZE, "web-0"))
    async with run_fleet(store=store) as fleet:
        assert (fleet.metrics.counts.scopes, fleet.metrics.counts.events) == (1, {(FREEZE, State.SCHEDULED): 1})


async def test_saves_and_failures_of_the_store_are_counted() -> None:
    store = FailingStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        saves = fleet.metrics.saves.count
        assert saves == store.saves
        store.full = True
        with pytest.raises(SaveFailed):
            await fleet.holds.set(by="ada", reason="audit")
        assert (fleet.metrics.saves.count, fleet.metrics.failures) == (saves, 1)
        store.full = False


class ConflictingStore(MemoryStore):
    """A store with one conflict, as if another process had saved first."""

    conflicts = 0

    async def save(
        self,
        key: RecordKey,
        value: bytes | None,
        entries: Sequence[Entry],
        *,
        expected: int | None,
        guards: Guards = NO_GUARDS,
    ) -> int:
        if self.conflicts:
            self.conflicts -= 1
            raise RevisionConflict(key, expected=expected, actual=None)
        return await super().save(key, value, entries, expected=expected, guards=guards)


async def test_conflicts_are_counted_but_not_as_failures() -> None:
    store = ConflictingStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        store.conflicts = 1
        await fleet.events.schedule(planned(FREEZE, "web-0"))
        assert (fleet.metrics.conflicts, fleet.metrics.failures) == (1, 0)
        assert fleet.metrics.changes == {(FREEZE, EntryKind.SCHEDULED): 1}
