"""Metrics of the fleet: counters, histograms and current counts, updated as changes are saved; and a store wrapper that
times saves.

They start at zero with the process, and count the saves of this process.
"""

import asyncio
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from itertools import accumulate
from typing import NamedTuple

from forewarn.core.event import Cause, Event, EventType, State
from forewarn.core.explain import external_blockers
from forewarn.core.impact import STUCK, ImpactState
from forewarn.core.impact_lifecycle import PLATFORM
from forewarn.core.journal import EVENT_CHANGE_KINDS, Entry, EntryKind
from forewarn.core.lifecycle import CLOCK
from forewarn.core.policy import RuleContext
from forewarn.core.scope import Scope
from forewarn.fleet.scopes import ScopeChange, Scopes
from forewarn.store.port import (
    NO_GUARDS,
    Extent,
    Guards,
    JournalQuery,
    JournalRow,
    Record,
    RecordKey,
    RecordTooLarge,
    Retention,
    RevisionConflict,
    Store,
    StoreError,
    WatchItem,
)

SAVE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
LATENESS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600)
NOTICE_BUCKETS = (0, 30, 60, 300, 600, 900, 1800, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600)
APPROVAL_BUCKETS = (1, 2.5, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600)
IMPACT_BUCKETS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)

COUNTED_CHANGES = (
    EntryKind.SCHEDULED,
    EntryKind.ANNOUNCED,
    EntryKind.STARTED,
    EntryKind.COMPLETED,
    EntryKind.CANCELED,
    EntryKind.FAILED,
)
"""The steps of an event that are counted."""

COUNTED_OUTCOMES = (
    EntryKind.IMPACT_DONE,
    EntryKind.IMPACT_RETRY,
    EntryKind.IMPACT_FAILED,
    EntryKind.IMPACT_UNKNOWN,
    EntryKind.IMPACT_GIVEN_UP,
)
"""The outcomes of impacts; an impact that is retried has several."""


class Histogram:
    """How many values were at most as large as each bound, and their sum. All are in seconds."""

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float | timedelta) -> None:
        """Count a value; a negative one counts as 0."""
        seconds = max(0.0, value.total_seconds() if isinstance(value, timedelta) else value)
        self._counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self._counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each bound, infinity last, with the number of values up to it."""
        return zip((*self.bounds, float("inf")), accumulate(self._counts), strict=True)


def _histogram_factory(bounds: Sequence[float]) -> Callable[[], Histogram]:
    return lambda: Histogram(bounds)


class FleetMetrics:
    """Counters and histograms of events, and of the store."""

    def __init__(self) -> None:
        self.counts = FleetCounts()
        self.changes: Counter[tuple[EventType, EntryKind]] = Counter()
        self.outcomes: Counter[tuple[EventType, EntryKind]] = Counter()
        self.notice: defaultdict[tuple[EventType, Cause], Histogram] = defaultdict(_histogram_factory(NOTICE_BUCKETS))
        """From an event's announcement to its not_before; 0 if it appeared as Started."""
        self.approval: defaultdict[EventType, Histogram] = defaultdict(_histogram_factory(APPROVAL_BUCKETS))
        """From the creation of an event to each approval."""
        self.lateness: defaultdict[EventType, Histogram] = defaultdict(_histogram_factory(LATENESS_BUCKETS))
        """From when an event was due and blocked by nothing but time, to its start."""
        self.impact: defaultdict[EventType, Histogram] = defaultdict(_histogram_factory(IMPACT_BUCKETS))
        """From when the platform got the work on a VM to when it was done."""
        self.saves = Histogram(SAVE_BUCKETS)
        self.conflicts = 0
        self.failures = 0
        """Failed saves."""
        self.event_changes = 0
        """Changes of events, of any kind."""
        self.released_at: datetime | None = None
        """When the hold on the whole fleet last changed: the events that it held were not due before."""

    def observe_save(
        self, before: Scope | None, after: Scope | None, entries: Sequence[Entry], rule_context: RuleContext
    ) -> None:
        """Count the saved changes of a scope."""
        types: dict[str, EventType] = {}
        for entry in entries:
            if entry.event is None:
                continue
            event = (after and after.find_event(entry.event)) or (before and before.find_event(entry.event))
            if "type" in entry.facts:
                types[entry.event] = EventType(entry.facts["type"])
            type_ = types.get(entry.event) or (event.type if event else None)
            if type_ is not None:
                self._count(entry, type_)
            if event:
                self._observe(entry, event, before, rule_context)

    def _count(self, entry: Entry, type_: EventType) -> None:
        if entry.kind in COUNTED_CHANGES:
            self.changes[type_, entry.kind] += 1
        elif entry.kind in COUNTED_OUTCOMES:
            self.outcomes[type_, entry.kind] += 1

    def _observe(self, entry: Entry, event: Event, before: Scope | None, rule_context: RuleContext) -> None:
        match entry.kind:
            case EntryKind.SCHEDULED | EntryKind.ANNOUNCED if event.announced:
                self.notice[event.type, event.cause].observe(event.not_before - entry.at)
            case EntryKind.STARTED if "type" in entry.facts:
                if event.announced:
                    self.notice[event.type, event.cause].observe(0)
            case EntryKind.STARTED if entry.by == CLOCK and before is not None:
                self._observe_start(entry, before.find_event(event.id), before, rule_context)
            case EntryKind.APPROVED:
                self.approval[event.type].observe(entry.at - event.created_at)
            case EntryKind.IMPACT_DONE if entry.by == PLATFORM and before is not None:
                self._observe_impact(entry, before.find_event(event.id))
            case _:
                pass

    def _observe_start(self, entry: Entry, waiting: Event | None, scope: Scope, rule_context: RuleContext) -> None:
        """Measure how late a start was, unless it had to wait for something other than time."""
        if (
            waiting is not None
            and waiting.state is State.SCHEDULED
            and not external_blockers(scope, waiting, rule_context)
        ):
            due_at = max(waiting.not_before, self.released_at or waiting.not_before)
            self.lateness[waiting.type].observe(entry.at - due_at)

    def _observe_impact(self, entry: Entry, begun: Event | None) -> None:
        for vm in entry.vms:
            if begun is not None and (impact := begun.impact(vm)) is not None and impact.begun_at is not None:
                self.impact[begun.type].observe(entry.at - impact.begun_at)


