"""Operators' commands on events: approve for a VM, retry, resolve, hold, delete, fail a host."""

from datetime import timedelta

import msgspec
import pytest

from forewarn.core.errors import (
    EvictionNotAllowed,
    Invalid,
    InvalidTransition,
    NotAnnounced,
    ScopeVmNotFound,
    TooManyOperations,
)
from forewarn.core.event import Cause, EventType, Source, State
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.impact import Done, Failed, ImpactState, NotStarted
from forewarn.core.journal import EntryKind
from forewarn.core.operations import evict, fail, predict_failure, redeploy, restart
from forewarn.core.policy import PRODUCTION
from forewarn.core.scope import Hold, ScopeKind
from forewarn.core.vm import Traits
from forewarn.fleet.errors import EventNotFound, VmNotFound
from forewarn.fleet.events import new_request_id
from forewarn.fleet.service import Fleet
from forewarn.platform.port import Work
from forewarn.store.memory import MemoryStore
from forewarn.store.port import RecordKey, RecordKind
from tests.core.sample_scopes import TEN, schedule_request, scope, vm, web_scope
from tests.fleet.fleets import read_journal, run_fleet, until

HOUR = timedelta(hours=1)


class Repairable:
    """A platform on which work fails until it is repaired; it keeps what it was given."""

    repeatable = True

    def __init__(self) -> None:
        self.is_repaired = False
        self.given: list[tuple[str, int]] = []

    async def carry_out(self, work: Work) -> Done | Failed:
        """Do it, if it can be done."""
        self.given.append((work.vm, work.attempt))
        return Done() if self.is_repaired else Failed("no answer")

    async def probe(self, _: Work) -> NotStarted:
        """Nothing is ever begun."""
        return NotStarted()


