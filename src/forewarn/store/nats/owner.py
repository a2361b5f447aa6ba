"""Owner of a cell: the one process that may change it. Other processes wait, or read only.

The owner writes a message that ends by itself, and renews it. It saves nothing once its newest message may have ended,
by its own monotonic clock. So a process that was suspended, or cut off from the servers, does not go on saving while
another one has taken over.
"""

import asyncio
import json
import logging
import os
import socket
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple

from forewarn.files import read_file, write_file
from forewarn.store.nats.connection import ApiRefused, ResponseMissing, ServerUnavailable
from forewarn.store.nats.message import EXPECTED, FORMAT, FORMAT_HEADER, ROLLUP, TTL
from forewarn.store.nats.stream import WRONG_SEQUENCE, CellStream
from forewarn.store.port import CellInUse

log = logging.getLogger(__name__)

TTL_SECONDS = 12
"""How long a message of the owner stands. An election of a leader, in which nothing can be renewed, takes up to 8 s."""

CLAIM_SECONDS = TTL_SECONDS + 3.0
"""How long to wait for a former owner, which may have ended without notice."""

RENEW_SECONDS = 3.0
MARGIN_SECONDS = 3.0
"""How long before its end the owner no longer relies on its message."""

RETRY_SECONDS = 0.25

MEMBER_FILE = "member"
"""The file in the data directory with the random id of the process that uses it, the same after a restart."""


class OwnerMessage(NamedTuple):
    """Who owns a cell."""

    member: str
    """The id of the data directory."""
    process: str
    """A random id of the process."""
    name: str

    @classmethod
    def parse(cls, data: bytes) -> "OwnerMessage | None":
        """Return the owner that a message names; None if it names none."""
        try:
            content = json.loads(data)
            return cls(str(content["member"]), str(content["process"]), str(content["name"]))
        except (ValueError, KeyError, TypeError):
            return None


class CellOwner:
    """The right of this process to change the cell."""

    def __init__(self, stream: CellStream, member: str) -> None:
        self._stream = stream
        self._message = OwnerMessage(member, token_hex(12), f"process {os.getpid()} on {socket.gethostname()}")
        self._valid_until = 0.0

    @property
    def is_valid(self) -> bool:
        """Whether this process may save now."""
        return asyncio.get_running_loop().time() < self._valid_until

    async def claim(self, patience: float) -> None:
        """Become the owner; wait for a former owner that has ended, and raise CellInUse if it goes on."""
        deadline = asyncio.get_running_loop().time() + patience
        is_reported = False
        while (other := await self._claim_first()) is not None:
            if asyncio.get_running_loop().time() > deadline:
                raise CellInUse(self._stream.subjects.cell, other.name)
            if not is_reported:
                is_reported = True
                log.warning(
                    "cell %s is in use by %s; waiting up to %g s", self._stream.subjects.cell, other.name, patience
                )
            await asyncio.sleep(RETRY_SECONDS)

    async def _claim_first(self) -> OwnerMessage | None:
        try:
            return await self._try_claim(is_first=True)
        except ServerUnavailable:
            return await self._try_claim(is_first=True)

    async def renew(self) -> None:
        """Remain the owner, without end; raise CellInUse if another process has taken over."""
        while True:
            try:
                other = await self._try_claim(is_first=False)
            except (ApiRefused, ResponseMissing, ServerUnavailable):
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if other is not None:
                self._valid_until = 0.0
                raise CellInUse(self._stream.subjects.cell, other.name)
            await asyncio.sleep(RENEW_SECONDS)

    async def release(self) -> None:
        """Let another process take over at once."""
        self._valid_until = 0.0
        with suppress(ApiRefused, ResponseMissing, ServerUnavailable):
            # A renewal that was cancelled may have been stored, so its sequence is not known here.
            newest = await self._stream.read_last(self._stream.subjects.owner)
            found = OwnerMessage.parse(newest.data) if newest is not None else None
            if newest is not None and found is not None and found.process == self._message.process:
                await self._write(b"", "1s", expected=newest.sequence)

    async def _try_claim(self, *, is_first: bool) -> OwnerMessage | None:
        """Write the message, and return the owner if there is another one.

        Only a new process takes over from another one of the same member, which has ended.
        """
        sent_at = asyncio.get_running_loop().time()
        newest = await self._stream.read_last(self._stream.subjects.owner)
        found = OwnerMessage.parse(newest.data) if newest is not None else None
        if found is not None and found.process != self._message.process:
            may_take_over = is_first and found.member == self._message.member
            if not may_take_over:
                return found
        content = json.dumps(self._message._asdict()).encode()
        try:
            await self._write(content, f"{TTL_SECONDS}s", expected=newest.sequence if newest is not None else 0)
        except ApiRefused as error:
            if error.code == WRONG_SEQUENCE:  # another process was faster
                raise ServerUnavailable("the owner of the cell has just changed") from error
            raise
        self._valid_until = sent_at + TTL_SECONDS - MARGIN_SECONDS
        return None

    async def _write(self, data: bytes, ttl: str, *, expected: int) -> None:
        headers = {**ROLLUP, EXPECTED: str(expected), TTL: ttl, FORMAT_HEADER: str(FORMAT)}
        await self._stream.publish(self._stream.subjects.owner, data, headers)


def read_member(directory: Path) -> str:
    """Return the id of the member that uses a data directory. Only the owner of the directory's lock may call this."""
    file = directory / MEMBER_FILE
    with suppress(FileNotFoundError):
        if member := read_file(file).decode().strip():
            return member
    member = token_hex(12)
    write_file(file, f"{member}\n".encode())
    return member
