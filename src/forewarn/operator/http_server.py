"""HTTP server of the operator API: HTTP/1.1 by h11 for one ASGI application, with timeouts and a connection limit.

Forewarn has its own server because it must stop together with its owner, must not touch signals, and must limit the
time of every read. General-purpose servers allow this only by patching private parts.
"""

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import unquote

import h11
import msgspec
from litestar.types import ASGIApp

from forewarn.fleet.event_loop import tasks_until_exit
from forewarn.operator.error_responses import error_body

log = logging.getLogger(__name__)

CONNECTIONS = 256
"""The limit of open connections; each counts until it is closed on our side too."""

BACKLOG = 2_048
"""How many further connections may wait to be accepted."""

SHUTDOWN_TIMEOUT = 5.0
"""How long, in seconds, unfinished responses may take when the service stops."""

TLS_TIMEOUT = 10.0
"""How long, in seconds, a TLS handshake may take."""

READ_TIMEOUT = 30.0
"""How long, in seconds, a client may take to send the head of a request, and each chunk of its body."""

IDLE_TIMEOUT = 5.0
"""How long, in seconds, an idle connection is kept open."""

WRITE_TIMEOUT = 60.0
"""How long, in seconds, a client may take to read each chunk of a response, and the rest when the connection ends."""

WRITE_BYTES = 64 * 1024
"""The size of such a chunk, and how much of a response is buffered."""

READ_BYTES = 64 * 1024

HEAD_BYTES = 16 * 1024
"""The limit for the head of a request, and for each line that frames a chunk of its body."""

ABSOLUTE_FORM = re.compile(rb"https?://([^/?#@]+)(.*)", re.IGNORECASE)
"""A request target in absolute form (RFC 9112 section 3.2.2)."""

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]