class _ScopeCounts(NamedTuple):
    """The counts of one scope."""

    enabled: bool
    held: bool
    events: tuple[tuple[EventType, State], ...]
    stuck: tuple[tuple[EventType, ImpactState], ...]


class FleetCounts:
    """Current counts, updated scope by scope, so that the whole fleet need not be scanned."""

    def __init__(self) -> None:
        self._parts: dict[str, _ScopeCounts] = {}
        self._interned: dict[_ScopeCounts, _ScopeCounts] = {}
        self.scopes = 0
        self.enabled = 0
        self.held = 0
        self.events: Counter[tuple[EventType, State]] = Counter()
        self.stuck: Counter[tuple[EventType, ImpactState]] = Counter()
        """Impacts that wait for a person."""

    def update(self, id_: str, scope: Scope | None) -> None:
        """Update the counts of a scope; None: it was removed."""
        old = self._parts.pop(id_, None)
        if old is not None:
            self._add(old, -1)
        if scope is not None:
            part = _count_scope(scope)
            self._parts[id_] = part if part.events else self._interned.setdefault(part, part)
            self._add(part, 1)

    def _add(self, part: _ScopeCounts, sign: int) -> None:
        self.scopes += sign
        self.enabled += sign * part.enabled
        self.held += sign * part.held
        for event in part.events:
            self.events[event] += sign
        for impact in part.stuck:
            self.stuck[impact] += sign


def _count_scope(scope: Scope) -> _ScopeCounts:
    return _ScopeCounts(
        enabled=scope.enabled,
        held=scope.hold is not None,
        events=tuple([(event.type, event.state) for event in scope.events]),
        stuck=tuple(
            [(event.type, impact.state) for event in scope.events for impact in event.impacts if impact.state in STUCK]
        ),
    )


class MetricsObserver:
    """Keeps metrics and counts up to date."""

    def __init__(self, metrics: FleetMetrics, counts: FleetCounts, scopes: Scopes) -> None:
        self._metrics = metrics
        self._counts = counts
        self._scopes = scopes

    def observe(self, change: ScopeChange) -> None:
        """Update the counts with the scope's value, and the metrics with the entries that this process saved."""
        if change.before is not change.after:
            self._counts.update(change.id, self._scopes.replica.newest(change.id)[0])
        if change.entries:
            self._metrics.observe_save(change.before, change.after, change.entries, self._scopes.rule_context)
            self._metrics.event_changes += sum(entry.kind in EVENT_CHANGE_KINDS for entry in change.entries)


class MetricsStore:
    """Wraps a store and measures its saves."""

    def __init__(self, store: Store, metrics: FleetMetrics) -> None:
        self._store = store
        self._metrics = metrics
        self.last_write_at: float | None = None
        """When, on the event loop's clock, the store last wrote; None if never, or if it has failed since."""
        self._refused_size = 0
        """The size of the largest refused value, until the store can save one of that size."""

    @property
    def cell_id(self) -> str | None:
        """The random id of the content, if several processes share it."""
        return self._store.cell_id

    async def save(
        self,
        key: RecordKey,
        value: bytes | None,
        entries: Sequence[Entry],
        *,
        expected: int | None,
        guards: Guards = NO_GUARDS,
    ) -> int:
        """Save, and measure the time."""
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            revision = await self._store.save(key, value, entries, expected=expected, guards=guards)
        except RevisionConflict:
            self._metrics.conflicts += 1
            raise
        except StoreError as error:
            self._metrics.failures += 1
            if not isinstance(error, RecordTooLarge):
                self.last_write_at = None
                self._refused_size = max(self._refused_size, _size_of(value), 1)
            raise
        ended = clock()
        if _size_of(value) >= self._refused_size:
            self.last_write_at, self._refused_size = ended, 0
        self._metrics.saves.observe(ended - started)
        return revision

    async def check(self, size: int = 0) -> None:
        """Make a test write; after a refused save, one of its size."""
        try:
            await self._store.check(max(size, self._refused_size))
        except StoreError:
            self.last_write_at = None
            raise
        self.last_write_at, self._refused_size = asyncio.get_running_loop().time(), 0

    async def load(self, key: RecordKey) -> Record | None:
        """Return the newest saved value."""
        return await self._store.load(key)

    def watch(self) -> AbstractAsyncContextManager[AsyncIterator[WatchItem]]:
        """Yield all records, then changes."""
        return self._store.watch()

    async def journal(self, query: JournalQuery) -> list[JournalRow]:
        """Return journal rows."""
        return await self._store.journal(query)

    async def extent(self) -> Extent:
        """Return the extent of the journal."""
        return await self._store.extent()

    async def prune(self, retention: Retention, *, now: datetime) -> int:
        """Remove one small batch of journal rows."""
        return await self._store.prune(retention, now=now)

    async def aclose(self) -> None:
        """Close the store."""
        await self._store.aclose()


def _size_of(value: bytes | None) -> int:
    return 0 if value is None else len(value)
