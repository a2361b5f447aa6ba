"""Taking turns on the event loop: long work is done in small pieces, and guests are answered in between."""

import asyncio

TURN = 0.002
"""For how long, in seconds, work goes on before others on the event loop get their turn."""


class Turns:
    """The turns of work that many tasks share: all of them together have one turn in each round of the loop."""

    def __init__(self, length: float = TURN) -> None:
        self._length = length
        self._ends_at: float | None = None

    async def mine(self) -> None:
        """Return as soon as there is time left in this round: at once, or in one of the next."""
        loop = asyncio.get_running_loop()
        while self._ends_at is not None and loop.time() >= self._ends_at:  # noqa: ASYNC110 - rounds raise no event
            await asyncio.sleep(0)
        if self._ends_at is None:
            self._ends_at = loop.time() + self._length
            loop.call_soon(self._begin)

    def _begin(self) -> None:
        """A new round of the loop has begun."""
        self._ends_at = None
