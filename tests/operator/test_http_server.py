"""The server of the operator API: responses, timeouts, limits and shutdown."""

import asyncio
import errno
import logging
import socket
import ssl
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
import trustme
import uvloop
from litestar import Litestar, get, post
from litestar.enums import ScopeType
from litestar.params import JSONBody
from litestar.types import ASGIApp, Receive, Scope, Send

from forewarn.guest.parser import KEEP_ALIVE
from forewarn.operator import http_server
from forewarn.operator.counters import Counters, ProtocolError, RefuseReason
from forewarn.operator.http_server import run_server
from forewarn.operator.limits import ConnectionLimits
from tests.fleet.fleets import until
from tests.guest.test_parser import EVERY
from tests.operator.test_request_reader import OTHER_STATUS, REFUSED, with_host

GUARD = 60


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@get("/hello")
async def hello() -> str:
    return "hello"


@post("/sum")
async def add_up(data: JSONBody[list[int]]) -> int:
    return sum(data)


@post("/ignore", status_code=200)
async def ignore() -> str:
    return "ignored"


ONE_CONNECTION = ConnectionLimits(total=1)
HELLO = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"
HEAD = b"POST /sum HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n"


@asynccontextmanager
async def connected(
    listener: socket.socket,
    app: ASGIApp | None = None,
    *,
    limits: ConnectionLimits | None = None,
    counters: Counters | None = None,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Serve an application, and connect a client to it."""
    app = app or Litestar([hello, add_up, ignore], logging_config=None)
    async with asyncio.timeout(GUARD), run_server(app, listener, limits=limits, counters=counters):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        try:
            yield reader, writer
        finally:
            writer.close()


async def read_end(reader: asyncio.StreamReader) -> bytes:
    """Return everything until the connection is closed or reset."""
    received = b""
    with suppress(ConnectionResetError):
        while piece := await reader.read(100_000):
            received += piece
    return received


async def test_server_stops_with_its_context(listener: socket.socket) -> None:
    async with asyncio.timeout(GUARD), run_server(Litestar([], logging_config=None), listener):
        pass


async def test_start_error_is_raised(listener: socket.socket) -> None:
    listener.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        async with run_server(Litestar([], logging_config=None), listener):
            pass


async def test_error_in_the_context_is_not_changed(listener: socket.socket) -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        async with run_server(Litestar([], logging_config=None), listener):
            raise RuntimeError("a bug")


async def test_requests_on_one_connection_are_answered_in_order(listener: socket.socket) -> None:
    async with connected(listener) as (reader, writer):
        writer.write(HELLO + HEAD + b"[1,2,3]" + HELLO)
        assert (await reader.readuntil(b"\r\n\r\nhello")).startswith(b"HTTP/1.1 200 OK\r\n")
        assert (await reader.readuntil(b"\r\n\r\n6")).startswith(b"HTTP/1.1 201 Created\r\n")
        assert (await reader.readuntil(b"\r\n\r\nhello")).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_unread_body_is_skipped(listener: socket.socket) -> None:
    async with connected(listener) as (reader, writer):
        writer.write(b"POST /ignore HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000 + HELLO)
        await reader.readuntil(b"\r\n\r\nignored")
        assert (await reader.readuntil(b"\r\n\r\nhello")).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_expect_100_continue_is_answered(listener: socket.socket) -> None:
    async with connected(listener) as (reader, writer):
        writer.write(HEAD.replace(b"Host", b"Expect: 100-continue\r\nHost"))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(b"[1,2,3]")
        assert (await reader.readuntil(b"\r\n\r\n6")).startswith(b"HTTP/1.1 201 Created\r\n")


async def test_unneeded_body_after_expect_100_continue_is_not_requested(
    listener: socket.socket,
) -> None:
    async with connected(listener) as (reader, writer):
        writer.write(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 7\r\n\r\n")
        head, _, _ = (await read_end(reader)).partition(b"\r\n\r\n")
    assert (head.split()[1], head.lower().count(b"connection: close")) == (b"404", 1)


async def test_response_to_head_has_no_body(listener: socket.socket) -> None:
    async def app(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"hello", "more_body": False})

    async with connected(listener, app) as (reader, writer):
        writer.write(
            b"HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\n" + HELLO.replace(b"Host: x", b"Host: x\r\nConnection: close")
        )
        first, second, body = (await read_end(reader)).split(b"\r\n\r\n")
        assert (b"content-length: 5" in first, second.startswith(b"HTTP/1.1 200 "), body) == (True, True, b"hello")


@pytest.mark.parametrize("body", [b"zz\r\n", b"3\r\n[1,"], ids=["invalid chunk", "incomplete body"])
async def test_invalid_body_framing_is_refused(listener: socket.socket, body: bytes) -> None:
    async with connected(listener) as (reader, writer):
        writer.write(HEAD.replace(b"Content-Length: 7", b"Transfer-Encoding: chunked") + body)
        writer.write_eof()
        head, _, refusal = (await read_end(reader)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert msgspec.json.decode(refusal)["error"]["code"] == "invalid-request"


CODES = {400: "invalid-request", 431: "head-too-large", 501: "transfer-encoding-not-allowed"}
NOT_VALID = "the request is not valid HTTP/1.1: "
REFUSALS = {
    "head too large": (
        b"GET /hello HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 20_000,
        431,
        "the request head is larger than 16 KiB",
    ),
    "chunk header too large": (
        HEAD.replace(b"Content-Length: 7", b"Transfer-Encoding: chunked") + b"1;" + b"a" * 20_000,
        431,
        "the chunk header or trailer of the request body is larger than 16 KiB",
    ),
    "unknown coding": (
        HEAD.replace(b"Content-Length: 7", b"Transfer-Encoding: gzip, chunked"),
        501,
        "the only supported Transfer-Encoding is a single chunked",
    ),
    "request line": (b"\x16\x03\x01\r\n\r\n", 400, NOT_VALID + "illegal request line"),
    "missing host": (b"GET /hello HTTP/1.1\r\n\r\n", 400, NOT_VALID + "Missing mandatory Host: header"),
    "chunk footer": (
        HEAD.replace(b"Content-Length: 7", b"Transfer-Encoding: chunked") + b"3\r\n[1]xx0\r\n\r\n",
        400,
        NOT_VALID + "malformed chunk footer",
    ),
    "two framings": (
        HEAD.replace(b"Host: x", b"Host: x\r\nTransfer-Encoding: chunked") + b"3\r\n[1]\r\n0\r\n\r\n",
        400,
        NOT_VALID + "Content-Length and Transfer-Encoding are mutually exclusive",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_refusal_has_a_reason_and_closes_the_connection(listener: socket.socket, case: str) -> None:
    request, status, message = REFUSALS[case]
    async with connected(listener) as (reader, writer):
        writer.write(request)
        head, _, refusal = (await read_end(reader)).partition(b"\r\n\r\n")
    assert (head.split()[1], msgspec.json.decode(refusal)["error"]) == (
        str(status).encode(),
        {"code": CODES[status], "message": message, "details": {}},
    )
    assert head.count(b"connection: close") == 1


class Echo:
    """An application that records requests, and reads their bodies or not."""

    def __init__(self, *, reads_body: bool) -> None:
        self._reads_body = reads_body
        self.asked: list[tuple[str, str, bytes]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, is_complete = b"", not self._reads_body
        while not is_complete and (message := await receive())["type"] == "http.request":
            body += message["body"]
            is_complete = not message["more_body"]
        query = f"?{scope['query_string'].decode()}" if scope["query_string"] else ""
        if is_complete:
            assert scope["type"] == ScopeType.HTTP
            self.asked.append((scope["method"], scope["path"] + query, body))
        await send({"type": "http.response.start", "status": 403, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"hello", "more_body": False})


@pytest.mark.parametrize("case", REFUSED)
async def test_ambiguous_request_is_refused_and_the_connection_closed(listener: socket.socket, case: str) -> None:
    """The hard cases of the guest endpoint and those of RFC 9112. What follows such a request is not read."""
    app, counters = Echo(reads_body=True), Counters()
    async with connected(listener, app, counters=counters) as (reader, writer):
        writer.write(HELLO + REFUSED[case] + HELLO)
        assert (await reader.readuntil(b"\r\n\r\nhello")).startswith(b"HTTP/1.1 403 ")
        head, _, refusal = (await read_end(reader)).partition(b"\r\n\r\n")
    status = OTHER_STATUS.get(case, 400)
    assert int(head.split()[1]) == status
    assert head.count(b"connection: close") == 1
    assert msgspec.json.decode(refusal)["error"]["code"] == CODES[status]
    assert app.asked == [("GET", "/hello", b"")]
    assert counters.protocol_errors[ProtocolError.MALFORMED] == 1


@pytest.mark.parametrize("case", REFUSED)
async def test_nothing_is_read_after_an_ambiguous_body_that_nobody_needs(listener: socket.socket, case: str) -> None:
    """As if the token is missing: the response may be sent before the body is read."""
    app = Echo(reads_body=False)
    async with connected(listener, app) as (reader, writer):
        writer.write(HELLO + REFUSED[case] + HELLO)
        await read_end(reader)
    assert [asked for asked in app.asked if asked[1] == "/hello"] == [("GET", "/hello", b"")]


@pytest.mark.parametrize("case", EVERY)
async def test_hard_but_valid_request_is_answered_and_nothing_of_it_is_the_next(
    listener: socket.socket, case: str
) -> None:
    """The hard cases of the guest endpoint: chunks, trailers, offers to upgrade, expectations."""
    raw, read = EVERY[case]
    app = Echo(reads_body=True)
    async with connected(listener, app) as (reader, writer):
        writer.write(with_host(raw) + HELLO.replace(b"Host", b"Connection: close\r\nHost"))
        await read_end(reader)
    is_last = read.connection_line != KEEP_ALIVE  # HTTP/1.0 is always closed here
    assert app.asked == [(read.method, read.target, read.body), *([] if is_last else [("GET", "/hello", b"")])]


async def test_refusal_of_a_body_is_sent_before_the_connection_closes(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the socket buffer is full."""
    lost: list[http_server._Connection] = []

    def lose(connection: http_server._Connection) -> None:
        lost.append(connection)

    monkeypatch.setattr(http_server._Connection, "_lose", lose)
    async with connected(listener) as (reader, writer):
        writer.write(REFUSALS["chunk footer"][0])
        assert (await read_end(reader)).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert lost == []


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"http://a:1/v1/events?x=1", ("/v1/events", b"x=1", [(b"host", b"a:1")])),
        (b"HTTPS://a?x=1", ("/", b"x=1", [(b"host", b"a")])),
        (b"http://a", ("/", b"", [(b"host", b"a")])),
        (b"/http://a/b", ("/http://a/b", b"", [(b"host", b"x")])),
        (b"*", ("*", b"", [(b"host", b"x")])),
    ],
)
async def test_absolute_form_target_is_accepted(
    listener: socket.socket, target: bytes, expected: tuple[str, bytes, list[tuple[bytes, bytes]]]
) -> None:
    asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def app(scope: Scope, _: Receive, __: Send) -> None:
        asked.set_result((scope["path"], scope["query_string"], scope["headers"]))

    async with connected(listener, app) as (_, writer):
        writer.write(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await asked == expected


async def test_failing_application_is_answered_with_500(
    listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(*_: object) -> None:
        raise RuntimeError("a bug")

    async with connected(listener, app) as (reader, writer):
        writer.write(HELLO)
        head, _, refusal = (await read_end(reader)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
        assert msgspec.json.decode(refusal)["error"]["code"] == "internal-error"
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_unfinished_response_is_aborted(listener: socket.socket) -> None:
    """So that clients do not mistake it for a complete response."""

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hel", "more_body": True})

    async with connected(listener, app) as (reader, writer):
        writer.write(HELLO)
        assert not (await read_end(reader)).endswith(b"0\r\n\r\n")


async def test_application_is_notified_of_a_disconnect(listener: socket.socket) -> None:
    heard: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        heard.set_result([(await receive())["type"], (await receive())["type"]])

    async with connected(listener, app) as (_, writer):
        writer.write(HELLO)
        writer.close()
        assert await heard == ["http.request", "http.disconnect"]


async def test_application_is_notified_of_the_complete_response_and_the_next_request_is_kept(
    listener: socket.socket,
) -> None:
    heard: list[str] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        ends = asyncio.ensure_future(receive())
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"hello", "more_body": False})
        heard.append((await ends)["type"])

    async with connected(listener, app) as (reader, writer):
        writer.write(HELLO + HELLO)
        await reader.readuntil(b"\r\n\r\nhello")
        await reader.readuntil(b"\r\n\r\nhello")
        writer.write(HELLO)
        await reader.readuntil(b"\r\n\r\nhello")
    assert heard == ["http.disconnect"] * 3


async def test_application_can_return_while_it_waits_for_a_disconnect(
    listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    """The next request is read while the application still waits for the end of the last one."""
    listening: list[asyncio.Future[Any]] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        listening.append(asyncio.ensure_future(receive()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"hello", "more_body": False})

    async with connected(listener, app) as (reader, writer):
        for _ in range(3):
            writer.write(HELLO)
            await reader.readuntil(b"\r\n\r\nhello")
        assert [message["type"] for message in await asyncio.gather(*listening)] == ["http.disconnect"] * 3
    assert caplog.records == []


async def test_unfinished_response_is_completed_at_shutdown(listener: socket.socket) -> None:
    is_asked, may_answer = asyncio.Event(), asyncio.Event()

    async def app(_: Scope, __: Receive, send: Send) -> None:
        is_asked.set()
        await may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"hello", "more_body": False})

    async def read_answer(reader: asyncio.StreamReader) -> bytes:
        may_answer.set()
        return await read_end(reader)

    async with asyncio.timeout(GUARD):
        async with run_server(app, listener):
            idle, idle_writer = await asyncio.open_connection(*listener.getsockname())
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(HELLO)
            await is_asked.wait()
            answer = asyncio.create_task(read_answer(reader))
        assert (await answer).endswith(b"\r\nconnection: close\r\n\r\nhello")
        assert await idle.read() == b""
        writer.close()
        idle_writer.close()


