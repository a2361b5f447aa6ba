"""The timetable: when each wave starts, so that limits, gaps, windows and what is in impact anyway leave room for it.

It is a walk through time. At each moment at which something ends, a rest is over or a window opens, the waves that are
ready start as far as they fit: first those of the scopes that have the most waves left, then in the scopes' order.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

from forewarn.core.campaign.limits import Ceilings, InUse, Load
from forewarn.core.campaign.windows import Span
from forewarn.core.schedule import whole_second

LOOKS_AHEAD = 16
"""How many shapes of waves that do not fit are passed over at a moment before no more are looked at: a smaller one
behind them may use what is left, but nobody looks through thousands each time that something ends."""

LOOKS_BESIDE = 32
"""How many shapes on the same host are looked at, once it is in use, for waves that cost no further host."""

Shape = tuple[int, tuple[str, ...]]
"""What decides whether a wave fits: its VMs, and its hosts where they are limited. Waves of one shape fit or do not."""


class Row:
    """The waves of a scope, one after the other, and the times in which something else is under way in it."""

    __slots__ = ("busy", "loads", "placed", "rank")

    def __init__(self, rank: int, loads: Sequence[Load], busy: Sequence[Span]) -> None:
        self.rank, self.loads, self.busy = rank, loads, busy
        self.placed = 0

    @property
    def left(self) -> int:
        """How many waves have no place yet."""
        return len(self.loads) - self.placed

    @property
    def next(self) -> Load:
        """The first wave that has no place yet."""
        return self.loads[self.placed]

    def free_at(self, moment: datetime, length: timedelta) -> datetime:
        """Return the moment, or the end of what a wave that starts then would meet in its own scope."""
        met = (busy.end for busy in self.busy if busy.start < moment + length and busy.end > moment)
        return max(met, default=moment)


class Place(NamedTuple):
    """The start of the n-th wave, from 1, of the row of that rank."""

    rank: int
    n: int
    at: datetime


class Turn(NamedTuple):
    """A row's claim to the next place; the smallest comes first."""

    left: int
    """Negative: the most come first."""
    rank: int
    row: Row


class _Shift(NamedTuple):
    """A moment at which a load comes or goes."""

    at: datetime
    n: int
    load: Load
    comes: bool


class Openings:
    """The times in which waves may start, for somebody who never asks for an earlier moment than before."""

    def __init__(self, spans: Iterator[Span]) -> None:
        self._spans = spans
        self._span = next(spans, None)

    def next(self, moment: datetime) -> datetime | None:
        """Return the first whole second, not before the moment, at which a wave may start."""
        while self._span is not None:
            start = whole_second(max(moment, self._span.start))
            if start < self._span.end:
                return start
            self._span = next(self._spans, None)
        return None


