"""HTTP server of the operator API: uvicorn in the service's event loop, with timeouts and a connection limit."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import h11
import msgspec
import uvicorn
from litestar.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from forewarn.core.base_error import BaseError
from forewarn.fleet.event_loop import tasks_until_exit
from forewarn.operator.error_responses import error_body

CONNECTIONS = 256
"""How many callers may be connected."""

SHUTDOWN_TIMEOUT = 5
"""How long, in seconds, answers under way may take when the service ends."""

TICK = 0.1
"""How often, in seconds, the server looks at the time, as uvicorn counts on."""

READ_TIMEOUT = 30.0
"""How long, in seconds, a caller may take for the head of a request, and for each piece of its body."""


class ServerFailed(BaseError):
    """The server of the operator API ended although it was not stopped."""

    template = "the server of the operator API has ended by itself: its log says why"


class _Server(uvicorn.Server):
    """A server that is started and ended by its owner: signals are none of its business.

    uvicorn looks ten times a second whether it is to end, and then waits for as long again. This one ends at once: a
    test that has a service of its own does not want to wait for it twice.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()
        self._stop_requested = asyncio.Event()

    def request_stop(self) -> None:
        """Have it finish the answers that are under way, and end."""
        self.should_exit = True
        self._stop_requested.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def serve_until_stopped(self, sockets: list[socket.socket]) -> None:
        await self.serve(sockets)
        if not self._stop_requested.is_set():
            raise ServerFailed

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    async def main_loop(self) -> None:
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK):
                    await self._stop_requested.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0)  # what is idle is closed in the next turn of the loop
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)


class TimeoutProtocol(H11Protocol):
    """A connection that is closed when its caller does not come to the end of a request.

    Without it, as many callers as there may be connections could keep everybody else out by saying nothing.
    """

    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for the first request."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            self.app = refuse_connection
        self._start_read_timer()

    def data_received(self, data: bytes) -> None:
        """Take what comes; a head has to come in time as a whole, a body piece by piece."""
        had_open_request = self._has_open_request
        super().data_received(data)
        if had_open_request or self._has_open_request:
            self._stop_read_timer()
            if self._has_open_request and self.cycle.more_body:
                self._start_read_timer()

    def on_response_complete(self) -> None:
        """Wait for the next request; uvicorn closes a connection on which none begins."""
        super().on_response_complete()
        if not self._has_open_request:
            self._start_read_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_read_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn says it in its own words
        """Refuse what is no HTTP as everything else is refused."""
        body = msgspec.json.encode(error_body("invalid-request", "this is no request of HTTP/1.1"))
        head = h11.Response(status_code=400, headers=_headers(body), reason=b"Bad Request")
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def _has_open_request(self) -> bool:
        """Whether there is a request that has no complete answer yet."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _start_read_timer(self) -> None:
        self._stop_read_timer()
        self._read_timer = self.loop.call_later(READ_TIMEOUT, self.transport.abort)

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None


async def refuse_connection(_: Scope, __: Receive, send: Send) -> None:
    """Answer those who come when as many are connected as may be."""
    sentence = f"{CONNECTIONS} are connected already, and no more may be: try again later"
    body = msgspec.json.encode(error_body("too-many-connections", sentence))
    await send({"type": "http.response.start", "status": 503, "headers": _headers(body)})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _headers(body: bytes) -> list[tuple[bytes, bytes]]:
    length = str(len(body)).encode()
    return [(b"content-type", b"application/json"), (b"content-length", length), (b"connection", b"close")]


@asynccontextmanager
async def run_server(app: ASGIApp, listener: socket.socket, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    """Serve the application as long as the context lasts, then finish the answers that are under way."""
    config = uvicorn.Config(
        app,
        access_log=False,
        http=TimeoutProtocol,
        lifespan="off",
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
        ws="none",
    )
    config.load()
    config.ssl = tls
    server = _Server(config)
    async with tasks_until_exit() as tasks:
        task = tasks.create_task(server.serve_until_stopped([listener]), name="operator API")
        try:
            await server.is_up.wait()
            yield
        finally:
            server.request_stop()
            await asyncio.wait([task])
