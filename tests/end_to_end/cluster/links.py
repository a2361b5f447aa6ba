"""Links of a cluster: a TCP proxy for each pair of programs, which can be cut, cut in one direction, or slow."""

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

R = TypeVar("R")

CHUNK_BYTES = 65_536
GUARD_SECONDS = 60


class LinkState(NamedTuple):
    """What a link does with bytes: keep them from flowing up (to the server) or down, or delay them."""

    up: bool = True
    down: bool = True
    delay: float = 0.0


OPEN, CUT = LinkState(), LinkState(up=False, down=False)


class Link:
    """A listener that passes connections on to a server. While it is cut, bytes wait, as in TCP without packets."""

    def __init__(self, port_of_server: Callable[[], int]) -> None:
        self._port_of_server = port_of_server
        self._state = OPEN
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def listen(self) -> None:
        """Accept connections at `port`."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Accept no connections, and end all."""
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    def set(self, state: LinkState) -> None:
        """Change what happens to bytes."""
        self._state = state
        self._changed.set()
        self._changed = asyncio.Event()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError):  # by `Network.close`; asyncio would log it
            await self._serve(reader, writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._pass(lambda state: state.up)
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._port_of_server())
        except OSError:
            writer.close()
            return
        self._writers.add(server_writer)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._copy(reader, server_writer, lambda state: state.up))
            tasks.create_task(self._copy(server_reader, writer, lambda state: state.down))
        self._writers -= {writer, server_writer}

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, may_pass: Callable[[LinkState], bool]
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._pass(may_pass)
                writer.write(data)
                await writer.drain()
            await self._pass(may_pass)  # the end of a connection does not pass either
        writer.close()

    async def _pass(self, may_pass: Callable[[LinkState], bool]) -> None:
        if self._state.delay:
            await asyncio.sleep(self._state.delay)
        while not may_pass(self._state):
            await self._changed.wait()


class Network:
    """All links, by the names of both ends. It runs in a thread of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._links: dict[tuple[str, str], Link] = {}

    def add(self, client: str, server: str, port_of_server: Callable[[], int]) -> int:
        """Add a link from a client to a server, and return its port."""

        async def create() -> Link:
            link = Link(port_of_server)
            await link.listen()
            return link

        link = self._run(create())
        self._links[client, server] = link
        return link.port

    def set(self, state: LinkState, names: Collection[str]) -> None:
        """Change the links between these programs and all others; links among them stay."""

        async def change() -> None:
            for (client, server), link in self._links.items():
                if (client in names) != (server in names):
                    # For a program that accepts the connection, up and down are the other way round.
                    link.set(state if client in names else state._replace(up=state.down, down=state.up))

        self._run(change())

    def heal(self) -> None:
        """Open all links."""

        async def change() -> None:
            for link in self._links.values():
                link.set(OPEN)

        self._run(change())

    def close(self) -> None:
        """End all links."""

        async def end() -> None:
            for link in self._links.values():
                link.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._run(end())

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(GUARD_SECONDS)


@contextmanager
def run_network() -> Iterator[Network]:
    """Run links until the context ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="links")
    thread.start()
    network = Network(loop)
    try:
        yield network
    finally:
        network.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(GUARD_SECONDS)
        loop.close()