class Queue:
    """The rows whose next wave is ready, in the order of their turns, by the shape of that wave."""

    def __init__(self, *, by_hosts: bool) -> None:
        self._by_hosts = by_hosts
        self._turns: dict[Shape, list[Turn]] = {}
        self._first: list[tuple[Turn, Shape]] = []
        """The first turn of every shape; an entry that no longer is the first is passed over when it comes up."""
        self._by_host: dict[str, dict[Shape, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._turns)

    def push(self, turn: Turn) -> None:
        """Add a row."""
        load = turn.row.next
        shape = (load.vms, load.hosts if self._by_hosts else ())
        if shape not in self._turns:
            self._turns[shape] = []
            for host in shape[1]:
                self._by_host.setdefault(host, {})[shape] = None
        turns = self._turns[shape]
        heappush(turns, turn)
        if turns[0] is turn:
            heappush(self._first, (turn, shape))

    def fitting(self, fits: Callable[[Load], bool]) -> Iterator[Turn]:
        """Take out and yield those that fit when their turn comes."""
        passed_over: list[tuple[Turn, Shape]] = []
        while self._first and len(passed_over) < LOOKS_AHEAD:
            turn, shape = entry = heappop(self._first)
            if not self._is_first(turn, shape):
                continue
            if fits(turn.row.next):
                self._take_out(shape)
                yield turn
            else:
                passed_over.append(entry)
        for entry in passed_over:
            heappush(self._first, entry)

    def beside(self, load: Load, hosts: set[str], fits: Callable[[Load], bool]) -> Iterator[Turn]:
        """Take out and yield those that fit and share a host with the load, and whose other hosts are in use, too."""
        for host in load.hosts:
            for shape in tuple(islice(self._by_host.get(host, ()), LOOKS_BESIDE)):
                if hosts.issuperset(shape[1]):
                    yield from self._of_shape(shape, fits)

    def _of_shape(self, shape: Shape, fits: Callable[[Load], bool]) -> Iterator[Turn]:
        while shape in self._turns and fits((turn := self._turns[shape][0]).row.next):
            self._take_out(shape)
            yield turn

    def _is_first(self, turn: Turn, shape: Shape) -> bool:
        return shape in self._turns and self._turns[shape][0] is turn

    def _take_out(self, shape: Shape) -> None:
        turns = self._turns[shape]
        heappop(turns)
        if turns:
            heappush(self._first, (turns[0], shape))
        else:
            del self._turns[shape]
            for host in shape[1]:
                del self._by_host[host][shape]


class Timetable:
    """Gives places to the waves of rows. `rest` is what has to pass from the end of a wave to its row's next."""

    def __init__(self, ceilings: Ceilings, openings: Openings, *, length: timedelta, rest: timedelta) -> None:
        self._ceilings, self._openings = ceilings, openings
        self._length, self._rest = length, rest
        self._in_use = InUse()
        self._shifts: list[_Shift] = []
        self._shifts_made = 0
        self._coming: list[tuple[datetime, Turn]] = []
        self._waiting = Queue(by_hosts=ceilings.hosts is not None)

    def reserve(self, load: Load, span: Span) -> None:
        """Keep room for what will be in impact whatever the plan says: no wave without room for it lasts into it."""
        self._shift(span.start - self._length + timedelta(seconds=1), load, comes=True)
        self._shift(span.end, load, comes=False)

    def expect(self, row: Row, ready_at: datetime) -> None:
        """Take a row whose next wave may start then."""
        if row.left:
            heappush(self._coming, (ready_at, Turn(-row.left, row.rank, row)))

    def places(self, until: datetime) -> Iterator[Place]:
        """Yield places in the order of time, as far as there are any."""
        moment = self._next_moment()
        while moment is not None and moment <= until:
            self._pass(moment)
            open_at = self._openings.next(moment)
            if open_at == moment:
                yield from self._start(moment)
                moment = self._next_moment()
            else:
                moment = open_at

    def _next_moment(self) -> datetime | None:
        moments = [self._coming[0][0]] if self._coming else []
        if self._waiting and self._shifts:
            moments.append(self._shifts[0].at)
        return min(moments, default=None)

    def _pass(self, moment: datetime) -> None:
        while self._shifts and self._shifts[0].at <= moment:
            shift = heappop(self._shifts)
            if shift.comes:
                self._in_use.take(shift.load)
            else:
                self._in_use.release(shift.load)
        while self._coming and self._coming[0][0] <= moment:
            self._waiting.push(heappop(self._coming)[1])

    def _start(self, moment: datetime) -> Iterator[Place]:
        for turn in self._waiting.fitting(self._fits):
            load = turn.row.next
            yield from self._place(turn, moment)
            for other in self._waiting.beside(load, self._in_use.hosts, self._fits):
                yield from self._place(other, moment)

    def _fits(self, load: Load) -> bool:
        return self._ceilings.keep(self._in_use.with_(load))

    def _place(self, turn: Turn, moment: datetime) -> Iterator[Place]:
        row = turn.row
        free_at = row.free_at(moment, self._length)
        if free_at > moment:
            heappush(self._coming, (free_at, turn))
        else:
            self._take(row, moment)
            yield Place(row.rank, row.placed, moment)

    def _take(self, row: Row, moment: datetime) -> None:
        load, end = row.next, moment + self._length
        self._in_use.take(load)
        self._shift(end, load, comes=False)
        row.placed += 1
        self.expect(row, end + self._rest)

    def _shift(self, at: datetime, load: Load, *, comes: bool) -> None:
        self._shifts_made += 1
        heappush(self._shifts, _Shift(at, self._shifts_made, load, comes))
