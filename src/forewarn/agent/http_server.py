"""Minimal HTTP server for peers, load balancers, Prometheus and `agent status`: one request per connection, with size
limit, connection limit and timeout.
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple, TypeAlias

from forewarn.core.base_error import BaseError
from forewarn.settings.types import ListenAddress

LARGEST_HEAD = 8 * 1024
MOST_CONNECTIONS = 64
TIMEOUT = 10.0
"""How many seconds a client has to send its request and read the response."""

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"

LOG = logging.getLogger(__name__)


class Request(NamedTuple):
    """A parsed request. Header names are in lower case; the last of repeated headers wins."""

    method: str
    path: str
    headers: Mapping[str, str]


class Response(NamedTuple):
    """A response."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


Respond: TypeAlias = Callable[[Request], Response]
"""Answers a request without blocking."""


class InvalidRequest(BaseError, ValueError):
    """The received bytes are not a valid HTTP request; the message says why."""

    template = "{problem}"
    problem: str


class HttpServer:
    """Listens at any number of addresses until it is closed."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def listen(self, host: str, port: int) -> int:
        """Start listening and return the port; port 0 chooses a free one. Raises OSError."""
        server = await asyncio.start_server(self._accept, host, port, limit=LARGEST_HEAD)
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    async def listen_with_retry(
        self, address: ListenAddress, pause: Callable[[], Awaitable[object]], on_error: Callable[[str | None], None]
    ) -> int:
        """Retry `listen` until it succeeds, and return the port. `on_error` gets each error, and finally None.

        The address may come up later than this agent, and the port may be in use for a moment.
        """
        last_error: str | None = None
        while True:
            try:
                port = await self.listen(address.host, address.port)
            except OSError as error:
                reason = f"cannot listen on {address}: {error.strerror or error}"
                if reason != last_error:
                    LOG.error("%s", reason)  # noqa: TRY400  # no traceback needed
                last_error = reason
                on_error(reason)
                await pause()
            else:
                on_error(None)
                return port

    async def listen_unix(self, path: Path) -> None:
        """Listen on a Unix socket. The permissions of its directory control who may connect. Raises OSError."""
        if sys.platform == "win32":
            raise OSError("this system has no Unix sockets")
        _remove(path)
        self._servers.append(await asyncio.start_unix_server(self._accept, path, limit=LARGEST_HEAD))
        _restrict(path)

    async def aclose(self) -> None:
        """Close all listeners and connections, also those that are just being accepted."""
        self._is_closed = True
        for server in self._servers:
            server.close()
        for connection in tuple(self._connections):
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections)
        for server in self._servers:
            await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_closed or len(self._connections) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        connection = asyncio.get_running_loop().create_task(self._serve(reader, writer), name="forewarn-agent-http")
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)
        # Close the transport even if the task is cancelled before its first turn.
        connection.add_done_callback(lambda _: writer.transport.abort())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client that disconnects or is too slow is not an error of this agent.
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(TIMEOUT):
                await self._handle(reader, writer)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = parse_request(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            await _send(writer, error_response(431, f"request headers exceed {LARGEST_HEAD} bytes"), "GET")
            return
        except InvalidRequest as error:
            await _send(writer, error_response(400, str(error)), "GET")
            return
        await _send(writer, self._response(request), request.method)

    def _response(self, request: Request) -> Response:
        try:
            return self._respond(request)
        except Exception:
            LOG.exception("internal error while answering %s", request.path)
            return error_response(500, "internal error; see the agent's log")


def error_response(status: int, reason: str, *headers: tuple[str, str]) -> Response:
    """Return an error response with a JSON body."""
    # The reason may contain input of the caller: remove what could break JSON or a terminal.
    text = "".join(letter if letter.isprintable() and letter not in '"\\' else "?" for letter in reason)
    return Response(status, f'{{"error":"{text}"}}\n'.encode(), headers=headers)


def parse_request(head: bytes) -> Request:
    """Parse request line and headers; raises InvalidRequest."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    match first.split(" "):
        case [method, target, "HTTP/1.1" | "HTTP/1.0"] if method.isalpha() and target.startswith("/"):
            headers = dict(_header(line) for line in lines)
            return Request(method, target.partition("?")[0], headers)
        case _:
            raise InvalidRequest("invalid request line: expected METHOD /path HTTP/1.0 or HTTP/1.1")


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name or name != name.strip():
        raise InvalidRequest("malformed header line")
    return name.lower(), value.strip()


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def _restrict(path: Path) -> None:
    path.chmod(0o600)


async def _send(writer: asyncio.StreamWriter, response: Response, method: str) -> None:
    lines = [
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *(f"{name}: {value}" for name, value in response.headers),
    ]
    writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (b"" if method == "HEAD" else response.body))
    await writer.drain()
    writer.close()
    await writer.wait_closed()
