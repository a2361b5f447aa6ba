"""HTTP server of the operator API: HTTP/1.1 by h11 for one ASGI application, with timeouts and connection limits.

Forewarn has its own server because it must stop together with its owner, must not touch signals, must limit the time of
every read, and must count connections before their TLS handshake. General-purpose servers allow this only by patching
private parts.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import unquote

import h11
import msgspec
from litestar.types import ASGIApp

from forewarn.fleet.event_loop import tasks_until_exit
from forewarn.operator.counters import Counters, ProtocolError, RefuseReason
from forewarn.operator.error_responses import (
    INTERNAL_ERROR,
    INTERNAL_ERROR_MESSAGE,
    INVALID_REQUEST,
    error_body,
    send_error,
    status_of,
)
from forewarn.operator.limits import CallerLog, ConnectionLimits, ConnectionSlots, caller_address
from forewarn.operator.request_reader import ABSOLUTE_FORM, HEAD_BYTES, RequestReader

log = logging.getLogger(__name__)

CODES_BY_HINT: dict[int, str] = {
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "head-too-large",
    HTTPStatus.NOT_IMPLEMENTED: "transfer-encoding-not-allowed",
}
"""The error codes for the hints of h11; all other invalid HTTP is an invalid request."""

BACKLOG = 2_048
"""How many further connections may wait to be accepted."""

SHUTDOWN_TIMEOUT = 5.0
"""How long, in seconds, unfinished responses may take when the service stops."""

TLS_TIMEOUT = 5.0
"""How long, in seconds, a TLS handshake may take: two round trips, which take less than a second on slow links, too."""

READ_TIMEOUT = 30.0
"""How long, in seconds, a client may take to send the head of a request, and each chunk of its body."""

IDLE_TIMEOUT = 5.0
"""How long, in seconds, a connection may be silent before its first request, which clients send at once, and between
requests."""

LAST_LOOK = 0.1
"""How long, in seconds, the server still reads after IDLE_TIMEOUT: if the machine stalls, that is over before the event
loop has read a request that arrived in time."""

WRITE_TIMEOUT = 60.0
"""How long, in seconds, a client may take to read each chunk of a response, and the rest when the connection ends."""

WRITE_BYTES = 64 * 1024
"""The size of such a chunk, and how much of a response is buffered."""

READ_BYTES = 64 * 1024

ACCEPT_PAUSE = 1.0
"""How long, in seconds, no connection is accepted after the system had no resources for one."""

OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]


@asynccontextmanager
async def run_server(
    app: ASGIApp,
    listener: socket.socket,
    tls: ssl.SSLContext | None = None,
    *,
    limits: ConnectionLimits | None = None,
    counters: Counters | None = None,
) -> AsyncIterator[None]:
    """Serve the application while the context is open, then finish the unfinished responses."""
    async with tasks_until_exit() as tasks:
        server = _Server(app, listener, tls, limits or ConnectionLimits(), counters or Counters(), tasks)
        accepting = tasks.create_task(server.accept(), name="listener of the operator API")
        try:
            yield
        finally:
            await server.stop(accepting)


class _Server:
    """Accepts connections, each in its own task, up to the limits."""

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        tls: ssl.SSLContext | None,
        limits: ConnectionLimits,
        counters: Counters,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._app, self._listener, self._tls, self._tasks = app, listener, tls, tasks
        self._counters = counters
        self._slots = ConnectionSlots(limits, counters)
        self._log = CallerLog()
        self._connections: dict[_Connection, asyncio.Task[None] | None] = {}
        listener.listen(BACKLOG)
        listener.setblocking(False)

    async def accept(self) -> None:
        """Accept connections until the task is cancelled. A refused one costs neither a task nor a TLS handshake."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, name = await loop.sock_accept(self._listener)
            except OSError as error:
                if error.errno in OUT_OF_RESOURCES:
                    self._slots.refuse(RefuseReason.OPEN_FILES)
                    await asyncio.sleep(ACCEPT_PAUSE)
                continue  # otherwise the caller has disconnected in the meantime
            address = caller_address(name[0])
            if self._slots.acquire(address):
                self._tasks.create_task(self._serve(accepted, address), name="connection of the operator API")
            else:
                self._refuse(accepted)

    async def stop(self, accepting: asyncio.Task[None]) -> None:
        """Accept no more connections, and finish the unfinished responses."""
        accepting.cancel()
        for connection in self._connections:
            connection.stop()
        await asyncio.wait((accepting,))
        self._listener.close()
        answering = [
            task for connection, task in self._connections.items() if task is not None and connection.is_answering
        ]
        if answering:
            await asyncio.wait(answering, timeout=SHUTDOWN_TIMEOUT)
        self._slots.close()

    def _refuse(self, accepted: socket.socket) -> None:
        """Answer in plain HTTP if that is spoken here: a new connection has room for it. Then close."""
        with accepted, suppress(OSError):
            if self._tls is None:
                accepted.send(_TOO_MANY_CONNECTIONS)

    async def _serve(self, accepted: socket.socket, address: str) -> None:
        try:
            streams = await self._open_streams(accepted, address)
            if streams is None:
                return
            connection = _Connection(self._app, *streams, self._counters, self._log, address)
            self._connections[connection] = asyncio.current_task()
            try:
                await connection.serve()
            finally:
                del self._connections[connection]
        finally:
            self._slots.release(address)

    async def _open_streams(
        self, accepted: socket.socket, address: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Return the streams of a new connection, after its TLS handshake; None if the handshake fails."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=READ_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            async with asyncio.timeout(TLS_TIMEOUT):
                transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=self._tls)
        except ssl.SSLError as error:
            self._counters.protocol_errors[ProtocolError.TLS] += 1
            reason = (error.reason or "unknown reason").replace("_", " ").lower()
            self._log.warn(address, f"the TLS handshake failed: {reason}", now=loop.time())
        except TimeoutError:
            self._counters.timed_out += 1
        except OSError:
            pass  # the caller has disconnected
        else:
            return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
        return None


