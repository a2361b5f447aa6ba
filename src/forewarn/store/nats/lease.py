"""Leases of a cell: the right of one process at a time, by name. Other processes wait.

The holder of a lease writes a message that ends by itself, and renews it. It stops relying on the lease once its newest
message may have ended, by its own monotonic clock. So a process that was suspended, or cut off from the servers, does
not go on while another one has taken over.

The message only tells who lives. A save that depends on the lease is guarded by the record with the lease's term
(`fleet.lease_record`), which changes at a take-over and never at a renewal.
"""

import asyncio
import json
import logging
import os
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple

from forewarn.files import read_file, write_file
from forewarn.store.nats.connection import ApiRefused, NatsError, cancel_tasks
from forewarn.store.nats.message import EXPECTED, ROLLUP, TTL
from forewarn.store.nats.stream import WRONG_SEQUENCE, CellStream
from forewarn.store.port import CellInUse

log = logging.getLogger(__name__)

CLOCK = "clock"
"""The lease of the process that starts due events and runs campaigns."""

TTL_SECONDS = 12
"""How long a message of a holder stands. An election of a leader, in which nothing can be renewed, takes up to 8 s."""

CLAIM_SECONDS = TTL_SECONDS + 3.0
"""How long a service that must be alone waits for a former one, which may have ended without notice."""

RENEW_SECONDS = 3.0
MARGIN_SECONDS = 3.0
"""How long before its end the holder no longer relies on its message."""

RETRY_SECONDS = 0.25

MEMBER_FILE = "member"
"""The file in the data directory with the random id of the process that uses it, the same after a restart."""


class LeaseMessage(NamedTuple):
    """Who holds a lease."""

    member: str
    """The id of the data directory."""
    process: str
    """A random id of the process."""
    name: str

    @classmethod
    def parse(cls, data: bytes) -> "LeaseMessage | None":
        """Return the holder that a message names; None if it names none."""
        try:
            content = json.loads(data)
            return cls(str(content["member"]), str(content["process"]), str(content["name"]))
        except (ValueError, KeyError, TypeError):
            return None


class NatsLease:
    """A lease of this process. Created by `NatsStore.lease`."""

    def __init__(
        self,
        stream: CellStream,
        name: str,
        member: str,
        create_task: Callable[[Coroutine[None, None, None], str], asyncio.Task[None]],
    ) -> None:
        self.name = name
        self.lost = asyncio.Event()
        """Set while this process does not hold the lease."""
        self.lost.set()
        self.patience: float | None = None
        """How long to wait for another holder, in seconds; None: without end."""
        self.taken_by: str | None = None
        """The process that has taken the lease over from this one."""
        self._stream = stream
        self._subject = stream.subjects.lease(name)
        self._create_task = create_task
        self._keeper: asyncio.Task[None] | None = None
        self._message = LeaseMessage(member, token_hex(12), process_name())
        self._valid_until = 0.0
        self._is_new = True

    @property
    def holder(self) -> str:
        """The name of this process, for people."""
        return self._message.name

    @property
    def process(self) -> str:
        """The random id of this process."""
        return self._message.process

    @property
    def is_valid(self) -> bool:
        """Whether this process can rely on the lease now."""
        return asyncio.get_running_loop().time() < self._valid_until

    @property
    def is_shared(self) -> bool:
        """Whether another process takes over when this one releases the lease."""
        return self.patience is None

    async def claim(self) -> None:
        """Wait until this process holds the lease, and renew it from then on; no effect if it holds it.

        Raises CellInUse if another process holds it for longer than `patience`.
        """
        if not self.lost.is_set():
            return
        patience = self.patience
        deadline = None if patience is None else asyncio.get_running_loop().time() + patience
        reported = ""
        while (other := await self._claim_if_available(is_patient=patience is None)) is not None:
            if deadline is not None and asyncio.get_running_loop().time() > deadline:
                raise CellInUse(self._stream.subjects.cell, other)
            if other != reported:
                reported = other
                log.warning(
                    "lease %s of cell %s is held by %s; waiting%s",
                    self.name,
                    self._stream.subjects.cell,
                    other,
                    "" if patience is None else f" up to {patience:g} s",
                )
            await asyncio.sleep(RETRY_SECONDS)
        self._is_new, self.taken_by = False, None
        self.lost.clear()
        self._keeper = self._create_task(self._keep(), f"renew the lease {self.name}")

    async def release(self) -> None:
        """Let another process take over at once."""
        self._valid_until = 0.0
        self.lost.set()
        if self._keeper is not None:  # it would renew the lease again, or run beside the one of the next claim
            await cancel_tasks({self._keeper})
            self._keeper = None
        with suppress(NatsError):
            # A claim or renewal that was cancelled may have been stored, so its sequence is not known here.
            newest = await self._stream.read_last(self._subject)
            found = LeaseMessage.parse(newest.data) if newest is not None else None
            if newest is not None and found is not None and found.process == self.process:
                await self._write(b"", "1s", expected=newest.sequence)

    async def _claim_if_available(self, *, is_patient: bool) -> str | None:
        """Try to claim, and return who prevents it; with patience, this may be the servers."""
        try:
            return await self._try_claim()
        except NatsError as error:
            if not is_patient:
                raise
            return f"an unknown process ({error})"

    async def _keep(self) -> None:
        """Renew the lease until it is released, another process holds it, or it was not renewed in time."""
        while self.is_valid:
            await asyncio.sleep(RENEW_SECONDS)
            other = None
            while self.is_valid:
                try:
                    async with asyncio.timeout_at(self._valid_until):
                        other = await self._try_claim()
                    break
                except (NatsError, TimeoutError):
                    await asyncio.sleep(RETRY_SECONDS)
            if other is not None:
                self._valid_until, self.taken_by = 0.0, other
                log.warning("lease %s of cell %s is now held by %s", self.name, self._stream.subjects.cell, other)
        self.lost.set()

    async def _try_claim(self) -> str | None:
        """Write the message, and return the name of the holder if there is another one.

        Only a new process takes over from another one of the same member, which has ended.
        """
        sent_at = asyncio.get_running_loop().time()
        newest = await self._stream.read_last(self._subject)
        found = LeaseMessage.parse(newest.data) if newest is not None else None
        if found is not None and found.process != self.process:
            may_take_over = self._is_new and found.member == self._message.member
            if not may_take_over:
                return found.name
        content = json.dumps(self._message._asdict()).encode()
        try:
            await self._write(content, f"{TTL_SECONDS}s", expected=newest.sequence if newest is not None else 0)
        except ApiRefused as error:
            if error.code != WRONG_SEQUENCE:
                raise
            return "a process that was faster"
        self._valid_until = sent_at + TTL_SECONDS - MARGIN_SECONDS
        return None

    async def _write(self, data: bytes, ttl: str, *, expected: int) -> None:
        headers = {**ROLLUP, EXPECTED: str(expected), TTL: ttl}
        await self._stream.publish(self._subject, data, headers)


def process_name() -> str:
    """Return the name of this process, for people."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def read_member(directory: Path) -> str:
    """Return the id of the member that uses a data directory. Only the owner of the directory's lock may call this."""
    file = directory / MEMBER_FILE
    with suppress(FileNotFoundError):
        if member := read_file(file).decode().strip():
            return member
    member = token_hex(12)
    write_file(file, f"{member}\n".encode())
    return member
