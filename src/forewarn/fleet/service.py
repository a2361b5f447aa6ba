"""The fleet service: use cases of guests and operators on top of the replica, the record queues, the scheduler and the
platform.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import msgspec

from forewarn.clock import Clock, ManualClock, SystemClock
from forewarn.core import operations
from forewarn.core.approval import approve
from forewarn.core.change import Change
from forewarn.core.enablement import SEEN_SAVE_INTERVAL
from forewarn.core.event import Event
from forewarn.core.fault import Fault, add_fault_entry
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.journal import CAMPAIGN_CHANGE_KINDS, EVENT_CHANGE_KINDS, Entry, EntryKind
from forewarn.core.lifecycle import wake_at
from forewarn.core.policy import Policy, RuleContext
from forewarn.core.schedule import ScheduleRequest, schedule
from forewarn.core.scope import Hold, Scope, migrate
from forewarn.core.vm import Vm
from forewarn.fleet import fleet_state
from forewarn.fleet.campaign.service import Campaigns
from forewarn.fleet.errors import EventNotFound, ScopeNotFound
from forewarn.fleet.event_loop import SLICE_ITEMS, FairShare, tasks_until_exit
from forewarn.fleet.events import Events
from forewarn.fleet.fleet_state import FLEET_STATE, FleetState
from forewarn.fleet.fleet_state_record import FleetStateRecord
from forewarn.fleet.health import HealthCheck
from forewarn.fleet.idempotency import IdempotentScopes
from forewarn.fleet.impacts import Impacts
from forewarn.fleet.inventory import Inventory
from forewarn.fleet.journal import DEFAULT_RETENTION, JournalStreams, prune_journal
from forewarn.fleet.last_seen import LastSeenTracker, new_epoch
from forewarn.fleet.manual_time import ClockChange, ManualTime
from forewarn.fleet.metrics import FleetCounts, FleetMetrics, MetricsStore
from forewarn.fleet.outages import OutageTracker
from forewarn.fleet.queue import Decision, RecordCodec, RecordQueues
from forewarn.fleet.replica import Replica, ScopeView
from forewarn.fleet.scheduler import ScopeTicker, TimerHeap
from forewarn.fleet.targets import collect_scheduled, select_vms, split_by_scope
from forewarn.fleet.timers import Timers
from forewarn.fleet.tokens import Tokens
from forewarn.platform.port import GateChecker, Notifier, NullGateChecker, NullNotifier, Platform
from forewarn.store.port import (
    Deleted,
    JournalQuery,
    JournalRow,
    Record,
    RecordKind,
    Retention,
    SnapshotEnd,
    Store,
    WatchItem,
)

R = TypeVar("R")

_encode_scope = msgspec.json.Encoder().encode
_read_scope = msgspec.json.Decoder(Scope).decode


def _decode_scope(value: bytes) -> Scope:
    return migrate(_read_scope(value))


class Fleet:
    """Everything that can be asked of the fleet. Made by `Fleet.run`, lives as long as that context."""

    def __init__(
        self,
        store: Store,
        platform: Platform,
        clock: Clock,
        policy: Policy,
        tasks: asyncio.TaskGroup,
        wall_clock: Clock,
        checker: GateChecker,
        notifier: Notifier,
    ) -> None:
        self.replica = Replica()
        self.clock = clock
        self.metrics = FleetMetrics()
        self.counts = FleetCounts()
        store = MetricsStore(store, self.metrics)
        self.health = HealthCheck(store)
        self._store = store
        self._tasks = tasks
        self._state_record = FleetStateRecord(store, tasks, policy, on_hold=self._wake_all)
        self._scopes = RecordQueues(
            store,
            tasks,
            RecordCodec(RecordKind.SCOPE, self.replica.newest, self._update_scope, _encode_scope, _decode_scope),
            basis=lambda: self.rule_context,
            on_saved=self._on_saved,
            on_idle=self._forget_if_gone,
            fair_share=self._new_fair_share(),
        )
        self._gone: dict[str, int] = {}
        """The scopes of which the store has told that they are gone, and as of which revision."""
        self._outages = OutageTracker(self._state_record, clock)
        self._ticker = ScopeTicker(
            self, tasks, before_tick=self._outages.record_outage, evaluate=self._evaluate, set_timer=self._set_timer
        )
        self._timer_heap = TimerHeap(clock, self._ticker.wake)
        self._impacts = Impacts(platform, self, tasks, wait_idle=self._ticker.wait_idle)
        self._last_seen = LastSeenTracker(clock, tasks, self.apply)
        self.timers = Timers(clock, tasks)
        self._event_changes = 0
        self._manual_time = ManualTime(
            clock,
            save=self._save_clock,
            waiting=self._count_clock_waiters,
            changes=lambda: self._event_changes,
            may_change=lambda: self.counts.events.total() > 0 or self.campaigns.is_armed,
        )
        idempotent = IdempotentScopes(self, store)
        self._idempotent = idempotent
        self.events = Events(self, idempotent)
        self.inventory = Inventory(self._scopes, self.replica, idempotent, clock, lambda: self.rule_context)
        self.tokens = Tokens(store, tasks, clock=clock, wall_clock=wall_clock)
        self.campaigns = Campaigns(self, store, tasks, checker=checker, notifier=notifier)
        self.feeds = JournalStreams(store, tasks)
        self._listeners: list[Callable[[ScopeView], None]] = []
        self._background_tasks: set[asyncio.Task[None]] = set()
        self._is_live = False

    @classmethod
    @asynccontextmanager
    async def run(
        cls,
        *,
        store: Store,
        platform: Platform,
        clock: Clock,
        policy: Policy,
        retention: Retention = DEFAULT_RETENTION,
        wall_clock: Clock | None = None,
        checker: GateChecker | None = None,
        notifier: Notifier | None = None,
    ) -> AsyncIterator["Fleet"]:
        """Fill the replica from the store, go on with what is due, begun or half done, and keep the clock going.

        `wall_clock` is the clock by which tokens expire; it is real though `clock` may be manual. `checker` asks the
        gates of
        campaigns, and `notifier` tells others of them.
        """
        async with store.watch() as changes, tasks_until_exit() as tasks:
            gate_checker, notifier_or_null = checker or NullGateChecker(), notifier or NullNotifier()
            fleet = cls(
                store, platform, clock, policy, tasks, wall_clock or SystemClock(), gate_checker, notifier_or_null
            )
            await fleet._fill(changes)
            fleet._credit_last_seen(fleet._state_record.state.alive_at)
            await fleet._outages.start()
            tasks.create_task(fleet._follow(changes), name="follow the store")
            fleet._go_live()
            tasks.create_task(prune_journal(store, retention, clock), name="prune the journal")
            tasks.create_task(fleet._outages.run(), name="heartbeat")
            try:
                yield fleet
            finally:
                fleet._timer_heap.stop()
                fleet.campaigns.stop()
            await fleet._outages.stop()

    def _on_saved(self, old: Scope | None, new: Scope | None, entries: Sequence[Entry]) -> None:
        self.metrics.observe_save(old, new, entries, self.rule_context)
        self._event_changes += sum(entry.kind in EVENT_CHANGE_KINDS for entry in entries)

    # Reading the store into the replica.

    async def _fill(self, changes: AsyncIterator[WatchItem]) -> None:
        async for change in changes:
            if isinstance(change, SnapshotEnd):
                return
            self._apply_change(change)

    async def _follow(self, changes: AsyncIterator[WatchItem]) -> None:
        async for change in changes:
            self._apply_change(change)
            self.feeds.wake()

    def _apply_change(self, change: WatchItem) -> None:
        """Take what the store gives, unless it is known already: most of it is our own."""
        if isinstance(change, SnapshotEnd):
            return
        kind, id_ = change.key
        if kind is RecordKind.SCOPE:
            self._apply_scope_change(id_, change)
        elif change.key == FLEET_STATE and isinstance(change, Record):
            self._state_record.apply_change(change)
        elif kind is RecordKind.TOKEN:
            self.tokens.apply_change(change)
        elif kind is RecordKind.CAMPAIGN:
            self.campaigns.apply_change(change)

    def _apply_scope_change(self, id_: str, change: Record | Deleted) -> None:
        if self.replica.is_newer(id_, change.revision):
            self._update_scope(
                id_, _decode_scope(change.value) if isinstance(change, Record) else None, change.revision
            )
        if isinstance(change, Deleted):
            self._gone[id_] = change.revision
            self._forget_if_gone(id_)

    def _forget_if_gone(self, id_: str) -> None:
        """Keep nothing of a scope that is gone once nothing older can come: from the store, or from a command."""
        if id_ in self._gone and not self._scopes.is_busy(id_):
            self.replica.forget(id_, self._gone.pop(id_))

    def _update_scope(self, id_: str, scope: Scope | None, revision: int) -> None:
        view = self.replica.update(id_, scope, revision)
        if view is None:
            return
        self.counts.update(id_, scope)
        if self._is_live:
            self._evaluate(view)

    def _credit_last_seen(self, alive_at: datetime | None) -> None:
        """Assume the latest request that may have come without being saved: no scope is switched off too early."""
        for view in self.replica.views():
            if view.scope is not None and view.scope.seen_at is not None and alive_at is not None:
                view.credited_at = max(view.scope.seen_at, min(view.scope.seen_at + SEEN_SAVE_INTERVAL, alive_at))

    def _go_live(self) -> None:
        self._is_live = True
        self.campaigns.go_live()
        for view in self.replica.views():
            self._evaluate(view)

    def _evaluate(self, view: ScopeView) -> None:
        """Act on a scope's state: set its timer, start its impacts, notify the observers."""
        self._set_timer(view)
        self._impacts.evaluate(view)
        self.campaigns.evaluate(view)
        for listener in self._listeners:
            listener(view)

    def _set_timer(self, view: ScopeView, ticked_at: datetime | None = None) -> None:
        """Have time act on a scope when something in it is due. Whatever was due at `ticked_at` is dealt with."""
        scope = view.scope
        moment = wake_at(scope, self.rule_context, seen_at=view.alive_at) if scope is not None else None
        is_past = moment is not None and ticked_at is not None and moment <= ticked_at
        self._timer_heap.set(view.id, None if is_past else moment)

    @property
    def rule_context(self) -> RuleContext:
        """What holds outside the scopes: the policy, a hold on the whole fleet, the outages."""
        return self._state_record.rule_context

    def use_policy(self, policy: Policy) -> None:
        """Let another policy hold from now on; every scope is looked at again."""
        self._state_record.set_policy(policy)
        self._wake_all(include_idle=True)

    @property
    def overdue(self) -> timedelta:
        """How long the scheduler is overdue with its earliest timer: zero as long as it runs."""
        return self._timer_heap.overdue()

    def on_change(self, listener: Callable[[ScopeView], None]) -> None:
        """Call the listener with the view of every scope that has changed, after the replica has taken it."""
        self._listeners.append(listener)

    def start_task(self, work: Coroutine[object, object, None], *, name: str) -> None:
        """Have work done that goes on though nobody waits for it, until the service ends. It must not raise."""
        task = self._tasks.create_task(work, name=name)
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)

    def cancel_tasks(self) -> None:
        """End the work that was begun: when the service ends, those who follow it must not be waited for."""
        for task in self._background_tasks:
            task.cancel()

    # Commands.

    async def apply(self, id_: str, rule: Callable[[Scope], Change[R]]) -> R:
        """Apply a rule to the newest value of a scope, save it, and return the rule's result."""

        def command(scope: Scope | None) -> Decision[Scope, R]:
            if scope is None:
                raise ScopeNotFound(id_)
            change = rule(scope)
            return Decision(change.scope, change.entries, change.result)

        return await self._scopes.apply(id_, command)

    async def approve(self, scope: str, vm: str, ids: Sequence[str], *, by: str | None = None) -> None:
        """Take a VM's approval of events of its own scope."""
        await self.apply(scope, lambda value: approve(value, vm, ids, self.rule_context, now=self.clock.now(), by=by))

    async def schedule(self, request: ScheduleRequest) -> tuple[tuple[str, str], ...]:
        """Make the events of a request in all scopes of its VMs, and return pairs of scope and event.

        All scopes are asked before the first is changed. If one of them has changed by the time it is its turn, and
        refuses, PartialSchedule says what was made in the others.
        """
        requests = split_by_scope(self.replica, request, now=self.clock.now())
        for scope, part in requests.items():
            schedule(self.replica.scope(scope), part, self.rule_context, now=self.clock.now())
        results = await asyncio.gather(
            *(self._schedule(scope, part) for scope, part in requests.items()), return_exceptions=True
        )
        return collect_scheduled(dict(zip(requests, results, strict=True)))

    async def _schedule(self, scope: str, request: ScheduleRequest) -> tuple[str, ...]:
        return await self.apply(scope, lambda value: schedule(value, request, self.rule_context, now=self.clock.now()))

    # Finding.

    def find_event(self, id_: str) -> tuple[ScopeView, Event]:
        """Find an open event in any scope."""
        found = self.replica.find_event(id_)
        if found is None:
            raise EventNotFound(id_)
        return found

    def select(
        self,
        *,
        vms: Sequence[str] = (),
        host: str | None = None,
        scope: str | None = None,
        update_domain: int | None = None,
    ) -> tuple[str, ...]:
        """Return the full names of the VMs that are meant: by name, host, scope, or update domain of a scope."""
        return select_vms(self.replica, vms=vms, host=host, scope=scope, update_domain=update_domain)

    def hosts(self) -> Mapping[str, Sequence[tuple[ScopeView, Vm]]]:
        """Return the hosts on which VMs are, each with these VMs."""
        return self.replica.hosts()

    def last_seen(self, view: ScopeView) -> datetime | None:
        """Return when a VM of the scope last made a valid request, as far as it is known."""
        known = (view.seen_at, view.scope.seen_at if view.scope is not None else None)
        return max(filter(None, known), default=None)

    def record_request(self, view: ScopeView) -> Awaitable[None] | None:
        """Take note of a valid request from a scope. What is returned, if anything, is awaited before the answer."""
        return self._last_seen.record_request(view)

    # What goes on by itself.

    def _wake_all(self, *, include_idle: bool = False) -> None:
        if self._is_live:
            self.metrics.released_at = self.clock.now()
            self.campaigns.reevaluate()
            self._ticker.wake_all(self._new_fair_share(), include_idle=include_idle)

    def _new_fair_share(self) -> FairShare:
        """Return turns to take. By a manual clock everything happens in the same order, on whatever machine."""
        return FairShare(max_items=SLICE_ITEMS if isinstance(self.clock, ManualClock) else None)

    # The journal.

    async def read_journal(self, query: JournalQuery) -> list[JournalRow]:
        """Return a page of the journal; `forewarn.fleet.journal` builds the query of a request."""
        return await self._store.journal(query)

    def follow_journal(self, after: int | None = None) -> AsyncGenerator[JournalRow, None]:
        """Yield every row of the journal after a position, then each new one; None: from now on."""
        return self.feeds.rows(after)

    async def read_changes(self, after: int, limit: int) -> list[JournalRow]:
        """Return the changes of events and campaigns after a position of the journal, the oldest first."""
        kinds = tuple(EVENT_CHANGE_KINDS | CAMPAIGN_CHANGE_KINDS)
        return await self._store.journal(JournalQuery(after=after, kinds=kinds, limit=limit))

    async def journal_end(self) -> int:
        """Return the position of the journal's newest line; 0: it has none."""
        rows = await self._store.journal(JournalQuery(newest_first=True, limit=1))
        return rows[0].position if rows else 0

    async def record_fault(self, entry_kind: EntryKind, fault: Fault, *, by: str, why: str = "") -> None:
        """Add a journal entry on a fault: to the VM's scope, or to the fleet where it affects all VMs."""
        now = self.clock.now()
        if fault.vm is None:
            await self._state_record.apply(
                partial(fleet_state.record_fault, entry_kind=entry_kind, fault=fault, by=by, why=why, now=now)
            )
        else:
            scope = fault.vm.rpartition("/")[0]
            await self.apply(scope, lambda value: add_fault_entry(value, entry_kind, fault, by=by, why=why, now=now))

    # Manual time.

    async def advance(self, by: timedelta, *, who: str = "operator") -> datetime:
        """Move the manual clock; everything that is due on the way happens in order, and is over on return."""
        return await self._manual_time.advance(by, who=who)

    async def advance_to_next(self, *, who: str = "operator") -> datetime:
        """Move the manual clock until an event changes; where time brings no such change, it stays."""
        return await self._manual_time.advance_to_next(who=who)

    async def _save_clock(self, moment: datetime, move: ClockChange | None) -> None:
        if move is None:
            await self._state_record.apply(partial(fleet_state.pass_clock, to=moment))
        else:
            await self._state_record.apply(partial(fleet_state.move_clock, to=moment, by=move.by, why=move.why))

    def _count_clock_waiters(self) -> int | None:
        """Return how many of our tasks wait for the clock if all of them do, None if something else is under way."""
        if (
            self._scopes.busy
            or self._state_record.busy
            or self.tokens.busy
            or self._ticker.busy
            or self._last_seen.busy
        ):
            return None
        if self.campaigns.busy:
            return None
        if self.timers.running:
            return None
        armed = self._timer_heap.is_armed + self.campaigns.is_armed + self.timers.armed
        return self._impacts.in_flight + armed

    # The record that is not a scope's.

    @property
    def is_filled(self) -> bool:
        """Whether a first fleet file has been taken to its end."""
        return self._state_record.state.filled

    async def mark_filled(self) -> None:
        """Remember that the first fleet file has been taken to its end."""
        await self._state_record.apply(fleet_state.mark_filled)

    @property
    def ports(self) -> Mapping[str, int]:
        """The guest ports of the VMs, given once and for ever."""
        return self._state_record.state.ports

    async def assign_ports(self, ports: Mapping[str, int]) -> None:
        """Give ports to VMs; one that belongs or belonged to another VM is refused."""
        await self._state_record.apply(partial(fleet_state.assign_ports, ports=ports))

    @property
    def current_hold(self) -> Hold | None:
        """The hold on the whole fleet, if there is one."""
        return self._state_record.state.hold

    async def hold(
        self, *, by: str, reason: str, scope: str | None = None, idempotency_key: IdempotencyKey | None = None
    ) -> None:
        """Let nothing planned start, anywhere or in one scope, until `release`.

        On return, what was about to start has started.
        """
        if scope is not None:
            await self._idempotent.apply(
                scope, lambda value: operations.hold(value, by=by, reason=reason, now=self.clock.now()), idempotency_key
            )
            return
        await self._apply_once(
            partial(fleet_state.set_hold, by=by, reason=reason, now=self.clock.now()), idempotency_key
        )
        await self._scopes.wait_saved()

    async def release(
        self, *, by: str, why: str = "", scope: str | None = None, idempotency_key: IdempotencyKey | None = None
    ) -> None:
        """End a hold, on the whole fleet or on one scope; what has become due meanwhile starts."""
        if scope is not None:
            await self._idempotent.apply(
                scope,
                lambda value: operations.release(value, self.rule_context, by=by, now=self.clock.now(), why=why),
                idempotency_key,
            )
            return
        await self._apply_once(partial(fleet_state.clear_hold, by=by, why=why, now=self.clock.now()), idempotency_key)

    async def _apply_once(
        self, rule: Callable[[FleetState], Decision[FleetState, None]], idempotency_key: IdempotencyKey | None
    ) -> None:
        await self._state_record.apply(
            lambda state: fleet_state.apply_once(state, idempotency_key, rule, now=self.clock.now())
        )

    # Chance.

    def new_id(self) -> str:
        """Return a new random id for a request."""
        return str(uuid.uuid4()).upper()

    def new_epoch(self) -> str:
        """Return a new random epoch for a scope."""
        return new_epoch()