async def stuck(fleet: Fleet) -> str:
    """Have the work on two VMs failed, and return their event."""
    ((_, event),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", "web-3", failure=True))
    await fleet.time.advance(timedelta(0))
    return event


def states(fleet: Fleet, event: str) -> dict[str, ImpactState]:
    return {impact.vm: impact.state for impact in fleet.events.find(event)[1].impacts}


async def test_operator_approves_in_the_name_of_any_vm_of_the_scope() -> None:
    store = MemoryStore()
    async with run_fleet(web_scope(), scope("db", vm("db")), store=store) as fleet:
        ((_, event),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", notice=HOUR))
        with pytest.raises(VmNotFound):
            await fleet.events.approve_for(event, "db/db", by="ann")
        with pytest.raises(ScopeVmNotFound):
            await fleet.events.approve_for(event, "db", by="ann")
        await fleet.events.approve_for(event.lower(), "web/WEB-5", by="ann")
        assert fleet.events.find(event)[1].state is State.STARTED
        (approved,) = [row.entry for row in await read_journal(store) if row.entry.kind is EntryKind.APPROVED]
        assert (approved.by, approved.why) == ("ann", "in the name of web-5")


async def test_failed_work_is_retried_on_one_vm_or_on_all() -> None:
    platform = Repairable()
    async with run_fleet(web_scope(), platform=platform) as fleet:
        event = await stuck(fleet)
        await fleet.events.retry(event, vm="WEB-3", by="ann", why="cable")
        await fleet.time.advance(timedelta(0))
        assert platform.given == [("web-0", 1), ("web-3", 1), ("web-3", 2)]
        platform.is_repaired = True
        await fleet.events.retry(event, by="ann")
        await until(lambda: not fleet.replica.scope("web").events)
        assert sorted(platform.given[3:]) == [("web-0", 2), ("web-3", 3)]


async def test_failed_impact_is_resolved_on_one_vm_and_the_event_continues_until_all_are() -> None:
    store = MemoryStore()
    async with run_fleet(web_scope(), platform=Repairable(), store=store) as fleet:
        event = await stuck(fleet)
        with pytest.raises(Invalid, match="resolving an impact needs a reason"):
            await fleet.events.resolve(event, by="ann", why=" ")
        await fleet.events.resolve(event, by="ann", why="seen", done=True, vm="web-0")
        assert states(fleet, event) == {"web-0": ImpactState.DONE, "web-3": ImpactState.FAILED}
        with pytest.raises(InvalidTransition):
            await fleet.events.resolve(event, by="ann", why="seen", vm="web-0")
        await fleet.events.resolve(event, by="ann", why="scrapped")
        with pytest.raises(EventNotFound):
            fleet.events.find(event)
        said = [(row.entry.kind, row.entry.why) for row in await read_journal(store) if row.entry.by == "ann"]
        assert said == [
            (EntryKind.IMPACT_DONE, "seen"),
            (EntryKind.IMPACT_GIVEN_UP, "scrapped"),
            (EntryKind.FAILED, "scrapped"),
        ]


async def test_held_scope_starts_nothing_planned_and_others_continue() -> None:
    async with run_fleet(web_scope(), scope("db", vm("db"))) as fleet:
        await fleet.holds.set(by="ann", reason="storm", scope="web")
        assert fleet.replica.scope("web").hold == Hold(by="ann", at=TEN, reason="storm")
        made = dict(await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", "db")))
        await fleet.time.advance(timedelta(minutes=15))
        assert fleet.events.find(made["web"])[1].state is State.SCHEDULED
        assert fleet.events.find(made["db"])[1].state is State.STARTED
        await fleet.holds.release(by="ann", scope="web")
        assert fleet.events.find(made["web"])[1].state is State.STARTED
        with pytest.raises(Invalid, match="a hold needs a reason"):
            await fleet.holds.set(by="ann", reason="", scope="web")


async def test_hold_on_everything_is_shown_with_who_and_why() -> None:
    async with run_fleet(web_scope()) as fleet:
        await fleet.holds.set(by="ann", reason="storm")
        assert fleet.holds.current == Hold(by="ann", at=TEN, reason="storm")
        await fleet.holds.release(by="ann")
        assert fleet.holds.current is None


async def test_only_a_vm_with_a_terminate_profile_is_deleted_with_an_event() -> None:
    store = MemoryStore()
    announced = msgspec.structs.replace(vm("old"), traits=Traits(terminate_notice=timedelta(minutes=5)))
    async with run_fleet(
        scope("web", announced, vm("plain")), scope("db", vm("db"), kind=ScopeKind.STANDALONE), store=store
    ) as fleet:
        ((home, id_),) = await fleet.events.delete("old", request=new_request_id(), by="ann", why="unused")
        _, event = fleet.events.find(id_)
        assert (home, event.type, event.source, event.why) == ("web", EventType.TERMINATE, Source.USER, "unused")
        assert await fleet.events.delete("web/plain", request=new_request_id(), by="ann") == ()
        assert await fleet.events.delete("db", request=new_request_id(), by="ann", why="sold") == ()
        await fleet.time.advance(HOUR)
        assert (fleet.replica.vms, [view.id for view in fleet.replica.views()]) == (0, ["web"])
        gone = [row.entry for row in await read_journal(store) if row.entry.kind is EntryKind.VM_REMOVED]
        assert [(each.vms, each.by, each.why) for each in gone] == [
            (("plain",), "ann", "deleted by its owner"),
            (("db",), "ann", "sold"),
            (("old",), "platform", f"Terminate {id_}"),
        ]


async def test_failed_host_takes_its_vms_of_all_scopes_at_once() -> None:
    async with run_fleet(web_scope(), scope("db", vm("db", host="hv-0")), platform=Repairable()) as fleet:
        vms = fleet.inventory.select(host="hv-0")
        made = await fleet.events.schedule(fail(vms, request=new_request_id(), by="ann", why="smoke"))
        events = [fleet.events.find(id_)[1] for _, id_ in made]
        assert [(event.state, event.cause, event.vms) for event in events] == [
            (State.STARTED, Cause.FAILURE, ("web-0", "web-3")),
            (State.STARTED, Cause.FAILURE, ("db",)),
        ]


async def test_operations_of_users_and_the_platform() -> None:
    async with run_fleet(web_scope(), scope("spot", vm("spot"), low_priority=True)) as fleet:
        asks = [
            restart("web-0", request=new_request_id(), by="ann", why="stuck"),
            redeploy("web-1", request=new_request_id(), by="ann"),
            evict("spot", request=new_request_id(), by="ann"),
            predict_failure(("web-2",), request=new_request_id(), by="ann", ahead=timedelta(days=3)),
        ]
        events = [fleet.events.find((await fleet.events.schedule(each))[0][1])[1] for each in asks]
        assert [(event.type, event.source, event.cause, event.not_before - TEN) for event in events] == [
            (EventType.REBOOT, Source.USER, Cause.USER, timedelta(minutes=15)),
            (EventType.REDEPLOY, Source.USER, Cause.USER, timedelta(minutes=10)),
            (EventType.PREEMPT, Source.PLATFORM, Cause.EVICTION, timedelta(seconds=30)),
            (EventType.REDEPLOY, Source.PLATFORM, Cause.MAINTENANCE, timedelta(days=3)),
        ]
        assert events[0].why == "stuck"
        with pytest.raises(EvictionNotAllowed):
            await fleet.events.schedule(evict("web-0", request=new_request_id(), by="ann"))


async def test_eleventh_user_operation_is_refused_also_as_a_deletion() -> None:
    profile = Traits(terminate_notice=timedelta(minutes=5))
    async with run_fleet(msgspec.structs.replace(scope("web", vm("a")), traits=profile)) as fleet:
        for _ in range(10):
            await fleet.events.schedule(restart("a", request=new_request_id(), by="ann"))
        with pytest.raises(TooManyOperations):
            await fleet.events.schedule(restart("a", request=new_request_id(), by="ann"))
        with pytest.raises(TooManyOperations):
            await fleet.events.delete("a", request=new_request_id(), by="ann")


async def test_last_entry_of_a_removed_scope_is_its_removal() -> None:
    store = MemoryStore()
    async with run_fleet(scope("db", vm("db"), kind=ScopeKind.STANDALONE), store=store) as fleet:
        await fleet.events.delete("db", request=new_request_id(), by="ann", idempotency_key=IdempotencyKey("k", "d"))
        last = (await read_journal(store, RecordKey(RecordKind.SCOPE, "db")))[-1].entry
        assert (last.kind, last.facts["key"]) == (EntryKind.SCOPE_REMOVED, "k")


async def test_refusal_names_every_scope_that_will_not_hear_of_it() -> None:
    async with run_fleet(web_scope(), scope("db", vm("db")), scope("mq", vm("mq")), policy=PRODUCTION) as fleet:
        saved = fleet.last_seen.record_request(fleet.replica.view("web"))
        assert saved is not None
        await saved
        request = schedule_request(EventType.REBOOT, "web-0", "db", "mq")
        with pytest.raises(NotAnnounced) as refused:
            await fleet.events.schedule(request)
        assert [view.scope.events for view in fleet.replica.views() if view.scope is not None] == [()] * 3
        created = await fleet.events.schedule(msgspec.structs.replace(request, unannounced=True))
    assert refused.value.details == {"scopes": ("db", "mq"), "scope_count": 2, "vm_count": 2}
    assert [id_ for id_, _ in created] == ["web", "db", "mq"]
