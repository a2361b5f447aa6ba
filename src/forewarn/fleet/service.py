"""The fleet service: builds the parts of a fleet over one store, and runs them.

`forewarn.fleet.main_loop` explains how the parts work together.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import msgspec

from forewarn.clock import Clock, SystemClock
from forewarn.core.approval import approve
from forewarn.core.change import Change
from forewarn.core.event import Event
from forewarn.core.fault import Fault, add_fault_entry
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.journal import CAMPAIGN_CHANGE_KINDS, EVENT_CHANGE_KINDS, EntryKind
from forewarn.core.policy import Policy, RuleContext
from forewarn.core.schedule import ScheduleRequest, schedule
from forewarn.core.scope import Hold, Scope, migrate
from forewarn.core.vm import Vm
from forewarn.fleet import fleet_state
from forewarn.fleet.campaign.service import CampaignDuty, Campaigns
from forewarn.fleet.duty import Duty
from forewarn.fleet.errors import EventNotFound
from forewarn.fleet.event_loop import tasks_until_exit
from forewarn.fleet.events import Events
from forewarn.fleet.fleet_state_record import FleetStateRecord
from forewarn.fleet.health import HealthCheck
from forewarn.fleet.hold_record import FleetHold, HoldRecord
from forewarn.fleet.holds import Holds
from forewarn.fleet.idempotency import IdempotentScopes
from forewarn.fleet.impacts import Impacts
from forewarn.fleet.inventory import Inventory
from forewarn.fleet.journal import DEFAULT_RETENTION, JournalPruner, JournalStreams
from forewarn.fleet.last_seen import LastSeenTracker, new_epoch
from forewarn.fleet.main_loop import MainLoop, RecordChange
from forewarn.fleet.manual_time import ManualTime
from forewarn.fleet.metrics import FleetCounts, FleetMetrics, MetricsObserver, MetricsStore
from forewarn.fleet.outages import OutageTracker
from forewarn.fleet.replica import LongPollObserver, ScopeView
from forewarn.fleet.scheduler import Scheduler
from forewarn.fleet.scopes import Scopes
from forewarn.fleet.targets import collect_scheduled, select_vms, split_by_scope
from forewarn.fleet.timers import Timers
from forewarn.fleet.tokens import Tokens
from forewarn.platform.port import GateChecker, Notifier, NullGateChecker, NullNotifier, Platform
from forewarn.store.port import (
    JournalQuery,
    JournalRow,
    Retention,
    Store,
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
        retention: Retention,
    ) -> None:
        self.clock = clock
        self.metrics = FleetMetrics()
        self.counts = FleetCounts()
        store = MetricsStore(store, self.metrics)
        self.health = HealthCheck(store)
        self._store = store
        self._tasks = tasks
        self.feeds = JournalStreams(store, tasks)
        loop = MainLoop(store, tasks, on_followed=self.feeds.wake)
        self._main_loop = loop
        self._state_record = FleetStateRecord(loop)
        self._hold_record = HoldRecord(loop)
        self.scopes = Scopes(loop, clock, policy, self._state_record, self._hold_record)
        self.replica = self.scopes.replica
        self._outages = OutageTracker(self.scopes, self._state_record)
        self.scheduler = Scheduler(self.scopes, loop, self._state_record, self._outages)
        self.impacts = Impacts(platform, self.scopes, loop, self.scheduler)
        self._last_seen = LastSeenTracker(self.scopes, tasks)
        self.timers = Timers(clock, tasks)
        idempotent = IdempotentScopes(self.scopes, store)
        self.events = Events(self.scopes, idempotent)
        self.inventory = Inventory(self.scopes, idempotent)
        self.holds = Holds(self._hold_record, self.scopes, idempotent)
        self.tokens = Tokens(loop, clock=clock, wall_clock=wall_clock)
        self.campaigns = Campaigns(self.scopes, loop, checker=checker, notifier=notifier)
        self.time = ManualTime(
            clock,
            self._state_record,
            self.metrics,
            self.counts,
            self.campaigns,
            [loop, self.scheduler, self.impacts, self._last_seen, self.timers],
        )
        self.duties: tuple[Duty, ...] = (
            self.scheduler,
            self.impacts,
            CampaignDuty(self.campaigns),
            JournalPruner(loop, retention, clock),
        )
        self.scopes.observers.extend(
            (
                self.scheduler,
                self.impacts,
                self.campaigns,
                MetricsObserver(self.metrics, self.counts, self.scopes),
                LongPollObserver(self.replica),
            )
        )
        self._hold_observer = HoldObserver(clock, self.metrics, self.campaigns, self.scheduler)
        self._hold_record.add_observers(self._hold_observer)
        self._background_tasks: set[asyncio.Task[None]] = set()

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
        has_duties: bool = True,
    ) -> AsyncIterator["Fleet"]:
        """Fill the replica from the store, take the duties, and go on with what is due, begun or half done.

        `wall_clock` is the clock by which tokens expire; it is real though `clock` may be manual. `checker` asks the
        gates of campaigns, and `notifier` tells others of them. Without duties, guests and operators are answered, and
        another process starts due events, runs campaigns and carries out impacts; `duties` can be started later.
        """
        async with store.watch() as changes, tasks_until_exit() as tasks:
            fleet = cls(
                store,
                platform,
                clock,
                policy,
                tasks,
                wall_clock or SystemClock(),
                checker or NullGateChecker(),
                notifier or NullNotifier(),
                retention,
            )
            await fleet._main_loop.fill(changes)
            tasks.create_task(fleet._main_loop.follow(changes), name="follow the store")
            if has_duties:
                await fleet.start_duties()
            try:
                yield fleet
            finally:
                for duty in fleet.duties:
                    duty.halt()
            await fleet._outages.stop()

    async def start_duties(self) -> None:
        """Take all duties."""
        for duty in self.duties:
            await duty.start()

    async def stop_duties(self) -> None:
        """Give all duties back. On return nothing of them is under way."""
        for duty in self.duties:
            await duty.stop()

    @property
    def rule_context(self) -> RuleContext:
        """What holds outside the scopes: the policy, a hold on the whole fleet, the outages."""
        return self.scopes.rule_context

    def use_policy(self, policy: Policy) -> None:
        """Let another policy hold from now on; every scope is looked at again."""
        self.scopes.policy = policy
        self._hold_observer.run(include_idle=True)

    @property
    def overdue(self) -> timedelta:
        """How long the scheduler is overdue with its earliest timer: zero as long as it runs."""
        return self.scheduler.overdue

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

        return await self.scopes.apply(id_, rule)

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
        return self._last_seen.last_seen(view)

    def record_request(self, view: ScopeView) -> Awaitable[None] | None:
        """Take note of a valid request from a scope. What is returned, if anything, is awaited before the answer."""
        return self._last_seen.record_request(view)

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
        return await self.time.advance(by, who=who)

    async def advance_to_next(self, *, who: str = "operator") -> datetime:
        """Move the manual clock until an event changes; where time brings no such change, it stays."""
        return await self.time.advance_to_next(who=who)

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
        return self.holds.current

    async def hold(
        self, *, by: str, reason: str, scope: str | None = None, idempotency_key: IdempotencyKey | None = None
    ) -> None:
        """Let nothing planned start, anywhere or in one scope, until `release`."""
        await self.holds.set(by=by, reason=reason, scope=scope, idempotency_key=idempotency_key)

    async def release(
        self, *, by: str, why: str = "", scope: str | None = None, idempotency_key: IdempotencyKey | None = None
    ) -> None:
        """End a hold, on the whole fleet or on one scope; what has become due meanwhile starts."""
        await self.holds.release(by=by, why=why, scope=scope, idempotency_key=idempotency_key)

    # Chance.

    def new_id(self) -> str:
        """Return a new random id for a request."""
        return str(uuid.uuid4()).upper()

    def new_epoch(self) -> str:
        """Return a new random epoch for a scope."""
        return new_epoch()


class HoldObserver:
    """Has every scope and campaign looked at again when something has changed that holds for all of them."""

    def __init__(self, clock: Clock, metrics: FleetMetrics, campaigns: Campaigns, scheduler: Scheduler) -> None:
        self._clock = clock
        self._metrics = metrics
        self._campaigns = campaigns
        self._scheduler = scheduler

    def observe(self, change: RecordChange[FleetHold]) -> None:
        """Look at everything again, unless this is the first value that this process has seen."""
        if change.entries is not None or change.before is not None:
            self.run()

    def run(self, *, include_idle: bool = False) -> None:
        """Look at every scope that has events, or at all of them."""
        self._metrics.released_at = self._clock.now()
        self._campaigns.reevaluate()
        self._scheduler.wake_all(include_idle=include_idle)