@asynccontextmanager
async def run_server(app: ASGIApp, listener: socket.socket, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    """Serve the application while the context is open, then finish the unfinished responses."""
    connections: dict[_Connection, asyncio.Task[None]] = {}
    async with tasks_until_exit() as tasks:

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = _Connection(app, reader, writer)
            if len(connections) >= CONNECTIONS:
                message = f"the limit of {CONNECTIONS} connections is reached; try again later"
                connection.refuse(503, "too-many-connections", message)
                return
            task = tasks.create_task(connection.serve(), name="connection of the operator API")
            connections[connection] = task
            task.add_done_callback(lambda _: connections.pop(connection))

        server = await asyncio.start_server(
            accept,
            sock=listener,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else TLS_TIMEOUT,
            backlog=BACKLOG,
            limit=READ_BYTES,
        )
        try:
            yield
        finally:
            server.close()
            for connection in connections:
                connection.stop()
            if answering := [task for connection, task in connections.items() if connection.is_answering]:
                await asyncio.wait(answering, timeout=SHUTDOWN_TIMEOUT)


class _Connection:
    """A client's connection: requests one after the other, each answered by the application."""

    def __init__(self, app: ASGIApp, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._app, self._reader, self._writer = app, reader, writer
        self._socket: socket.socket = writer.get_extra_info("socket")
        writer.transport.set_write_buffer_limits(high=WRITE_BYTES)
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._is_between_requests = True
        self._is_stopping = False
        self._is_lost = False
        self._is_head_request = False
        self._is_body_unwanted = False
        """Whether the response was sent before the client, which expects `100 Continue`, sent its body."""
        self._reading: asyncio.Future[bytes] | None = None
        """The current read, if any: only one task at a time can read a stream."""
        self._is_answered = asyncio.Event()
        self._head = b""
        """The head of the response, until it is sent together with the first chunk."""

    async def serve(self) -> None:
        """Answer requests until the client disconnects, is too slow, or the server stops."""
        try:
            while await self._serve_request():
                self._protocol.start_next_cycle()
        except h11.RemoteProtocolError as error:
            self._refuse_request(error)
        except (OSError, TimeoutError):
            self._abort()
        except asyncio.CancelledError:
            self._abort()  # the server does not wait for slow clients
            raise
        except Exception:
            # In a task group, a bug in one connection would otherwise end all others.
            log.exception("internal error in a connection of the operator API; closing it")
            self._abort()
        finally:
            await self._close()

    @property
    def is_answering(self) -> bool:
        """Whether the client waits for a response or for the rest of one."""
        return not self._is_between_requests or self._writer.transport.get_write_buffer_size() > 0

    async def _close(self) -> None:
        """Close the connection when the client has received everything, takes too long, or the server stops."""
        self._writer.close()
        try:
            async with asyncio.timeout(WRITE_TIMEOUT):
                await self._writer.wait_closed()
        except TimeoutError:
            self._abort()
        except asyncio.CancelledError:
            self._abort()
            raise
        except OSError:
            pass  # closed anyway
        finally:
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.wait((self._reading,))
                _ = self._reading.cancelled() or self._reading.exception()  # retrieve the exception, or asyncio logs it

    def stop(self) -> None:
        """Close the connection after the current response."""
        self._is_stopping = True
        if self._is_between_requests:
            self._writer.close()

    async def _serve_request(self) -> bool:
        """Answer one request; return whether another can follow."""
        request = await self._read_head()
        if request is None:
            return False
        self._is_between_requests = False
        self._is_head_request = request.method == b"HEAD"
        self._is_answered = asyncio.Event()
        await self._run_app(request)
        if self._is_lost or self._is_stopping:
            return False
        await self._skip_body()
        self._is_between_requests = True
        return self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE

    async def _read_head(self) -> h11.Request | None:
        """Read the whole head of a request within the time limit; None if the client has disconnected."""
        is_first = self._protocol.their_http_version is None
        has_begun = is_first or bool(self._protocol.trailing_data[0])
        if not has_begun:
            async with asyncio.timeout(IDLE_TIMEOUT):
                await self._read()
        async with asyncio.timeout(READ_TIMEOUT):
            event = await self._next_event()
        if not isinstance(event, h11.Request):
            return None
        if {name for name, _ in event.headers} >= {b"content-length", b"transfer-encoding"}:
            # A proxy may use the other header and see different requests (request smuggling, RFC 9112 section 6.1).
            raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding are mutually exclusive")
        return event

    async def _next_event(self) -> Any:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            if self._protocol.they_are_waiting_for_100_continue:
                self._writer.write(self._protocol.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            await self._read()
        return event

    async def _read(self, *others: asyncio.Future[Any]) -> None:
        """Read until data arrives or one of `others` is done; an unfinished read is kept for the next call."""
        reading = self._reading = self._reading or asyncio.ensure_future(self._reader.read(READ_BYTES))
        await asyncio.wait((reading, *others), return_when=asyncio.FIRST_COMPLETED)
        if reading.done() and self._reading is reading:
            self._reading = None
            self._protocol.receive_data(reading.result())

    async def _run_app(self, request: h11.Request) -> None:
        try:
            await self._app(self._scope(request), self._receive, self._send)
        except Exception:
            log.exception("internal error in the operator API; answering 500")
        if self._is_lost:
            return
        if self._protocol.our_state is h11.SEND_RESPONSE:
            body = msgspec.json.encode(error_body("internal-error", "internal error; see the log of the service"))
            await self._send({"type": "http.response.start", "status": 500, "headers": _final_headers(body)})
            await self._send({"type": "http.response.body", "body": body, "more_body": False})
        elif self._protocol.our_state is h11.SEND_BODY:
            self._lose()

    def _scope(self, request: h11.Request) -> Any:
        target, headers = request.target, list(request.headers)
        if match := ABSOLUTE_FORM.fullmatch(target):
            host, rest = match.groups()
            target = rest if rest.startswith(b"/") else b"/" + rest
            headers = [(b"host", host), *(header for header in headers if header[0] != b"host")]
        path, _, query = target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.http_version.decode(),
            "server": _address(self._writer.get_extra_info("sockname")),
            "client": _address(self._writer.get_extra_info("peername")),
            "scheme": "http" if self._writer.get_extra_info("sslcontext") is None else "https",
            "method": request.method.decode(),
            "root_path": "",
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "headers": headers,
            "state": {},
            "extensions": {},
        }

    async def _receive(self) -> Any:
        """Return the next chunk of the request body to the application, or that the client has disconnected."""
        if self._is_lost or self._is_answered.is_set() or self._protocol.their_state is not h11.SEND_BODY:
            await self._wait_for_end()
            return {"type": "http.disconnect"}
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                event = await self._next_event()
        except h11.RemoteProtocolError as error:
            self._refuse_request(error)
            return {"type": "http.disconnect"}
        except (OSError, TimeoutError):
            event = None
        match event:
            case h11.Data(data=data):
                return {"type": "http.request", "body": bytes(data), "more_body": True}
            case h11.EndOfMessage():
                return {"type": "http.request", "body": b"", "more_body": False}
            case _:
                self._lose()
                return {"type": "http.disconnect"}

    async def _wait_for_end(self) -> None:
        """Wait until the response is complete or the client has disconnected; a pipelined request stays buffered."""
        answered = asyncio.ensure_future(self._is_answered.wait())
        try:
            while not (self._is_lost or answered.done()):
                await self._read(answered)
                received, is_closed = self._protocol.trailing_data
                if is_closed or len(received) > READ_BYTES:
                    self._lose()
        except OSError:
            self._lose()
        finally:
            answered.cancel()

    async def _send(self, message: Any) -> None:
        """Send a message of the application, unless the client has disconnected."""
        if self._is_lost:
            return
        if message["type"] == "http.response.start":
            self._head = self._protocol.send(self._response(message["status"], message.get("headers", ()))) or b""
            return
        body = b"" if self._is_head_request else message.get("body", b"")
        pieces = [self._head, self._protocol.send(h11.Data(data=body)) if body else b""]
        self._head = b""
        if not message.get("more_body", False):
            pieces.append(self._protocol.send(h11.EndOfMessage()))
            self._is_answered.set()
        await self._write(b"".join(piece or b"" for piece in pieces))

    async def _write(self, answer: bytes) -> None:
        """Write a response as fast as the client reads it."""
        unsent = memoryview(answer)
        try:
            while unsent and not self._is_lost:
                self._writer.write(unsent[:WRITE_BYTES])
                unsent = unsent[WRITE_BYTES:]
                async with asyncio.timeout(WRITE_TIMEOUT):
                    await self._writer.drain()
        except (OSError, TimeoutError):
            self._lose()

    def _response(self, status: int, headers: Headers) -> h11.Response:
        own = [(b"date", formatdate(usegmt=True).encode())]
        self._is_body_unwanted = self._protocol.they_are_waiting_for_100_continue
        if self._is_stopping or self._is_body_unwanted:
            own.append((b"connection", b"close"))
        return h11.Response(status_code=status, headers=[*headers, *own], reason=HTTPStatus(status).phrase.encode())

    def _refuse_request(self, error: h11.RemoteProtocolError) -> None:
        """Answer invalid HTTP with an error, unless the response is already complete."""
        if self._protocol.our_state is not h11.DONE:
            message = _refusal_message(error, is_head=self._is_between_requests)
            self.refuse(error.error_status_hint, "invalid-request", message)

    def refuse(self, status: int, code: str, message: str) -> None:
        """Answer with an error, unless a response has started, and close the connection without further reads."""
        if self._protocol.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = msgspec.json.encode(error_body(code, message))
            for event in (self._response(status, _final_headers(body)), h11.Data(data=body), h11.EndOfMessage()):
                self._writer.write(self._protocol.send(event) or b"")
        self._is_lost = True
        self._writer.close()

    def _lose(self) -> None:
        self._is_lost = True
        self._abort()

    def _abort(self) -> None:
        # asyncio's own transport cannot be aborted once it is closed.
        if self._socket.fileno() != -1:
            self._writer.transport.abort()

    async def _skip_body(self) -> None:
        """Skip the unread rest of the request body, so that the next request can follow."""
        if self._is_body_unwanted:
            return  # the client does not send it
        async with asyncio.timeout(READ_TIMEOUT):
            while self._protocol.their_state is h11.SEND_BODY:
                await self._next_event()


def _final_headers(body: bytes) -> list[tuple[bytes, bytes]]:
    length = str(len(body)).encode()
    return [(b"content-type", b"application/json"), (b"content-length", length), (b"connection", b"close")]


def _refusal_message(error: h11.RemoteProtocolError, *, is_head: bool) -> str:
    match error.error_status_hint:
        case HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            part = "request head" if is_head else "chunk header or trailer of the request body"
            return f"the {part} is larger than {HEAD_BYTES // 1024} KiB"
        case HTTPStatus.NOT_IMPLEMENTED:
            return "the only supported Transfer-Encoding is a single chunked"
        case _:
            # Some of h11's messages end with the invalid bytes, which may not be text.
            reason = str(error).partition(": b")[0]
            return f"the request is not valid HTTP/1.1: {reason}"


def _address(name: Sequence[Any] | None) -> tuple[str, int] | None:
    """Return host and port; None if the client has already disconnected."""
    return None if name is None else (name[0], name[1])
