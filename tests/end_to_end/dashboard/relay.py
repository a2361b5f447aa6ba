"""A TCP relay in front of a service, whose connections a test can cut and repair."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from forewarn.testing.background import BackgroundContext


class Relay:
    """Forwards connections to a port; none while it is cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._is_cut = False
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.get_running_loop()
        self.url = ""

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection in both directions until one side closes it."""
        if self._is_cut:
            writer.transport.abort()
            return
        from_service, to_service = await asyncio.open_connection("127.0.0.1", self._target)
        self._open |= {writer, to_service}
        await asyncio.gather(self._copy(reader, to_service), self._copy(from_service, writer))
        self._open -= {writer, to_service}

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while received := await reader.read(65536):
                writer.write(received)
        except ConnectionError:
            pass
        finally:
            writer.transport.abort() if self._is_cut else writer.close()

    def cut(self) -> None:
        """Break all connections, and accept no further one."""
        asyncio.run_coroutine_threadsafe(self.break_connections(), self._loop).result()

    async def break_connections(self) -> None:
        """Break all connections."""
        self._is_cut = True
        for writer in self._open:
            writer.transport.abort()

    def repair(self) -> None:
        """Accept connections again."""
        self._is_cut = False


@asynccontextmanager
async def _relay(target: int) -> AsyncIterator[Relay]:
    relay = Relay(target)
    server = await asyncio.start_server(relay.accept, "127.0.0.1", 0)
    relay.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        await relay.break_connections()
        server.close()


@contextmanager
def run_relay(target: int) -> Iterator[Relay]:
    """Run a relay to a port, in a thread."""
    context = BackgroundContext(lambda: _relay(target), name="relay of a test")
    try:
        yield context.start()
    finally:
        context.stop()
