"""Event loop helpers: cooperative scheduling of long work in small time slices, owned task groups, and GC tuning so
that collections do not stall the loop.
"""

import asyncio
import gc
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

YOUNG_GENERATION = 1
FULL_COLLECTION_THRESHOLD = 1_000
"""How often the young are looked through before everything is."""

T = TypeVar("T")

TIME_SLICE = 0.001
"""For how long, in seconds, work goes on before others on the event loop get their turn."""

SLICE_ITEMS = 32
"""How many pieces of work are done in a turn that is counted."""

SWITCH_INTERVAL = 0.0005
"""For how long, in seconds, a thread that computes may keep waiting another one that has a moment's work to do."""


@contextmanager
def pause_gc() -> Iterator[None]:
    """Collect no garbage meanwhile: what is loaded at the start stays, and would be looked through again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def freeze_gc() -> None:
    """Let garbage collection pass over what is there after the start."""
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_COLLECTION_THRESHOLD)


def refreeze_gc() -> None:
    """Let it pass over what has come since, too: after an import."""
    gc.collect(YOUNG_GENERATION)
    gc.freeze()


class _ContextExited(Exception):
    """The context has ended in order."""


@asynccontextmanager
async def tasks_until_exit() -> AsyncIterator[asyncio.TaskGroup]:
    """Give a task group that is cancelled, not awaited, at the end; the body's own error stays what it is."""
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

    Tasks that find the slice used up wait in a queue, and go on in order, one per iteration. With `max_items` a
    slice is over when so many items are done, not after a time: the order then does not depend on how fast the
    machine is.
    """

    def __init__(self, time_slice: float = TIME_SLICE, *, max_items: int | None = None) -> None:
        self._time_slice = time_slice
        self._max_items = max_items
        self._done = 0
        self._ends_at: float | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait_turn(self) -> None:
        """Return as soon as it is the caller's turn: at once where there is time left in this round."""
        loop = asyncio.get_running_loop()
        if self._waiting or (self._ends_at is not None and self._is_over(self._ends_at)):
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.append(turn)
            await turn
        elif self._ends_at is None:
            self._start_slice()
        self._done += 1

    def _is_over(self, ends_at: float) -> bool:
        if self._max_items is not None:
            return self._done >= self._max_items
        return asyncio.get_running_loop().time() >= ends_at

    def _start_slice(self) -> None:
        loop = asyncio.get_running_loop()
        self._done = 0
        self._ends_at = loop.time() + self._time_slice
        loop.call_soon(self._next_slice)

    def _next_slice(self) -> None:
        """A new round of the loop has begun."""
        self._ends_at = None
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._start_slice()
                return


async def iterate_gradually(items: Iterable[T], time_slice: float = TIME_SLICE) -> AsyncIterator[T]:
    """Yield the items, and let other tasks run whenever a time slice is used up.

    What the items are sifted for must be looked at after this, not before: else a long search has no pause.
    """
    fair_share = FairShare(time_slice)
    for item in items:
        await fair_share.wait_turn()
        yield item


async def clear_gradually(items: list[T], time_slice: float = TIME_SLICE) -> None:
    """Empty a list in turns: to let go of a hundred thousand objects at once takes a while, too."""
    fair_share = FairShare(time_slice)
    while items:
        await fair_share.wait_turn()
        items.pop()


def shorten_switch_interval() -> None:
    """Have the threads of this process take shorter turns than Python's five milliseconds.

    The thread that writes needs one turn for each statement. While the event loop works without a pause, as in an
    import, it used to wait the whole five each time: a commit of thirty saves took more than a second.
    """
    sys.setswitchinterval(SWITCH_INTERVAL)
