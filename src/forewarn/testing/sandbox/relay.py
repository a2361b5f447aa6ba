"""Relay TCP connections from addresses inside the sandbox to the VM's Unix socket or a port of loopback outside."""

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound="asyncio.Future[Any]")

CHUNK_SIZE = 64 * 1024
ACCEPT_RETRY_DELAY = 0.1
"""How many seconds to wait before accepting again if the limit of open files is reached."""

LINGER_RESET = struct.pack("ii", 1, 0)
"""With a linger time of zero, closing a socket resets the connection."""

DRAIN_TIMEOUT = 5.0
"""How many seconds to wait until the last bytes of ended programs are delivered."""


Target = Path | int
"""Where connections go: a Unix socket, or a port of this machine's loopback."""

LOOPBACKS = ("127.0.0.1", "::1")


class Relay:
    """Accepts connections from inside and opens a connection to the target for each."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsent: set[asyncio.Future[None]] = set()

    @asynccontextmanager
    async def serve(self, listener: socket.socket) -> AsyncIterator[None]:
        """Relay until the context ends; then deliver what programs inside have sent before."""
        listener.setblocking(False)
        accepting = asyncio.create_task(self._accept(listener))
        try:
            yield
        finally:
            accepting.cancel()
            await asyncio.wait((accepting,))
            with suppress(OSError):
                while True:
                    self._start(listener.accept()[0])
            # The programs inside have ended, so each of their connections is closed, or will be in a moment.
            if self._unsent:
                await asyncio.wait(self._unsent, timeout=DRAIN_TIMEOUT)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:  # the limit of open files is reached
                await asyncio.sleep(ACCEPT_RETRY_DELAY)
            else:
                self._start(connection)

    def _start(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        sent = asyncio.get_running_loop().create_future()
        _keep(self._unsent, sent)
        _keep(self._tasks, asyncio.create_task(self._relay(connection, sent)))

    async def _relay(self, connection: socket.socket, sent: "asyncio.Future[None]") -> None:
        try:
            inside, to_inside = await asyncio.open_connection(sock=connection, limit=CHUNK_SIZE)
            try:
                outside, to_outside = await _connect(self._target)
            except OSError:
                _reset(to_inside)
            else:
                is_unix = isinstance(self._target, Path)
                await _RelayedConnection(inside, to_inside, outside, to_outside, sent, is_unix=is_unix).run()
        finally:
            _settle(sent)


class _RelayedConnection:
    """One connection: copies bytes in both directions until both have ended."""

    def __init__(
        self,
        inside: asyncio.StreamReader,
        to_inside: asyncio.StreamWriter,
        outside: asyncio.StreamReader,
        to_outside: asyncio.StreamWriter,
        sent: "asyncio.Future[None]",
        *,
        is_unix: bool,
    ) -> None:
        self._inside, self._to_inside = inside, to_inside
        self._outside, self._to_outside = outside, to_outside
        self._sent = sent
        self._is_unix = is_unix
        to_outside.transport.set_write_buffer_limits(0)  # what was drained is delivered, also if this process ends
        self._is_unanswered = False

    async def run(self) -> None:
        """Relay until the service closes the connection, or either side fails."""
        requests = asyncio.create_task(self._relay_requests())
        try:
            await self._relay_responses()
        except OSError:
            _reset(self._to_inside)
        else:
            self._close_inside()
        finally:
            requests.cancel()
            await asyncio.wait((requests,))
            self._to_outside.close()

    async def _relay_requests(self) -> None:
        try:
            while chunk := await self._inside.read(CHUNK_SIZE):
                self._is_unanswered = True
                self._to_outside.write(chunk)
                await self._to_outside.drain()
            self._is_unanswered = False  # after its EOF, the client may get a plain close as the response
            self._to_outside.write_eof()
        except OSError:
            self._to_outside.transport.abort()
        finally:
            _settle(self._sent)

    async def _relay_responses(self) -> None:
        while chunk := await self._outside.read(CHUNK_SIZE):
            self._is_unanswered = False
            self._to_inside.write(chunk)
            await self._to_inside.drain()

    def _close_inside(self) -> None:
        """Close as the service did. Unix sockets have no reset: a close without a response to a request means one."""
        if self._is_unix and self._is_unanswered and not self._to_inside.transport.get_write_buffer_size():
            _reset(self._to_inside)
        else:
            self._to_inside.close()


async def _connect(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(target, Path):
        return await _connect_unix(target)
    try:
        return await asyncio.open_connection(LOOPBACKS[0], target, limit=CHUNK_SIZE)
    except OSError:
        return await asyncio.open_connection(LOOPBACKS[1], target, limit=CHUNK_SIZE)


async def _connect_unix(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a socket with a path of any length: the address of a Unix socket is limited to 107 bytes."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/{path.name}", limit=CHUNK_SIZE)
    finally:
        os.close(directory)


def _reset(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
    writer.transport.abort()


def _keep(futures: "set[F]", future: F) -> None:
    """Keep a reference to a future until it is done: the event loop has only weak ones."""
    futures.add(future)
    future.add_done_callback(futures.discard)


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
