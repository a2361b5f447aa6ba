"""Taking turns: long work is done in small pieces, and guests are answered in between."""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

TURN = 0.001
"""For how long, in seconds, work goes on before others on the event loop get their turn."""

PIECES = 32
"""How many pieces of work are done in a turn that is counted."""

TURN_OF_A_THREAD = 0.0005
"""For how long, in seconds, a thread that computes may keep waiting another one that has a moment's work to do."""


class Turns:
    """The turns of work that many tasks share: all of them together have one turn in each round of the loop.

    Whoever comes too late for a round waits, and is called in the order of coming, one in each round. With `pieces` a
    turn is over when so many pieces are done, not when so much time is: the order then does not depend on how fast the
    machine is.
    """

    def __init__(self, length: float = TURN, *, pieces: int | None = None) -> None:
        self._length = length
        self._pieces = pieces
        self._done = 0
        self._ends_at: float | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def mine(self) -> None:
        """Return as soon as it is the caller's turn: at once where there is time left in this round."""
        loop = asyncio.get_running_loop()
        if self._waiting or (self._ends_at is not None and self._is_over(self._ends_at)):
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.append(turn)
            await turn
        elif self._ends_at is None:
            self._begin()
        self._done += 1

    def _is_over(self, ends_at: float) -> bool:
        if self._pieces is not None:
            return self._done >= self._pieces
        return asyncio.get_running_loop().time() >= ends_at

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._done = 0
        self._ends_at = loop.time() + self._length
        loop.call_soon(self._next)

    def _next(self) -> None:
        """A new round of the loop has begun."""
        self._ends_at = None
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._begin()
                return


async def unhurried(items: Iterable[T], length: float = TURN) -> AsyncIterator[T]:
    """Give the items, and let others have their turn whenever it has taken a while.

    What the items are sifted for must be looked at after this, not before: else a long search has no pause.
    """
    turns = Turns(length)
    for item in items:
        await turns.mine()
        yield item


async def let_go(pile: list[T], length: float = TURN) -> None:
    """Empty a list in turns: to let go of a hundred thousand objects at once takes a while, too."""
    turns = Turns(length)
    while pile:
        await turns.mine()
        pile.pop()


def shorten_turns_of_threads() -> None:
    """Have the threads of this process take shorter turns than Python's five milliseconds.

    The thread that writes needs one turn for each statement. While the event loop works without a pause, as in an
    import, it used to wait the whole five each time: a commit of thirty saves took more than a second.
    """
    sys.setswitchinterval(TURN_OF_A_THREAD)
