"""The timetable: a scheduler that finds the start of each wave, within limits, gaps, windows and expected impacts.

It simulates time. Whenever an impact ends, a gap is over or a window opens, it starts the ready waves that fit: first
those of the scopes with the most waves left, then in the order of scopes.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

from forewarn.core.campaign.calendar import Calendar
from forewarn.core.campaign.expected_load import ExpectedLoad
from forewarn.core.campaign.limits import Load
from forewarn.core.campaign.windows import Span

MAX_SKIPPED_SHAPES = 16
"""How many wave shapes that do not fit are tried at one time before the search stops: a smaller wave behind them might
fit, but searching thousands each time that an impact ends would be too slow."""

MAX_HOST_SHAPES = 32
"""How many shapes on the same host are tried, once the host is in use, for waves that need no further host."""

Shape = tuple[int, tuple[str, ...]]
"""What decides whether a wave fits: its VMs, and its hosts if they are limited. All waves of one shape fit, or none."""


class ScopeWaves:
    """The waves of a scope in sequence, and the times in which other work is in progress in the scope."""

    __slots__ = ("busy", "loads", "placed", "rank")

    def __init__(self, rank: int, loads: Sequence[Load], busy: Sequence[Span]) -> None:
        self.rank, self.loads, self.busy = rank, loads, busy
        self.placed = 0

    @property
    def left(self) -> int:
        """How many waves are not placed yet."""
        return len(self.loads) - self.placed

    @property
    def next(self) -> Load:
        """The first wave that is not placed yet."""
        return self.loads[self.placed]

    def free_at(self, moment: datetime, length: timedelta) -> datetime:
        """Return the time, or the end of other work in the scope that a wave starting then would overlap."""
        met = (busy.end for busy in self.busy if busy.start < moment + length and busy.end > moment)
        return max(met, default=moment)


class Placement(NamedTuple):
    """The start of a scope's n-th wave, from 1; `rank` identifies the scope."""

    rank: int
    n: int
    at: datetime


class QueueEntry(NamedTuple):
    """A scope's place in the queue; the smallest entry comes first."""

    left: int
    """Negative, so that scopes with the most waves left come first."""
    rank: int
    row: ScopeWaves


class ReadyQueue:
    """The scopes whose next wave is ready, in queue order, by the shape of that wave."""

    def __init__(self, *, by_hosts: bool) -> None:
        self._by_hosts = by_hosts
        self._entries: dict[Shape, list[QueueEntry]] = {}
        self._first: list[tuple[QueueEntry, Shape]] = []
        """The first entry of every shape; outdated entries are skipped when they come up."""
        self._by_host: dict[str, dict[Shape, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def push(self, entry: QueueEntry) -> None:
        """Add a scope."""
        load = entry.row.next
        shape = (load.vms, load.hosts if self._by_hosts else ())
        if shape not in self._entries:
            self._entries[shape] = []
            for host in shape[1]:
                self._by_host.setdefault(host, {})[shape] = None
        entries = self._entries[shape]
        heappush(entries, entry)
        if entries[0] is entry:
            heappush(self._first, (entry, shape))

    def pop_fitting(self, fits: Callable[[Load], bool]) -> Iterator[QueueEntry]:
        """Remove and yield the waves that fit when their turn comes."""
        passed_over: list[tuple[QueueEntry, Shape]] = []
        while self._first and len(passed_over) < MAX_SKIPPED_SHAPES:
            entry, shape = first = heappop(self._first)
            if not self._is_first(entry, shape):
                continue
            if fits(entry.row.next):
                self._remove(shape)
                yield entry
            else:
                passed_over.append(first)
        for first in passed_over:
            heappush(self._first, first)

    def pop_sharing_host(self, load: Load, hosts: set[str], fits: Callable[[Load], bool]) -> Iterator[QueueEntry]:
        """Remove and yield the waves that fit, share a host with the load, and whose other hosts are in use too."""
        for host in load.hosts:
            for shape in tuple(islice(self._by_host.get(host, ()), MAX_HOST_SHAPES)):
                if hosts.issuperset(shape[1]):
                    yield from self._of_shape(shape, fits)

    def _of_shape(self, shape: Shape, fits: Callable[[Load], bool]) -> Iterator[QueueEntry]:
        while shape in self._entries and fits((entry := self._entries[shape][0]).row.next):
            self._remove(shape)
            yield entry

    def _is_first(self, entry: QueueEntry, shape: Shape) -> bool:
        return shape in self._entries and self._entries[shape][0] is entry

    def _remove(self, shape: Shape) -> None:
        entries = self._entries[shape]
        heappop(entries)
        if entries:
            heappush(self._first, (entries[0], shape))
        else:
            del self._entries[shape]
            for host in shape[1]:
                del self._by_host[host][shape]


class Timetable:
    """Schedules the waves of scopes on a calendar, beside the load that is expected anyway."""

    def __init__(self, calendar: Calendar, expected: ExpectedLoad) -> None:
        self._calendar, self._expected = calendar, expected
        self._coming: list[tuple[datetime, QueueEntry]] = []
        self._waiting = ReadyQueue(by_hosts=expected.limits.hosts is not None)

    def add(self, row: ScopeWaves, ready_at: datetime) -> None:
        """Add a scope whose next wave may start at this time."""
        if row.left:
            heappush(self._coming, (ready_at, QueueEntry(-row.left, row.rank, row)))

    def placements(self, until: datetime) -> Iterator[Placement]:
        """Yield the placements in the order of time, as many as there are."""
        moment = self._next_moment()
        while moment is not None and moment <= until:
            self._expected.advance(moment)
            while self._coming and self._coming[0][0] <= moment:
                self._waiting.push(heappop(self._coming)[1])
            open_at = self._calendar.next_start(moment)
            if open_at == moment:
                yield from self._start(moment)
                moment = self._next_moment()
            else:
                moment = open_at

    def _next_moment(self) -> datetime | None:
        moments = [self._coming[0][0]] if self._coming else []
        if self._waiting and (change_at := self._expected.next_change) is not None:
            moments.append(change_at)
        return min(moments, default=None)

    def _start(self, moment: datetime) -> Iterator[Placement]:
        expected = self._expected
        for entry in self._waiting.pop_fitting(expected.fits):
            load = entry.row.next
            yield from self._place(entry, moment)
            for other in self._waiting.pop_sharing_host(load, expected.hosts, expected.fits):
                yield from self._place(other, moment)

    def _place(self, entry: QueueEntry, moment: datetime) -> Iterator[Placement]:
        row = entry.row
        free_at = row.free_at(moment, self._calendar.length)
        if free_at > moment:
            heappush(self._coming, (free_at, entry))
            return
        end = moment + self._calendar.length
        self._expected.add(row.next, moment, end)
        row.placed += 1
        self.add(row, end + self._calendar.rest)
        yield Placement(row.rank, row.placed, moment)
