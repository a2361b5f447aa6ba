"""The main loop: queued commands are saved together, each gets its own result, conflicts are decided again."""

import asyncio
import collections
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from forewarn.core.approval import approve
from forewarn.core.change import Change
from forewarn.core.errors import ScopeEventNotFound, ScopeVmNotFound
from forewarn.core.event import EventType, State
from forewarn.core.inventory import add_vm, change_scope, remove_scope
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.scope import ApprovalRule, Scope
from forewarn.fleet.errors import OutcomeUnknown, SaveFailed, ScopeExists, ScopeNotFound
from forewarn.fleet.event_loop import FairShare, pause_gc, tasks_until_exit
from forewarn.fleet.main_loop import Decision, MainLoop, RecordChange, RecordCodec, RecordLoop, RecordTable
from forewarn.store.memory import MemoryStore
from forewarn.store.port import MAX_GUARDS, Deleted, Record, RecordKey, RecordKind
from tests.core.sample_scopes import TEN, schedule_request, scope, vm, web_scope
from tests.fleet.fleets import FailingStore, InterceptedStore, Rounds, Save, UnsureStore, read_journal, run_fleet, until

WEB = RecordKey(RecordKind.SCOPE, "web")


async def test_commands_that_wait_together_are_saved_together() -> None:
    """Two hundred approvals at once need no more than a few saves, and every one of them counts."""
    store = FailingStore()
    crowd = scope("crowd", *(vm(f"vm-{n}") for n in range(200)), approval=ApprovalRule.ALL)
    async with run_fleet(crowd, store=store) as fleet:
        ((_, event),) = await fleet.events.schedule(
            schedule_request(EventType.REBOOT, *(f"vm-{n}" for n in range(200)))
        )
        before = store.saves
        await asyncio.gather(*(fleet.events.approve("crowd", f"vm-{n}", [event]) for n in range(199)))
        assert store.saves - before <= 3
        _, scheduled = fleet.events.find(event)
        assert (scheduled.state, len(scheduled.approvals)) == (State.SCHEDULED, 199)
        await fleet.events.approve("crowd", "vm-199", [event])
        assert fleet.events.find(event)[1].state is State.STARTED


