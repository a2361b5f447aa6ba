"""HTTP server of the operator API: HTTP/1.1 by h11 for one ASGI application, with timeouts and a connection limit.

It is our own because it has to end at once with its owner, to leave signals alone, and to limit the time of every
read: a general server allows that only by changing its inner parts.
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
"""How many callers may be connected; each counts until its connection is closed on our side, too."""

BACKLOG = 2_048
"""How many more may wait to be accepted."""

SHUTDOWN_TIMEOUT = 5.0
"""How long, in seconds, answers under way may take when the service ends."""

TLS_TIMEOUT = 10.0
"""How long, in seconds, a TLS handshake may take."""

READ_TIMEOUT = 30.0
"""How long, in seconds, a caller may take for the head of a request, and for each piece of its body."""

IDLE_TIMEOUT = 5.0
"""How long, in seconds, a connection is kept on which no next request begins."""

WRITE_TIMEOUT = 60.0
"""How long, in seconds, a caller may take for each piece of its answer, and for the rest when the connection ends."""

WRITE_BYTES = 64 * 1024
"""How large such a piece is, and how much of an answer waits in memory."""

READ_BYTES = 64 * 1024

HEAD_BYTES = 16 * 1024
"""How large the head of a request may be, and each line that frames a piece of its body."""

ABSOLUTE_FORM = re.compile(rb"https?://([^/?#@]+)(.*)", re.IGNORECASE)
"""A target that names scheme and host too (RFC 9112 section 3.2.2)."""

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]


@asynccontextmanager
async def run_server(app: ASGIApp, listener: socket.socket, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    """Serve the application as long as the context lasts, then finish the answers that are under way."""
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
    """A caller's connection: requests one after the other, each answered by the application."""

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
        """Whether the answer came before the caller, who waits for it, was told to send its body."""
        self._reading: asyncio.Future[bytes] | None = None
        """The read under way, if there is one: a stream can be read by one task at a time."""
        self._is_answered = asyncio.Event()
        self._head = b""
        """The head of the answer, until its first piece is sent with it."""

    async def serve(self) -> None:
        """Answer until the caller leaves, is too slow, or the server ends."""
        try:
            while await self._serve_request():
                self._protocol.start_next_cycle()
        except h11.RemoteProtocolError as error:
            self._refuse_request(error)
        except (OSError, TimeoutError):
            self._abort()
        except asyncio.CancelledError:
            self._abort()  # the server ends without slow callers
            raise
        except Exception:
            # A bug in one connection must not end the others, as it would in a task group.
            log.exception("a connection of the operator API has failed")
            self._abort()
        finally:
            await self._close()

    @property
    def is_answering(self) -> bool:
        """Whether there is something that the caller has asked for and not yet got."""
        return not self._is_between_requests or self._writer.transport.get_write_buffer_size() > 0

    async def _close(self) -> None:
        """Close the connection when the caller has got everything, or takes too long, or the server ends."""
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
            pass  # it is closed, though not in order
        finally:
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.wait((self._reading,))
                _ = self._reading.cancelled() or self._reading.exception()  # or asyncio logs it

    def stop(self) -> None:
        """Close the connection, after the answer that is under way."""
        self._is_stopping = True
        if self._is_between_requests:
            self._writer.close()

    async def _serve_request(self) -> bool:
        """Answer one request; return whether another one can follow."""
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
        """Read the head of a request, which has to come in time as a whole; None: the caller has left."""
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
            # A proxy in between may go by the other one, and see other requests than we do (RFC 9112 section 6.1).
            raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding are mutually exclusive")
        return event

    async def _next_event(self) -> Any:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            if self._protocol.they_are_waiting_for_100_continue:
                self._writer.write(self._protocol.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            await self._read()
        return event

    async def _read(self, *others: asyncio.Future[Any]) -> None:
        """Read what comes, unless something else happens before: then the read goes on, and the next caller has it."""
        reading = self._reading = self._reading or asyncio.ensure_future(self._reader.read(READ_BYTES))
        await asyncio.wait((reading, *others), return_when=asyncio.FIRST_COMPLETED)
        if reading.done() and self._reading is reading:
            self._reading = None
            self._protocol.receive_data(reading.result())

    async def _run_app(self, request: h11.Request) -> None:
        try:
            await self._app(self._scope(request), self._receive, self._send)
        except Exception:
            log.exception("the operator API has failed to answer a request")
        if self._is_lost:
            return
        if self._protocol.our_state is h11.SEND_RESPONSE:
            body = msgspec.json.encode(error_body("internal-error", "the service has failed to answer this"))
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
        """Give the application the next piece of the request, or tell it that the caller has left."""
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
        """Return when the answer is complete or the caller has left; the next request may come meanwhile, and waits."""
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
        """Send what the application answers; nothing, when the caller has left."""
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
        """Write an answer at the pace at which the caller takes it."""
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
        """Refuse what is no HTTP, unless it comes after a complete answer."""
        if self._protocol.our_state is not h11.DONE:
            message = _refusal_message(error, is_head=self._is_between_requests)
            self.refuse(error.error_status_hint, "invalid-request", message)

    def refuse(self, status: int, code: str, message: str) -> None:
        """Answer with an error, unless an answer has begun, and close the connection without reading any more."""
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
        # asyncio's own transport cannot be aborted when it has sent the rest after close() and is closed by now.
        if self._socket.fileno() != -1:
            self._writer.transport.abort()

    async def _skip_body(self) -> None:
        """Read what the application has not read of the request, so that the next one can follow."""
        if self._is_body_unwanted:
            return  # the body need not come
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
            # Some of h11's messages end with the bytes in question, which need not be text.
            reason = str(error).partition(": b")[0]
            return f"the request is not valid HTTP/1.1: {reason}"


def _address(name: Sequence[Any] | None) -> tuple[str, int] | None:
    """Return host and port; None if the caller was gone before anybody could ask."""
    return None if name is None else (name[0], name[1])
