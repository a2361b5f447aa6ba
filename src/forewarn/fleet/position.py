"""Positions of the replica: what a caller has changed at one process, it reads at any that has reached its position."""

import asyncio
import re
from secrets import token_hex

from forewarn.core.errors import Invalid
from forewarn.fleet.errors import PositionNotReached
from forewarn.fleet.main_loop import MainLoop

WAIT_SECONDS = 2.0
"""How long a request waits for the replica."""

_POSITION = "[0-9A-Za-z-]{0,40}-[0-9]{1,18}"
POSITIONS = f"^({_POSITION}(, ?{_POSITION}){{0,7}})?$"
"""A list of positions: of this cell, and of others that the caller has used. It may be empty."""

_is_list = re.compile(POSITIONS, re.ASCII).fullmatch


class Positions:
    """The positions of this process. Those of another store, or of a former process without one, mean nothing here."""

    def __init__(self, main_loop: MainLoop) -> None:
        self._main_loop = main_loop
        self._store = main_loop.store.cell_id or token_hex(8)

    @property
    def current(self) -> str:
        """The position of everything that the replica has now."""
        return f"{self._store}-{self._main_loop.newest}"

    async def wait(self, positions: str) -> None:
        """Return when the replica has everything up to its position in a list; raise PositionNotReached after 2 s."""
        if not _is_list(positions):
            raise Invalid(f"{positions[:80]!r} is no list of positions: send Forewarn-Position of earlier responses")
        for position in positions.split(","):
            store, _, number = position.strip().rpartition("-")
            if store == self._store:
                await self._wait(int(number))

    async def _wait(self, number: int) -> None:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._main_loop.wait_reached(number)
        except TimeoutError as error:
            raise PositionNotReached(f"{self._store}-{number}", self.current) from error
