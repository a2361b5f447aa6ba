"""Event loop helpers: cooperative scheduling in short time slices, owned task groups, and GC tuning."""

import asyncio
import gc
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import TypeVar

YOUNG_GENERATION = 1
GC_THRESHOLDS = (2_000, 1, 1_000)
"""When GC collects the youngest objects, the middle generation and all. The middle generation is collected at every
third time, before it becomes large: a collection of 60,000 objects kept the event loop for up to 25 ms. For a thousand
starts of events, this takes less time in total than 10,000 young objects, and half of Python's default."""

T = TypeVar("T")

TIME_SLICE = 0.001
"""The length of a time slice in seconds: how long work may block the event loop."""

SLICE_ITEMS = 32
"""How many items are processed in a time slice that is limited by a count."""

MAX_GC_PAUSE = 0.5
"""How long, in seconds, GC may be off during a burst of work."""

SWITCH_INTERVAL = 0.0005
"""How long, in seconds, a thread that computes may keep another thread waiting that has little to do."""


@contextmanager
def pause_gc() -> Iterator[None]:
    """Switch off GC in this context: objects loaded at the start stay, and scanning them repeatedly is useless."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def freeze_gc() -> None:
    """Freeze the objects that exist after the start, so that GC does not scan them.

    Nothing is collected before: guests are served already, and a start leaves only about 2,000 objects of garbage.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


@asynccontextmanager
async def start_without_gc(service: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """Enter the context of a service without GC, which would scan the whole fleet repeatedly; then freeze it."""
    async with AsyncExitStack() as stack:
        with pause_gc():
            running = await stack.enter_async_context(service)
        freeze_gc()
        yield running


class GcPause:
    """Switches off GC during a burst of work, for at most MAX_GC_PAUSE seconds.

    A thousand starts of events create 30,000 objects that are all in use until the starts are saved, so GC finds no
    garbage among them; it made the starts 8 % slower.
    """

    def __init__(self) -> None:
        self._limit: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Switch GC off, unless it is off already."""
        if gc.isenabled():
            gc.disable()
            self._limit = asyncio.get_running_loop().call_later(MAX_GC_PAUSE, self.end)

    def end(self) -> None:
        """Switch GC on again, if this pause has switched it off."""
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
            gc.enable()


def refreeze_gc() -> None:
    """Freeze the objects created since, too; for use after an import."""
    gc.collect(YOUNG_GENERATION)
    gc.freeze()


class _ContextExited(Exception):
    """The context has ended normally."""


@asynccontextmanager
async def tasks_until_exit() -> AsyncIterator[asyncio.TaskGroup]:
    """Yield a task group that is cancelled, not awaited, at the end; errors of the body are raised unchanged."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
            raise _ContextExited
    except BaseExceptionGroup as group:
        _, errors = group.split(_ContextExited)
        if errors is not None:
            raise (errors.exceptions[0] if len(errors.exceptions) == 1 else errors) from None


class FairShare:
    """Cooperative scheduling: many tasks share one time slice in each iteration of the event loop.

    Tasks that find the slice used up wait in a queue and continue in order, as many in an iteration as lately fitted
    into a slice. With `max_items` a slice ends after that many items instead of after a time, so that the order does
    not depend on the speed of the machine.
    """

    def __init__(self, time_slice: float = TIME_SLICE, *, max_items: int | None = None) -> None:
        self._time_slice = time_slice
        self._max_items = max_items
        self._released = max_items or 1
        """How many waiting tasks continue in an iteration."""
        self._done = 0
        self._ends_at: float | None = None
        self._waiting: deque[Callable[[], object]] = deque()

    def start(self, task: Callable[[], object]) -> None:
        """Call a function that starts a task when it is the task's turn: at once if few have started in this slice.

        This is cheaper than a task that waits for its first turn.
        """
        if self._ends_at is None:
            self._start_slice()
        if self._waiting or self._done >= self._released:
            self._waiting.append(partial(self._start, task))
        else:
            self._start(task)

    async def wait_turn(self) -> None:
        """Return when it is the caller's turn: at once if the time slice is not used up."""
        if self._waiting or (self._ends_at is not None and self._is_over(self._ends_at)):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(partial(_end_wait, turn))
            await turn
        elif self._ends_at is None:
            self._start_slice()
        self._done += 1

    def _start(self, task: Callable[[], object]) -> None:
        self._done += 1
        task()

    def _is_over(self, ends_at: float) -> bool:
        if self._max_items is not None:
            return self._done >= self._max_items
        return asyncio.get_running_loop().time() >= ends_at

    def _start_slice(self) -> None:
        loop = asyncio.get_running_loop()
        self._ends_at = loop.time() + self._time_slice
        loop.call_soon(self._next_slice)

    def _next_slice(self) -> None:
        """Start a new slice in a new iteration of the event loop, after the tasks that were released before."""
        if self._waiting and self._ends_at is not None and self._max_items is None:
            self._adapt(self._ends_at - asyncio.get_running_loop().time())
        self._ends_at = None
        self._done = 0
        released = min(self._released, len(self._waiting))
        for _ in range(released):
            self._waiting.popleft()()
        if released:
            self._start_slice()

    def _adapt(self, time_left: float) -> None:
        """Release more tasks if more than half of the slice was left, fewer if it was not long enough."""
        if time_left > self._time_slice / 2:
            self._released = min(2 * self._released, SLICE_ITEMS)
        elif time_left < 0:
            self._released = max(self._released // 2, 1)


def _end_wait(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


async def iterate_gradually(items: Iterable[T], time_slice: float = TIME_SLICE) -> AsyncIterator[T]:
    """Yield the items, and let other tasks run whenever a time slice is used up.

    Filter the items after this, not before: otherwise a long search never pauses.
    """
    fair_share = FairShare(time_slice)
    for item in items:
        await fair_share.wait_turn()
        yield item


async def clear_gradually(items: list[T], time_slice: float = TIME_SLICE) -> None:
    """Empty a list in slices, because freeing a hundred thousand objects at once takes a while, too."""
    fair_share = FairShare(time_slice)
    while items:
        await fair_share.wait_turn()
        items.pop()


def shorten_switch_interval() -> None:
    """Let the threads of this process switch more often than every five milliseconds, Python's default.

    The writer thread needs a switch for each statement. While the event loop is busy, as in an import, it waited the
    whole five milliseconds each time, and a commit of thirty saves took more than a second.
    """
    sys.setswitchinterval(SWITCH_INTERVAL)