async def test_each_caller_gets_its_own_result_or_refusal() -> None:
    """A refused command neither spoils nor hides those beside it."""
    async with run_fleet(web_scope()) as fleet:
        ((_, event),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        stranger = "FFFFFFFF-0000-4000-8000-000000000000"
        answers = await asyncio.gather(
            fleet.events.approve("web", "web-1", [stranger]),
            fleet.events.approve("web", "nobody", [event]),
            fleet.events.approve("web", "web-2", [event]),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [ScopeEventNotFound, ScopeVmNotFound, type(None)]
        assert [approval.vm for approval in fleet.events.find(event)[1].approvals] == ["web-2"]


async def test_error_in_one_command_reaches_only_its_caller() -> None:
    """A bug in one rule is that caller's error; the record and its neighbours go on."""

    def broken(value: Scope) -> Change[None]:
        raise ZeroDivisionError(value.id)

    async with run_fleet(web_scope()) as fleet:
        answers = await asyncio.gather(
            fleet.scopes.apply("web", broken),
            fleet.scopes.apply("web", lambda value: add_vm(value, vm("web-6"), by="test", now=TEN)),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [ZeroDivisionError, type(None)]
        assert fleet.replica.scope("web").vm("web-6").name == "web-6"


async def test_refusal_is_freed_without_garbage_collection() -> None:
    """Its stack, which has the error itself, is removed. Guests are refused a hundred times a second."""
    async with run_fleet(web_scope()) as fleet:
        with pause_gc():
            freed: list[weakref.ref[ScopeEventNotFound]] = []
            try:
                await fleet.events.approve("web", "web-1", ["FFFFFFFF-0000-4000-8000-000000000000"])
            except ScopeEventNotFound as refusal:
                freed.append(weakref.ref(refusal))
            await asyncio.sleep(0)  # the event loop itself refers to the future that it has just resolved
            assert [error() for error in freed] == [None]


async def test_caller_reads_its_own_writes() -> None:
    """When a command returns, the replica has its outcome."""
    async with run_fleet(web_scope()) as fleet:
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        assert [event.vms for event in fleet.replica.scope("web").events] == [("web-0",)]


async def test_conflict_with_another_process_is_decided_again_on_the_newer_value() -> None:
    """The save of another process is kept, and our command applies to it."""
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        record = await store.load(WEB)
        assert record is not None
        theirs = change_scope(
            msgspec.json.decode(record.value, type=Scope),
            fleet.scopes.rule_context,
            by="other",
            now=TEN,
            approval=ApprovalRule.ALL,
        )
        saving = fleet.scopes.apply("web", lambda value: add_vm(value, vm("web-6"), by="test", now=TEN))
        await asyncio.gather(
            store.save(WEB, msgspec.json.encode(theirs.scope), theirs.entries, expected=record.revision), saving
        )
        saved = fleet.replica.scope("web")
        assert (saved.approval, saved.vm("web-6").name) == (ApprovalRule.ALL, "web-6")
        assert [row.entry.n for row in await read_journal(store, WEB)] == [1, 2, 3]


async def test_nothing_changes_when_the_store_cannot_save() -> None:
    """A full disk refuses the command; the replica still shows what is saved, and it works again later."""
    store = FailingStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        store.full = True
        with pytest.raises(SaveFailed, match="no space left"):
            await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        assert fleet.replica.scope("web").events == ()
        store.full = False
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        assert len(fleet.replica.scope("web").events) == 1


@pytest.mark.parametrize("is_saved", [False, True])
async def test_unknown_outcome_is_reported_as_such_and_becomes_visible_if_it_was_saved(*, is_saved: bool) -> None:
    """It is neither confirmed nor refused. If it was saved, replica and observers get it from the store's watch."""
    store = UnsureStore()
    store.saves = is_saved
    async with run_fleet(web_scope(), store=store) as fleet:
        observed: list[int] = []
        fleet.scopes.add_observers(lambda change: observed.append(len(change.after.events) if change.after else 0))
        store.is_unsure = True
        with pytest.raises(OutcomeUnknown) as unknown:
            await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        assert (unknown.value.code, unknown.value.reason) == ("outcome-unknown", "disk I/O error")
        store.is_unsure = False
        if is_saved:
            await until(lambda: bool(observed))
        assert (len(fleet.replica.scope("web").events), observed) == ((1, [1]) if is_saved else (0, []))


async def test_command_that_changes_nothing_is_not_saved() -> None:
    """A repeated approval costs no write."""
    store = FailingStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        ((_, event),) = await fleet.events.schedule(schedule_request(EventType.FREEZE, "web-0"))
        await fleet.holds.set(by="test", reason="so that it stays Scheduled")
        await fleet.events.approve("web", "web-0", [event])
        before = store.saves
        await fleet.events.approve("web", "web-1", [event])
        assert store.saves == before


async def test_cancelled_caller_does_not_affect_others() -> None:
    """A cancelled caller leaves the queue in order."""
    async with run_fleet(web_scope()) as fleet:
        gone = asyncio.ensure_future(fleet.scopes.apply("web", approve_nothing))
        stays = asyncio.ensure_future(
            fleet.scopes.apply("web", lambda value: add_vm(value, vm("web-6"), by="t", now=TEN))
        )
        await asyncio.sleep(0)
        gone.cancel()
        await stays
        assert gone.cancelled()
        assert fleet.replica.scope("web").vm("web-6").name == "web-6"


def approve_nothing(value: Scope) -> Change[None]:
    """A command without effect."""
    return Change(value, (), None)


async def test_scope_can_be_created_again_after_removal() -> None:
    """Creating needs absence; a removed scope is gone from the replica and its name is free."""
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        with pytest.raises(ScopeExists):
            await fleet.inventory.add_scope(web_scope(), by="test")
        await fleet.scopes.apply("web", lambda value: remove_scope(value, by="test", now=TEN))
        with pytest.raises(ScopeNotFound):
            await fleet.events.approve("web", "web-0", [])
        await fleet.inventory.add_scope(web_scope(), by="test")
        assert [row.entry.kind for row in await read_journal(store, WEB)] == [
            EntryKind.SCOPE_CREATED,
            EntryKind.SCOPE_REMOVED,
            EntryKind.SCOPE_CREATED,
        ]
        assert len(fleet.replica.scope("web").roster) == 6


async def test_scope_created_and_removed_in_one_batch_has_both_in_its_journal() -> None:
    """Two commands of one batch that leave nothing are saved one after the other."""
    store = MemoryStore()
    async with run_fleet(store=store) as fleet:
        await asyncio.gather(
            fleet.inventory.add_scope(web_scope(), by="test"),
            fleet.scopes.apply("web", lambda value: remove_scope(value, by="test", now=TEN)),
        )
        assert list(fleet.replica.views()) == []
    assert [row.entry.kind for row in await read_journal(store, WEB)] == [
        EntryKind.SCOPE_CREATED,
        EntryKind.SCOPE_REMOVED,
    ]


async def test_request_over_several_scopes_changes_none_if_one_refuses() -> None:
    """All scopes are asked before the first is changed."""
    spare = scope("spare", vm("spare-0"), low_priority=True)
    async with run_fleet(web_scope(), spare) as fleet:
        with pytest.raises(Exception, match="regular priority"):
            await fleet.events.schedule(schedule_request(EventType.PREEMPT, "spare-0", "web-0"))
        assert [view.scope.events for view in fleet.replica.views() if view.scope] == [(), ()]


async def test_approval_reaches_its_own_scope_only() -> None:
    """A VM cannot approve another scope's event."""
    async with run_fleet(web_scope(), scope("other", vm("other-0"))) as fleet:
        ((_, event),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        with pytest.raises(ScopeEventNotFound):
            await fleet.scopes.apply(
                "other", lambda value: approve(value, "other-0", [event], fleet.scopes.rule_context, now=TEN)
            )
        assert fleet.events.find(event)[1].state is State.SCHEDULED


HOLD = RecordKey(RecordKind.FLEET, "hold")


class Counter(msgspec.Struct, frozen=True):
    """A record for tests of the loop itself."""

    value: int


class Order:
    """Notes what it sees, under its own name."""

    def __init__(self, name: str, seen: list[tuple[str, RecordChange[Counter]]]) -> None:
        self._name = name
        self._seen = seen

    def __call__(self, change: RecordChange[Counter]) -> None:
        self._seen.append((self._name, change))


@asynccontextmanager
async def run_loops(
    store: MemoryStore, *, follows: bool = True, max_items: int | None = None
) -> AsyncIterator[tuple[MainLoop, RecordLoop[Counter], RecordLoop[Counter]]]:
    """Run a main loop with two kinds of records: tokens, and leases on which they rest."""
    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(Counter).decode
    async with store.watch() as changes, tasks_until_exit() as tasks:
        main_loop = MainLoop(store, tasks, on_followed=lambda: None)
        codec, share = RecordCodec(RecordKind.TOKEN, encode, decode), FairShare(max_items=max_items)
        tokens = main_loop.add(codec, RecordTable[Counter](), fair_share=share)
        leases = main_loop.add(RecordCodec(RecordKind.LEASE, encode, decode), RecordTable[Counter]())
        await main_loop.fill(changes)
        if follows:
            tasks.create_task(main_loop.follow(changes))
        yield main_loop, tokens, leases


def count_up(value: Counter | None) -> Decision[Counter, int]:
    """Count up from zero."""
    number = 1 if value is None else value.value + 1
    return Decision(Counter(number), (), number)


async def test_decision_is_made_again_on_the_newest_value_of_its_guard() -> None:
    """Another process has changed the guard, and the watch has not told of it yet."""
    store = MemoryStore()
    async with run_loops(store, follows=False) as (_, tokens, leases):
        await leases.apply("clock", count_up)
        seen: list[int | None] = []

        def copy_lease(_: Counter | None) -> Decision[Counter, None]:
            lease, revision = leases.newest("clock")
            seen.append(lease.value if lease is not None else None)
            return Decision(lease, (), None, {leases.key("clock"): revision})

        await asyncio.gather(
            store.save(leases.key("clock"), b'{"value":7}', (), expected=leases.revision_of("clock")),
            tokens.apply("one", copy_lease),
        )
        assert seen == [1, 7]
        assert tokens.newest("one")[0] == leases.newest("clock")[0] == Counter(7)


async def test_decision_is_made_again_when_its_guard_is_deleted_or_comes_to_exist() -> None:
    store = MemoryStore()
    async with run_loops(store) as (_, tokens, leases):
        key = leases.key("clock")

        def note_lease(_: Counter | None) -> Decision[Counter, None]:
            lease, revision = leases.newest("clock")
            return Decision(Counter(-1) if lease is None else lease, (), None, {key: revision})

        await asyncio.gather(store.save(key, b'{"value":3}', (), expected=None), tokens.apply("one", note_lease))
        assert tokens.newest("one")[0] == Counter(3)
        revision = leases.revision_of("clock")
        await asyncio.gather(store.save(key, None, (), expected=revision), tokens.apply("two", note_lease))
        assert tokens.newest("two")[0] == Counter(-1)


class SlowStore(MemoryStore):
    """A store whose loads return what they have read when the test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.loading = asyncio.Event()
        self.may_return = asyncio.Event()

    async def load(self, key: RecordKey) -> Record | None:
        """Read, and wait."""
        record = await super().load(key)
        self.loading.set()
        await self.may_return.wait()
        return record


async def test_late_load_does_not_revive_a_deleted_record() -> None:
    """The watch reports the deletion after the load has read the record, and before it returns."""
    store = SlowStore()
    async with run_loops(store, follows=False) as (main_loop, _, leases):
        key = leases.key("clock")
        revision = await store.save(key, b'{"value":7}', (), expected=None)
        loading = asyncio.ensure_future(leases.catch_up("clock", revision))
        await store.loading.wait()
        main_loop.take_in(Deleted(key, await store.save(key, None, (), expected=revision)))
        store.may_return.set()
        await loading
        assert leases.newest("clock") == (None, None)
        assert await leases.apply("clock", count_up) == 1


async def test_loaded_record_counts_for_the_position() -> None:
    store = MemoryStore()
    async with run_loops(store, follows=False) as (main_loop, _, leases):
        revision = await store.save(leases.key("clock"), b'{"value":7}', (), expected=None)
        await leases.catch_up("clock", revision)
        assert main_loop.newest == revision


async def test_batch_is_decided_again_if_a_guard_changes_within_it() -> None:
    """No save rests on two revisions of one record."""
    async with run_loops(MemoryStore()) as (_, tokens, leases):
        decided: list[tuple[str, int | None]] = []

        def rest_on(name: str, revision: int | None) -> Decision[Counter, None]:
            decided.append((name, revision))
            return Decision(Counter(0), (), None, {leases.key("clock"): revision})

        def second(_: Counter | None) -> Decision[Counter, None]:
            is_first_time = len(decided) == 1
            return rest_on("second", 1 if is_first_time else None)

        await asyncio.gather(tokens.apply("one", lambda _: rest_on("first", None)), tokens.apply("one", second))
        assert decided == [("first", None), ("second", 1), ("first", None), ("second", None)]


async def test_decision_waits_for_a_pending_save_of_its_guard_in_this_process() -> None:
    """It would be refused; so it is decided again once that is saved, and needs one save."""
    store = FailingStore()
    async with run_loops(store) as (_, tokens, leases):

        def copy_lease(_: Counter | None) -> Decision[Counter, None]:
            lease, revision = leases.newest("clock")
            return Decision(lease or Counter(-1), (), None, {leases.key("clock"): revision})

        await asyncio.gather(leases.apply("clock", count_up), *(tokens.apply(f"t-{n}", copy_lease) for n in range(9)))
        assert [tokens.newest(f"t-{n}")[0] for n in range(9)] == [Counter(1)] * 9
        assert store.saves == 10


async def test_record_that_is_not_followed_cannot_be_a_guard() -> None:
    store = MemoryStore()
    await store.save(HOLD, b"{}", (), expected=None)
    async with run_loops(store) as (_, tokens, _):
        with pytest.raises(SaveFailed, match="fleet/hold cannot be a guard"):
            await tokens.apply("one", lambda _: Decision(Counter(1), (), None, {HOLD: None}))
        assert await tokens.apply("one", count_up) == 1


async def test_batch_with_more_guards_than_a_save_may_name_is_saved_in_parts() -> None:
    """Twenty commands wait for one record, and each rests on another one."""
    store = FailingStore()

    def rest_on(guard: RecordKey) -> Callable[[Counter | None], Decision[Counter, int]]:
        def command(value: Counter | None) -> Decision[Counter, int]:
            decision = count_up(value)
            return Decision(decision.value, (), decision.result, {guard: None})

        return command

    guards = [RecordKey(RecordKind.LEASE, f"lease-{n}") for n in range(MAX_GUARDS + 4)]
    async with run_loops(store) as (_, tokens, _):
        results = await asyncio.gather(*(tokens.apply("one", rest_on(guard)) for guard in guards))
        assert results == list(range(1, len(guards) + 1))
        assert tokens.newest("one")[0] == Counter(len(guards))
        assert store.saves == 2


async def test_error_while_saving_reaches_its_callers_and_the_loop_continues() -> None:
    """A value that cannot be encoded is no reason to end the service."""
    broken = Counter(object())  # type: ignore[arg-type]  # it cannot be encoded
    async with run_loops(MemoryStore()) as (_, tokens, _):
        with pytest.raises(SaveFailed, match="token/one could not be saved: TypeError"):
            await tokens.apply("one", lambda _: Decision(broken, (), None))
        assert await tokens.apply("one", count_up) == 1


async def test_saved_command_is_not_reported_as_refused_with_the_next_one() -> None:
    """A record comes and goes in one batch, and only the first of both could be saved."""
    store, entry = FailingStore(), Entry(n=1, at=TEN, kind=EntryKind.HELD, by="test")

    def create(_: Counter | None) -> Decision[Counter, object]:
        return Decision(Counter(1), (entry,), 1)

    def delete(_: Counter | None) -> Decision[Counter, object]:
        store.full = store.saves == 1
        return Decision(None, (entry,), "deleted")

    async with run_loops(store) as (_, tokens, _):
        created, deleted = await asyncio.gather(
            tokens.apply("one", create), tokens.apply("one", delete), return_exceptions=True
        )
        assert (created, type(deleted)) == (1, SaveFailed)
        assert tokens.newest("one")[0] == Counter(1)


async def test_observers_see_a_saved_change_in_order_and_before_the_reply() -> None:
    async with run_loops(MemoryStore()) as (_, tokens, _):
        seen: list[tuple[str, RecordChange[Counter]]] = []
        tokens.observers.extend(Order(name, seen) for name in ("first", "second"))
        assert await tokens.apply("one", count_up) == 1
        change = RecordChange("one", None, Counter(1), [])
        assert seen == [("first", change), ("second", change)]
        assert tokens.newest("one")[0] == Counter(1)


async def test_change_of_another_process_is_observed_once_and_is_not_ours() -> None:
    store = MemoryStore()
    async with run_loops(store) as (_, tokens, _):
        seen: list[tuple[str, RecordChange[Counter]]] = []
        tokens.observers.append(Order("only", seen))
        await tokens.apply("one", count_up)
        revision = await store.save(tokens.key("one"), b'{"value":5}', (), expected=tokens.revision_of("one"))
        await until(lambda: tokens.revision_of("one") == revision)
        assert [change for _, change in seen] == [
            RecordChange("one", None, Counter(1), []),
            RecordChange("one", Counter(1), Counter(5), None),
        ]


async def test_drain_returns_when_every_command_that_waits_has_its_reply() -> None:
    async with run_loops(MemoryStore()) as (_, tokens, _):
        waiting = [asyncio.ensure_future(tokens.apply(f"t-{n}", count_up)) for n in range(5)]
        await asyncio.sleep(0)
        await tokens.drain()
        assert [one.done() for one in waiting] == [True] * 5
        assert tokens.busy == 0


class HeldLeaseStore(InterceptedStore):
    """A store that holds back saves of leases."""

    def __init__(self) -> None:
        super().__init__()
        self.may_save = asyncio.Event()

    async def intercept(self, key: RecordKey, save: Save) -> int:
        """Save, a lease only when it may be saved."""
        if key.kind is RecordKind.LEASE:
            await self.may_save.wait()
        return await save()


async def test_records_that_wait_for_the_same_guard_are_decided_in_slices() -> None:
    store, rounds, decided = HeldLeaseStore(), Rounds(), list[int]()

    def count(_: Counter | None) -> Decision[Counter, None]:
        decided.append(rounds.number)
        return Decision(Counter(1), (), None, leases.guards("clock"))

    async with run_loops(store, max_items=4) as (_, tokens, leases):
        saving = leases.submit("clock", count_up)
        await until(lambda: bool(leases.saves))
        waiting = [tokens.submit(f"t-{n}", count) for n in range(40)]
        await until(lambda: len(decided) == 40)
        decided.clear()
        store.may_save.set()
        await asyncio.gather(saving, *waiting)
    assert max(collections.Counter(decided).values()) <= 4


async def test_newer_value_that_overtakes_the_reply_of_a_save_is_observed_last() -> None:
    """Another process saves, and the watch brings that, before our own save returns."""

    class OvertakenStore(InterceptedStore):
        async def intercept(self, key: RecordKey, save: Save) -> int:
            revision = await save()
            main_loop.take_in(Record(key, b'{"value":5}', revision + 1))
            return revision

    async with run_loops(OvertakenStore(), follows=False) as (main_loop, tokens, _):
        seen: list[tuple[str, RecordChange[Counter]]] = []
        tokens.observers.append(Order("only", seen))
        await tokens.apply("one", count_up)
        assert [change for _, change in seen] == [
            RecordChange("one", None, Counter(5), None),
            RecordChange("one", None, Counter(5), []),
        ]


async def test_callers_are_cancelled_if_an_observer_fails() -> None:
    """The service ends with the error, and no caller waits for a reply for ever."""

    later: list[asyncio.Future[int]] = []

    async def run() -> None:
        async with run_loops(MemoryStore()) as (_, tokens, _):

            def fail(_: RecordChange[Counter]) -> None:
                later.append(tokens.submit("one", count_up))
                raise ZeroDivisionError

            tokens.observers.append(fail)
            later.append(tokens.submit("one", count_up))
            await asyncio.Event().wait()

    with pytest.raises(ZeroDivisionError):
        await run()
    assert [caller.cancelled() for caller in later] == [True, True]


async def test_callers_are_cancelled_if_the_service_stops_before_their_turn() -> None:
    async with run_loops(MemoryStore()) as (_, tokens, _):
        waiting = [tokens.submit(id_, count_up) for id_ in ("one", "two")]
    late = tokens.submit("one", count_up)
    await until(lambda: all(caller.cancelled() for caller in (*waiting, late)))
    assert tokens.busy == 0
