"""The fleet: the use cases of guests and operators over the replica, the queues, the clockwork and the platform."""

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
from forewarn.fleet import ledger as book
from forewarn.fleet.alarms import Alarms
from forewarn.fleet.answers import Answers
from forewarn.fleet.attendance import Attendance
from forewarn.fleet.campaigns import Campaigns
from forewarn.fleet.clockwork import Clockwork
from forewarn.fleet.enabling import Enabling, new_epoch
from forewarn.fleet.errors import NoSuchEvent, NoSuchScope
from forewarn.fleet.events import Events
from forewarn.fleet.feed import Feeds
from forewarn.fleet.impacts import Impacts
from forewarn.fleet.inventory import Inventory
from forewarn.fleet.keeper import LedgerKeeper
from forewarn.fleet.ledger import LEDGER, Ledger
from forewarn.fleet.manual import ManualTime, Sent
from forewarn.fleet.measured import MeasuredStore
from forewarn.fleet.measures import Census, Measures
from forewarn.fleet.pruning import RETENTION, prune
from forewarn.fleet.queue import Decision, Queues, Shelf
from forewarn.fleet.readiness import Readiness
from forewarn.fleet.replica import Replica, View
from forewarn.fleet.requests import all_made, by_scope
from forewarn.fleet.selecting import select
from forewarn.fleet.tasks import tasks_until_exit
from forewarn.fleet.ticking import Ticking
from forewarn.fleet.tokens import Tokens
from forewarn.fleet.turns import PIECES, Turns
from forewarn.platform.port import Checker, Messenger, NoChecker, NoMessenger, Platform
from forewarn.store.port import (
    Deleted,
    JournalQuery,
    JournalRow,
    Kind,
    Record,
    Retention,
    SnapshotEnd,
    Store,
    Watched,
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
        wall: Clock,
        checker: Checker,
        messenger: Messenger,
    ) -> None:
        self.replica = Replica()
        self.clock = clock
        self.measures = Measures()
        self.census = Census()
        store = MeasuredStore(store, self.measures)
        self.readiness = Readiness(store)
        self._store = store
        self._tasks = tasks
        self._keeper = LedgerKeeper(store, tasks, policy, on_hold=self._wake_all)
        self._scopes = Queues(
            store,
            tasks,
            Shelf(Kind.SCOPE, self.replica.newest, self._take_scope, _encode_scope, _decode_scope),
            basis=lambda: self.conditions,
            on_saved=self._note_saved,
            on_idle=self._forget_if_gone,
            turns=self._turns(),
        )
        self._gone: dict[str, int] = {}
        """The scopes of which the store has told that they are gone, and as of which revision."""
        self._attendance = Attendance(self._keeper, clock)
        self._ticking = Ticking(self, tasks, before=self._attendance.count, look=self._look, set_alarm=self._set_alarm)
        self._clockwork = Clockwork(clock, self._ticking.wake)
        self._impacts = Impacts(platform, self, tasks, calm=self._ticking.calm)
        self._enabling = Enabling(clock, tasks, self.apply)
        self.alarms = Alarms(clock, tasks)
        self._event_changes = 0
        self._time = ManualTime(
            clock,
            save=self._save_clock,
            waiting=self._waits_for_clock,
            changes=lambda: self._event_changes,
            may_change=lambda: self.census.events.total() > 0 or self.campaigns.is_armed,
        )
        answers = Answers(self, store)
        self._answers = answers
        self.events = Events(self, answers)
        self.inventory = Inventory(self._scopes, self.replica, answers, clock, lambda: self.conditions)
        self.tokens = Tokens(store, tasks, clock=clock, wall=wall)
        self.campaigns = Campaigns(self, store, tasks, checker=checker, messenger=messenger)
        self.feeds = Feeds(store, tasks)
        self._listeners: list[Callable[[View], None]] = []
        self._begun: set[asyncio.Task[None]] = set()
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
        retention: Retention = RETENTION,
        wall: Clock | None = None,
        checker: Checker | None = None,
        messenger: Messenger | None = None,
    ) -> AsyncIterator["Fleet"]:
        """Fill the replica from the store, go on with what is due, begun or half done, and keep the clock going.

        `wall` is the clock by which tokens expire; it is real though `clock` may be manual. `checker` asks the gates of
        campaigns, and `messenger` tells others of them.
        """
        async with store.watch() as changes, tasks_until_exit() as tasks:
            asked, told = checker or NoChecker(), messenger or NoMessenger()
            fleet = cls(store, platform, clock, policy, tasks, wall or SystemClock(), asked, told)
            await fleet._fill(changes)
            fleet._give_credit(fleet._keeper.ledger.alive_at)
            await fleet._attendance.begin()
            tasks.create_task(fleet._follow(changes), name="follow the store")
            fleet._go_live()
            tasks.create_task(prune(store, retention, clock), name="prune the journal")
            tasks.create_task(fleet._attendance.go_on(), name="heartbeat")
            try:
                yield fleet
            finally:
                fleet._clockwork.stop()
                fleet.campaigns.stop()
            await fleet._attendance.end()

    def _note_saved(self, old: Scope | None, new: Scope | None, entries: Sequence[Entry]) -> None:
        self.measures.take(old, new, entries, self.conditions)
        self._event_changes += sum(entry.kind in EVENT_CHANGE_KINDS for entry in entries)

    # Reading the store into the replica.

    async def _fill(self, changes: AsyncIterator[Watched]) -> None:
        async for change in changes:
            if isinstance(change, SnapshotEnd):
                return
            self._take(change)

    async def _follow(self, changes: AsyncIterator[Watched]) -> None:
        async for change in changes:
            self._take(change)
            self.feeds.wake()

    def _take(self, change: Watched) -> None:
        """Take what the store gives, unless it is known already: most of it is our own."""
        if isinstance(change, SnapshotEnd):
            return
        kind, id_ = change.key
        if kind is Kind.SCOPE:
            self._take_watched_scope(id_, change)
        elif change.key == LEDGER and isinstance(change, Record):
            self._keeper.take(change)
        elif kind is Kind.TOKEN:
            self.tokens.take(change)
        elif kind is Kind.CAMPAIGN:
            self.campaigns.take(change)

    def _take_watched_scope(self, id_: str, change: Record | Deleted) -> None:
        if self.replica.is_newer(id_, change.revision):
            self._take_scope(id_, _decode_scope(change.value) if isinstance(change, Record) else None, change.revision)
        if isinstance(change, Deleted):
            self._gone[id_] = change.revision
            self._forget_if_gone(id_)

    def _forget_if_gone(self, id_: str) -> None:
        """Keep nothing of a scope that is gone once nothing older can come: from the store, or from a command."""
        if id_ in self._gone and not self._scopes.is_busy(id_):
            self.replica.forget(id_, self._gone.pop(id_))

    def _take_scope(self, id_: str, scope: Scope | None, revision: int) -> None:
        view = self.replica.take(id_, scope, revision)
        if view is None:
            return
        self.census.take(id_, scope)
        if self._is_live:
            self._look(view)

    def _give_credit(self, alive_at: datetime | None) -> None:
        """Assume the latest request that may have come without being saved: no scope is switched off too early."""
        for view in self.replica.views():
            if view.scope is not None and view.scope.seen_at is not None and alive_at is not None:
                view.credited_at = max(view.scope.seen_at, min(view.scope.seen_at + SEEN_SAVE_INTERVAL, alive_at))

    def _go_live(self) -> None:
        self._is_live = True
        self.campaigns.go_live()
        for view in self.replica.views():
            self._look(view)

    def _look(self, view: View) -> None:
        """Act on a scope's state: set its alarm, begin its work, tell whoever listens."""
        self._set_alarm(view)
        self._impacts.look(view)
        self.campaigns.look(view)
        for listener in self._listeners:
            listener(view)

    def _set_alarm(self, view: View, ticked_at: datetime | None = None) -> None:
        """Have time act on a scope when something in it is due. Whatever was due at `ticked_at` is dealt with."""
        scope = view.scope
        moment = wake_at(scope, self.conditions, seen_at=view.alive_at) if scope is not None else None
        is_past = moment is not None and ticked_at is not None and moment <= ticked_at
        self._clockwork.set(view.id, None if is_past else moment)

    @property
    def conditions(self) -> RuleContext:
        """What holds outside the scopes: the policy, a hold on the whole fleet, the outages."""
        return self._keeper.conditions

    def use_policy(self, policy: Policy) -> None:
        """Let another policy hold from now on; every scope is looked at again."""
        self._keeper.use(policy)
        self._wake_all(also_quiet=True)

    @property
    def overdue(self) -> timedelta:
        """For how long the clockwork has let something wait that is due: no time, as long as it is alive."""
        return self._clockwork.overdue()

    def on_change(self, listener: Callable[[View], None]) -> None:
        """Call the listener with the view of every scope that has changed, after the replica has taken it."""
        self._listeners.append(listener)

    def begin(self, work: Coroutine[object, object, None], *, name: str) -> None:
        """Have work done that goes on though nobody waits for it, until the service ends. It must not raise."""
        task = self._tasks.create_task(work, name=name)
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)

    def break_off(self) -> None:
        """End the work that was begun: when the service ends, those who follow it must not be waited for."""
        for task in self._begun:
            task.cancel()

    # Commands.

    async def apply(self, id_: str, rule: Callable[[Scope], Change[R]]) -> R:
        """Apply a rule to the newest value of a scope, save it, and return the rule's result."""

        def command(scope: Scope | None) -> Decision[Scope, R]:
            if scope is None:
                raise NoSuchScope(id_)
            change = rule(scope)
            return Decision(change.scope, change.entries, change.result)

        return await self._scopes.apply(id_, command)

    async def approve(self, scope: str, vm: str, ids: Sequence[str], *, by: str | None = None) -> None:
        """Take a VM's approval of events of its own scope."""
        await self.apply(scope, lambda value: approve(value, vm, ids, self.conditions, now=self.clock.now(), by=by))

    async def schedule(self, ask: ScheduleRequest) -> tuple[tuple[str, str], ...]:
        """Make the events of a request in all scopes of its VMs, and return pairs of scope and event.

        All scopes are asked before the first is changed. If one of them has changed by the time it is its turn, and
        refuses, PartlyMade says what was made in the others.
        """
        asks = by_scope(self.replica, ask, now=self.clock.now())
        for scope, part in asks.items():
            schedule(self.replica.scope(scope), part, self.conditions, now=self.clock.now())
        made = await asyncio.gather(
            *(self._schedule(scope, part) for scope, part in asks.items()), return_exceptions=True
        )
        return all_made(dict(zip(asks, made, strict=True)))

    async def _schedule(self, scope: str, ask: ScheduleRequest) -> tuple[str, ...]:
        return await self.apply(scope, lambda value: schedule(value, ask, self.conditions, now=self.clock.now()))

    # Finding.

    def find_event(self, id_: str) -> tuple[View, Event]:
        """Find an open event in any scope."""
        found = self.replica.event(id_)
        if found is None:
            raise NoSuchEvent(id_)
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
        return select(self.replica, vms=vms, host=host, scope=scope, update_domain=update_domain)

    def hosts(self) -> Mapping[str, Sequence[tuple[View, Vm]]]:
        """Return the hosts on which VMs are, each with these VMs."""
        return self.replica.hosts()

    def last_seen(self, view: View) -> datetime | None:
        """Return when a VM of the scope last made a valid request, as far as it is known."""
        known = (view.seen_at, view.scope.seen_at if view.scope is not None else None)
        return max(filter(None, known), default=None)

    def note_request(self, view: View) -> Awaitable[None] | None:
        """Take note of a valid request from a scope. What is returned, if anything, is awaited before the answer."""
        return self._enabling.note(view)

    # What goes on by itself.

    def _wake_all(self, *, also_quiet: bool = False) -> None:
        if self._is_live:
            self.measures.released_at = self.clock.now()
            self.campaigns.look_again()
            self._ticking.wake_all(self._turns(), also_quiet=also_quiet)

    def _turns(self) -> Turns:
        """Return turns to take. By a manual clock everything happens in the same order, on whatever machine."""
        return Turns(pieces=PIECES if isinstance(self.clock, ManualClock) else None)

    # The journal.

    async def history(self, query: JournalQuery) -> list[JournalRow]:
        """Return a page of the journal; `forewarn.fleet.history` makes queries from people's words."""
        return await self._store.journal(query)

    def feed(self, after: int | None = None) -> AsyncGenerator[JournalRow, None]:
        """Give every line of the journal after a position, then each new one; None: from now on."""
        return self.feeds.rows(after)

    async def changes(self, after: int, limit: int) -> list[JournalRow]:
        """Return the changes of events and campaigns after a position of the journal, the oldest first."""
        dids = tuple(EVENT_CHANGE_KINDS | CAMPAIGN_CHANGE_KINDS)
        return await self._store.journal(JournalQuery(after=after, dids=dids, limit=limit))

    async def journal_end(self) -> int:
        """Return the position of the journal's newest line; 0: it has none."""
        rows = await self._store.journal(JournalQuery(newest_first=True, limit=1))
        return rows[0].position if rows else 0

    async def note_fault(self, did: EntryKind, fault: Fault, *, by: str, why: str = "") -> None:
        """Have the journal tell of a fault: that of the VM's scope, or of the fleet where it is one of all VMs."""
        now = self.clock.now()
        if fault.vm is None:
            await self._keeper.apply(partial(book.fault_noted, did=did, fault=fault, by=by, why=why, now=now))
        else:
            scope = fault.vm.rpartition("/")[0]
            await self.apply(scope, lambda value: add_fault_entry(value, did, fault, by=by, why=why, now=now))

    # Manual time.

    async def advance(self, by: timedelta, *, who: str = "operator") -> datetime:
        """Move the manual clock; everything that is due on the way happens in order, and is over on return."""
        return await self._time.advance(by, who=who)

    async def advance_to_next(self, *, who: str = "operator") -> datetime:
        """Move the manual clock until an event changes; where time brings no such change, it stays."""
        return await self._time.advance_to_next(who=who)

    async def _save_clock(self, moment: datetime, sent: Sent | None) -> None:
        if sent is None:
            await self._keeper.apply(partial(book.clock_passed, to=moment))
        else:
            await self._keeper.apply(partial(book.clock_moved, to=moment, by=sent.by, why=sent.why))

    def _waits_for_clock(self) -> int | None:
        """Return how many of our tasks wait for the clock if all of them do, None if something else is under way."""
        if self._scopes.busy or self._keeper.busy or self.tokens.busy or self._ticking.busy or self._enabling.busy:
            return None
        if self.campaigns.busy:
            return None
        if self.alarms.ringing:
            return None
        armed = self._clockwork.is_armed + self.campaigns.is_armed + self.alarms.armed
        return self._impacts.under_way + armed

    # The record that is not a scope's.

    @property
    def is_filled(self) -> bool:
        """Whether a first fleet file has been taken to its end."""
        return self._keeper.ledger.filled

    async def mark_filled(self) -> None:
        """Remember that the first fleet file has been taken to its end."""
        await self._keeper.apply(book.filled)

    @property
    def ports(self) -> Mapping[str, int]:
        """The guest ports of the VMs, given once and for ever."""
        return self._keeper.ledger.ports

    async def give_ports(self, ports: Mapping[str, int]) -> None:
        """Give ports to VMs; one that belongs or belonged to another VM is refused."""
        await self._keeper.apply(partial(book.ports_given, ports=ports))

    @property
    def held(self) -> Hold | None:
        """The hold on the whole fleet, if there is one."""
        return self._keeper.ledger.held

    async def hold(self, *, by: str, reason: str, scope: str | None = None, once: IdempotencyKey | None = None) -> None:
        """Let nothing planned start, anywhere or in one scope, until `release`.

        On return, what was about to start has started.
        """
        if scope is not None:
            await self._answers.apply(
                scope, lambda value: operations.hold(value, by=by, reason=reason, now=self.clock.now()), once
            )
            return
        await self._keep_once(partial(book.hold, by=by, reason=reason, now=self.clock.now()), once)
        await self._scopes.saved()

    async def release(
        self, *, by: str, why: str = "", scope: str | None = None, once: IdempotencyKey | None = None
    ) -> None:
        """End a hold, on the whole fleet or on one scope; what has become due meanwhile starts."""
        if scope is not None:
            await self._answers.apply(
                scope,
                lambda value: operations.release(value, self.conditions, by=by, now=self.clock.now(), why=why),
                once,
            )
            return
        await self._keep_once(partial(book.release, by=by, why=why, now=self.clock.now()), once)

    async def _keep_once(self, rule: Callable[[Ledger], Decision[Ledger, None]], once: IdempotencyKey | None) -> None:
        await self._keeper.apply(lambda ledger: book.once(ledger, once, rule, now=self.clock.now()))

    # Chance.

    def new_id(self) -> str:
        """Return a new random id for a request."""
        return str(uuid.uuid4()).upper()

    def new_epoch(self) -> str:
        """Return a new random epoch for a scope."""
        return new_epoch()