SLOW_CALLERS = {
    "sends nothing": b"",
    "never ends its head": b"GET /hello HTTP/1.1\r\nHost:",
    "never ends its body": HEAD + b"[1,",
    "never ends its second request": HELLO + b"GET /",
    "never starts its second request": HELLO,
}


@pytest.mark.parametrize("case", SLOW_CALLERS)
async def test_slow_client_is_disconnected(listener: socket.socket, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setattr(http_server, "READ_TIMEOUT", 0.1)
    monkeypatch.setattr(http_server, "IDLE_TIMEOUT", 0.1)
    async with connected(listener) as (reader, writer):
        writer.write(SLOW_CALLERS[case])
        if "second request" in case:
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
        assert await read_end(reader) == b""


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_request_that_arrives_during_a_stall_is_answered(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    monkeypatch.setattr(http_server, "IDLE_TIMEOUT", 0.1)
    monkeypatch.setattr(http_server, "LAST_LOOK", GUARD)

    async def stall() -> bytes:
        async with connected(listener, counters=counters):
            with socket.create_connection(listener.getsockname()) as client:
                await until(lambda: counters.connections == 2)
                client.sendall(HELLO)
                time.sleep(2 * http_server.IDLE_TIMEOUT)  # noqa: ASYNC251  # a stall: the event loop cannot run
                return await asyncio.to_thread(client.recv, 15)

    counters = Counters()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(stall()) == b"HTTP/1.1 200 OK"


async def test_client_that_reads_nothing_is_disconnected(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "WRITE_TIMEOUT", 0.1)
    is_over = asyncio.Event()

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await asyncio.wait_for(_next_or_none(receive), GUARD)) is None:
            await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
        is_over.set()

    async with connected(listener, app) as (_, writer):
        writer.write(HELLO)
        await is_over.wait()


async def _next_or_none(receive: Receive) -> object | None:
    """Return data that is available at once, or None."""
    try:
        async with asyncio.timeout(0.001):
            return await receive()
    except TimeoutError:
        return None


async def test_client_with_short_pauses_is_answered(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait has its own timeout; their sum may be longer."""
    limits: list[float] = []
    received: asyncio.Queue[bytes] = asyncio.Queue()
    timeout = asyncio.timeout

    def count(delay: float) -> asyncio.Timeout:
        limits.append(delay)
        return timeout(delay)

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive()).get("more_body"):
            received.put_nowait(message["body"])  # type: ignore[typeddict-item]  # a piece of the request
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async with connected(listener, app) as (reader, writer):
        monkeypatch.setattr("forewarn.operator.http_server.asyncio.timeout", count)
        writer.write(HEAD)
        for piece in (b"[1,", b"2,3", b"]"):
            known = len(limits)
            writer.write(piece)
            assert await received.get() == piece
            assert limits[known - 1 :] != []
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
        assert limits.count(http_server.READ_TIMEOUT) >= 4


async def test_connection_over_the_limit_is_refused(listener: socket.socket) -> None:
    async with connected(listener, limits=ONE_CONNECTION) as (first, first_writer):
        first_writer.write(HELLO)
        await first.readuntil(b"\r\n\r\nhello")
        second, second_writer = await asyncio.open_connection(*listener.getsockname())
        head, _, refusal = (await second.read()).partition(b"\r\n\r\n")
        second_writer.close()
        first_writer.write(HELLO)
        await first.readuntil(b"\r\n\r\nhello")
    assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert msgspec.json.decode(refusal)["error"] == {
        "code": "too-many-connections",
        "message": "the limit of connections is reached; try again later",
        "details": {},
    }


async def test_dashboards_behind_one_proxy_are_within_the_limits(listener: socket.socket) -> None:
    """50 of them, each with a stream and six other connections, as browsers open them."""
    async with asyncio.timeout(GUARD), run_server(Litestar([hello], logging_config=None), listener):
        opened = [await asyncio.open_connection(*listener.getsockname()) for _ in range(50 * 7)]
        for _, writer in opened:
            writer.write(HELLO)
        for reader, writer in opened:
            assert (await reader.readuntil(b"\r\n\r\nhello")).startswith(b"HTTP/1.1 200 OK\r\n")
            writer.close()


async def test_one_address_cannot_shut_out_another(listener: socket.socket) -> None:
    counters = Counters()
    async with connected(listener, limits=ConnectionLimits(per_address=1), counters=counters) as (reader, writer):
        writer.write(HELLO)
        await reader.readuntil(b"\r\n\r\nhello")
        same, same_writer = await asyncio.open_connection(*listener.getsockname())
        assert (await read_end(same)).startswith(b"HTTP/1.1 503 ")
        other, other_writer = await asyncio.open_connection(*listener.getsockname(), local_addr=("127.0.0.2", 0))
        other_writer.write(HELLO)
        assert (await other.readuntil(b"\r\n\r\nhello")).startswith(b"HTTP/1.1 200 ")
        same_writer.close()
        other_writer.close()
    assert counters.refusals[RefuseReason.ADDRESS] == 1
    assert counters.connections == 0


async def test_lack_of_open_files_ends_nothing(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also a caller that disconnects before it is accepted."""
    monkeypatch.setattr(http_server, "ACCEPT_PAUSE", 0)
    counters = Counters()
    loop = asyncio.get_running_loop()
    accept = loop.sock_accept
    errors = [OSError(errno.EMFILE, "too many"), OSError(errno.ECONNABORTED, "gone")]

    async def fail_first(sock: socket.socket) -> Any:
        if errors:
            raise errors.pop(0)
        return await accept(sock)

    monkeypatch.setattr(loop, "sock_accept", fail_first)
    async with connected(listener, counters=counters) as (reader, writer):
        writer.write(HELLO)
        assert (await reader.readuntil(b"\r\n\r\nhello")).startswith(b"HTTP/1.1 200 ")
    assert counters.refusals[RefuseReason.OPEN_FILES] == 1
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.fixture
def tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context


async def test_tls_handshake_has_a_timeout(
    listener: socket.socket, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "TLS_TIMEOUT", 0.1)
    counters = Counters()
    async with asyncio.timeout(GUARD), run_server(Litestar([], logging_config=None), listener, tls, counters=counters):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        assert await read_end(reader) == b""
        writer.close()
        await until(lambda: counters.connections == 0)
    assert counters.timed_out == 1


async def test_silence_after_the_tls_handshake_has_a_timeout(
    listener: socket.socket, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "IDLE_TIMEOUT", 0.1)
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    counters = Counters()
    async with asyncio.timeout(GUARD), run_server(Litestar([], logging_config=None), listener, tls, counters=counters):
        reader, writer = await asyncio.open_connection(*listener.getsockname(), ssl=trusting)
        assert await read_end(reader) == b""
        writer.close()
        await until(lambda: counters.connections == 0)
    assert counters.timed_out == 1


async def test_failed_tls_handshakes_are_counted_and_logged_once(
    listener: socket.socket, tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    counters = Counters()
    async with asyncio.timeout(GUARD), run_server(Litestar([], logging_config=None), listener, tls, counters=counters):
        for _ in range(3):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(HELLO)
            assert not (await read_end(reader)).startswith(b"HTTP")
            writer.close()
        await until(lambda: counters.connections == 0)
    assert counters.protocol_errors[ProtocolError.TLS] == 3
    assert caplog.messages == ["127.0.0.1: the TLS handshake failed: http request"]
    assert caplog.records[0].exc_info is None


@pytest.mark.parametrize("case", ["request line", "head too large", "chunk footer"])
async def test_protocol_errors_are_counted_and_logged_once_without_a_traceback(
    listener: socket.socket, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    request, _, message = REFUSALS[case]
    counters = Counters()
    async with asyncio.timeout(GUARD), run_server(Litestar([add_up], logging_config=None), listener, counters=counters):
        for _ in range(5):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(request)
            await read_end(reader)
            writer.close()
    assert sum(counters.protocol_errors.values()) == 5
    assert counters.protocol_errors[ProtocolError.TOO_LARGE] == (5 if "large" in case else 0)
    assert [(record.getMessage(), record.exc_info) for record in caplog.records] == [(f"127.0.0.1: {message}", None)]


@pytest.fixture
def deaf_caller(listener: socket.socket) -> Iterator[socket.socket]:
    """A client that sends a request and reads nothing; its socket buffer is small."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    with socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        caller.connect(listener.getsockname())
        caller.sendall(HELLO)
        yield caller


async def answer_and_close(_: Scope, __: Receive, send: Send) -> None:
    headers = [(b"content-length", b"60000"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"x" * 60_000, "more_body": False})


async def test_connection_counts_until_its_response_is_sent(
    listener: socket.socket, deaf_caller: socket.socket
) -> None:
    is_answered = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer_and_close(scope, receive, send)
        is_answered.set()

    def read_answer() -> int:
        return sum(iter(lambda: len(deaf_caller.recv(100_000)), 0))

    async with asyncio.timeout(GUARD), run_server(app, listener, limits=ONE_CONNECTION):
        await is_answered.wait()
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        assert (await read_end(reader)).startswith(b"HTTP/1.1 503 ")
        writer.close()
        assert await asyncio.to_thread(read_answer) > 60_000


async def test_client_that_never_reads_the_rest_is_disconnected(
    listener: socket.socket, deaf_caller: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may keep its buffered data; the next client gets the free connection."""
    monkeypatch.setattr(http_server, "WRITE_TIMEOUT", 0.1)
    async with asyncio.timeout(GUARD), run_server(answer_and_close, listener, limits=ONE_CONNECTION):
        answer = b"HTTP/1.1 503 "
        while answer.startswith(b"HTTP/1.1 503 "):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(HELLO)
            answer = await reader.read(100)
            writer.close()
        assert answer.startswith(b"HTTP/1.1 200 ")


async def test_shutdown_does_not_wait_for_blocked_clients(
    listener: socket.socket, deaf_caller: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "SHUTDOWN_TIMEOUT", 0.1)
    monkeypatch.setattr(http_server, "WRITE_TIMEOUT", 2 * GUARD)
    is_answering = asyncio.Event()

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 60_000, "more_body": True})
        is_answering.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(GUARD) as guard, run_server(app, listener):
        await is_answering.wait()
    assert not guard.expired()


async def test_each_wait_for_a_slow_client_has_its_own_timeout(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow client gets a response of any size if it reads each chunk in time."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)  # else the kernel may take all of it at once
    limits: list[float] = []
    unsent: list[int] = []
    timeout, drain = asyncio.timeout, asyncio.StreamWriter.drain

    def count(delay: float) -> asyncio.Timeout:
        limits.append(delay)
        return timeout(delay)

    async def note_unsent(writer: asyncio.StreamWriter) -> None:
        unsent.append(writer.transport.get_write_buffer_size())
        await drain(writer)

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": b"x" * 4_000_000, "more_body": False})

    async with connected(listener, app) as (reader, writer):
        monkeypatch.setattr("forewarn.operator.http_server.asyncio.timeout", count)
        monkeypatch.setattr(asyncio.StreamWriter, "drain", note_unsent)
        writer.write(HELLO)
        assert (await read_end(reader)).count(b"x") == 4_000_000
    assert limits.count(http_server.WRITE_TIMEOUT) >= len(unsent) > 0
    assert max(unsent) <= 2 * http_server.WRITE_BYTES


def test_reset_in_the_middle_of_a_stream_is_no_internal_error(
    listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    """On uvloop, which the service uses: it raises RuntimeError for a write to a connection that was reset."""
    is_over = threading.Event()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            for _ in range(50):
                await send({"type": "http.response.body", "body": b"x" * 1_000, "more_body": True})
                await asyncio.sleep(0.01)
        finally:
            is_over.set()

    def reset() -> None:
        with socket.create_connection(listener.getsockname()) as client:
            client.sendall(HELLO)
            client.recv(1_000)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        is_over.wait(GUARD)

    async def serve() -> None:
        async with asyncio.timeout(GUARD), run_server(stream, listener):
            await asyncio.to_thread(reset)

    uvloop.run(serve())
    assert is_over.is_set()
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []
