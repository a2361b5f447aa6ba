"""From the address inside to the VM's socket outside: bytes in both directions, and nothing else."""

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound="asyncio.Future[Any]")

PIECE = 64 * 1024
PAUSE = 0.1
"""For how many seconds nobody is let in when the system has no more files to give."""

AT_ONCE_CUT_OFF = struct.pack("ii", 1, 0)
"""A socket that lingers for no time is reset when it is closed."""

LONGEST_FAREWELL = 5.0
"""For how many seconds what a program said before it ended may still be on its way."""


class Relay:
    """Connections from inside, each with one of its own to the socket."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._underway: set[asyncio.Task[None]] = set()
        self._unsaid: set[asyncio.Future[None]] = set()

    @asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[None]:
        """Relay as long as the context lasts; then let what was said inside before the end come out."""
        listener.setblocking(False)
        accepting = asyncio.create_task(self._accept(listener))
        try:
            yield
        finally:
            accepting.cancel()
            await asyncio.wait((accepting,))
            with suppress(OSError):
                while True:
                    self._take(listener.accept()[0])
            # The programs inside are gone, so that each of their connections is at its end, or will be at once.
            if self._unsaid:
                await asyncio.wait(self._unsaid, timeout=LONGEST_FAREWELL)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:  # as many files are open as may
                await asyncio.sleep(PAUSE)
            else:
                self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        said = asyncio.get_running_loop().create_future()
        _kept(self._unsaid, said)
        _kept(self._underway, asyncio.create_task(self._carry(connection, said)))

    async def _carry(self, connection: socket.socket, said: "asyncio.Future[None]") -> None:
        try:
            inside, to_inside = await asyncio.open_connection(sock=connection, limit=PIECE)
            try:
                outside, to_outside = await _connected(self._path)
            except OSError:
                _reset(to_inside)
            else:
                await _Crossing(inside, to_inside, outside, to_outside, said).last()
        finally:
            _settle(said)


class _Crossing:
    """One connection: what is said on one side is said on the other, to the end of both directions."""

    def __init__(
        self,
        inside: asyncio.StreamReader,
        to_inside: asyncio.StreamWriter,
        outside: asyncio.StreamReader,
        to_outside: asyncio.StreamWriter,
        said: "asyncio.Future[None]",
    ) -> None:
        self._inside, self._to_inside = inside, to_inside
        self._outside, self._to_outside = outside, to_outside
        self._said = said
        self._is_unanswered = False

    async def last(self) -> None:
        """Carry on until the service has ended the connection, or either side is broken."""
        asking = asyncio.create_task(self._ask())
        try:
            await self._answer()
        except OSError:
            _reset(self._to_inside)
        else:
            self._end_inside()
        finally:
            asking.cancel()
            await asyncio.wait((asking,))
            self._to_outside.close()

    async def _ask(self) -> None:
        try:
            while piece := await self._inside.read(PIECE):
                self._is_unanswered = True
                self._to_outside.write(piece)
                await self._to_outside.drain()
            self._is_unanswered = False  # whoever says that this was all expects no more than an end
            self._to_outside.write_eof()
        except OSError:
            self._to_outside.transport.abort()
        finally:
            _settle(self._said)

    async def _answer(self) -> None:
        while piece := await self._outside.read(PIECE):
            self._is_unanswered = False
            self._to_inside.write(piece)
            await self._to_inside.drain()

    def _end_inside(self) -> None:
        """Close as the service did. A unix socket knows no reset: closing on a request without a word was one."""
        if self._is_unanswered and not self._to_inside.transport.get_write_buffer_size():
            _reset(self._to_inside)
        else:
            self._to_inside.close()


async def _connected(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a socket, however long its path is: a socket's address has room for 107 bytes."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/{path.name}", limit=PIECE)
    finally:
        os.close(directory)


def _reset(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE_CUT_OFF)
    writer.transport.abort()


def _kept(among: "set[F]", future: F) -> None:
    """Keep a future until it is done; a loop alone does not."""
    among.add(future)
    future.add_done_callback(among.discard)


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