class _Connection:
    """A client's connection: requests one after the other, each answered by the application."""

    def __init__(
        self,
        app: ASGIApp,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        counters: Counters,
        caller_log: CallerLog,
        address: str,
    ) -> None:
        self._app, self._reader, self._writer = app, reader, writer
        self._counters, self._log, self._address = counters, caller_log, address
        self._socket: socket.socket = writer.get_extra_info("socket")
        writer.transport.set_write_buffer_limits(high=WRITE_BYTES)
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._requests = RequestReader()
        self._is_between_requests = True
        self._is_stopping = False
        self._is_lost = False
        self._is_head_request = False
        self._is_connect_request = False
        """Whether the client takes us for a proxy, and would send another protocol next."""
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
                self._requests.start_next()
        except h11.RemoteProtocolError as error:
            self._refuse_request(error)
        except TimeoutError:
            self._counters.timed_out += 1
            self._abort()
        except OSError:
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
        self._is_connect_request = request.method == b"CONNECT"
        self._is_answered = asyncio.Event()
        await self._run_app(request)
        if self._is_lost or self._is_stopping:
            return False
        await self._skip_body()
        self._is_between_requests = True
        return self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE

    async def _read_head(self) -> h11.Request | None:
        """Read the whole head of a request within the time limit; None if the client has disconnected."""
        if not self._requests:
            try:
                async with asyncio.timeout(IDLE_TIMEOUT):
                    await self._read()
            except TimeoutError:
                async with asyncio.timeout(LAST_LOOK):
                    await self._read()
        async with asyncio.timeout(READ_TIMEOUT):
            event = await self._next_event()
        return event if isinstance(event, h11.Request) else None

    async def _next_event(self) -> Any:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            if (received := self._requests.take()) or self._requests.is_closed:
                self._protocol.receive_data(received)
                continue
            if self._protocol.they_are_waiting_for_100_continue:
                self._write_now(self._protocol.send(h11.InformationalResponse(status_code=100, headers=[])))
            await self._read()
        return event

    async def _read(self, *others: asyncio.Future[Any]) -> None:
        """Read until data arrives or one of `others` is done; an unfinished read is kept for the next call."""
        reading = self._reading = self._reading or asyncio.ensure_future(self._reader.read(READ_BYTES))
        await asyncio.wait((reading, *others), return_when=asyncio.FIRST_COMPLETED)
        if reading.done() and self._reading is reading:
            self._reading = None
            self._requests.receive(reading.result())

    async def _run_app(self, request: h11.Request) -> None:
        try:
            await self._app(self._scope(request), self._receive, self._send)
        except Exception:
            log.exception("internal error in the operator API; answering 500")
        if self._is_lost:
            return
        if self._protocol.our_state is h11.SEND_RESPONSE:
            await send_error(self._send, INTERNAL_ERROR, INTERNAL_ERROR_MESSAGE, [(b"connection", b"close")])
        elif self._protocol.our_state is h11.SEND_BODY:
            self._lose()

    def _scope(self, request: h11.Request) -> Any:
        target, headers = request.target, list(request.headers)
        if match := ABSOLUTE_FORM.fullmatch(target):
            host, rest = match["host"], match["rest"]
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
                if self._requests.is_closed or len(self._requests) > READ_BYTES:
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

    def _write_now(self, data: bytes | None) -> None:
        """Write a short message, unless the client has reset the connection: uvloop would raise RuntimeError."""
        if data and not self._writer.is_closing():
            self._writer.write(data)

    async def _write(self, answer: bytes) -> None:
        """Write a response as fast as the client reads it."""
        unsent = memoryview(answer)
        try:
            while unsent and not self._is_lost:
                if self._writer.is_closing():  # as above
                    self._lose()
                    break
                self._writer.write(unsent[:WRITE_BYTES])
                unsent = unsent[WRITE_BYTES:]
                if self._writer.transport.get_write_buffer_size() > WRITE_BYTES:  # else there is nothing to wait for
                    async with asyncio.timeout(WRITE_TIMEOUT):
                        await self._writer.drain()
        except (OSError, TimeoutError):
            self._lose()

    def _response(self, status: int, headers: Headers) -> h11.Response:
        own = [(b"date", formatdate(usegmt=True).encode())]
        self._is_body_unwanted = self._protocol.they_are_waiting_for_100_continue
        if self._is_stopping or self._is_body_unwanted or self._is_connect_request:
            own.append((b"connection", b"close"))
        return h11.Response(status_code=status, headers=[*headers, *own], reason=HTTPStatus(status).phrase.encode())

    def _refuse_request(self, error: h11.RemoteProtocolError) -> None:
        """Answer invalid HTTP with an error, unless a response has started, and close without further reads."""
        is_too_large = error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        self._counters.protocol_errors[ProtocolError.TOO_LARGE if is_too_large else ProtocolError.MALFORMED] += 1
        message = _refusal_message(error, is_head=self._is_between_requests)
        self._log.warn(self._address, message, now=asyncio.get_running_loop().time())
        if self._protocol.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            code = CODES_BY_HINT.get(error.error_status_hint, INVALID_REQUEST)
            body = msgspec.json.encode(error_body(code, message))
            response = self._response(status_of(code), _final_headers(body))
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self._write_now(self._protocol.send(event))
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


def _full_response() -> bytes:
    """Return the whole response to a connection that is one too many."""
    code = "too-many-connections"
    status = HTTPStatus(status_of(code))
    body = msgspec.json.encode(error_body(code, "the limit of connections is reached; try again later"))
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        "retry-after: 5\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


_TOO_MANY_CONNECTIONS = _full_response()


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
