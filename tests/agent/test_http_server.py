"""The agent's HTTP server over real sockets: responses, limits, and robustness against bad clients."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import hypothesis.strategies as st
import pytest
from hypothesis import given

from forewarn.agent import http_server
from forewarn.agent.http_server import HttpServer, InvalidRequest, Request, Response, parse_request
from tests.agent.harness import until
from tests.agent.http_requests import ask, say


def respond(request: Request) -> Response:
    if request.path == "/bug":
        raise RuntimeError("a bug")
    return Response(200, f"{request.method} {request.path}".encode())


@pytest.fixture
async def port() -> AsyncIterator[int]:
    listener = HttpServer(respond)
    yield await listener.listen("127.0.0.1", 0)
    await listener.aclose()


@pytest.mark.parametrize(
    ("text", "first", "body"),
    [
        (b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 OK", b"GET /a"),
        (b"GET /a HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK", b"GET /a"),
        (b"HEAD /a HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK", b""),
        (b"OPTIONS / HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK", b"OPTIONS /"),
        (b"GET /bug HTTP/1.1\r\n\r\n", b"HTTP/1.1 500 Internal Server Error", None),
        (b"GET a HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 Bad Request", None),
        (b"GET /a HTTP/2\r\n\r\n", b"HTTP/1.1 400 Bad Request", None),
        (b"GET /a HTTP/1.1\r\nno colon\r\n\r\n", b"HTTP/1.1 400 Bad Request", None),
        (b"\x16\x03\x01\r\n\r\n", b"HTTP/1.1 400 Bad Request", None),
        (b"GET /" + b"a" * 20_000 + b"\r\n\r\n", b"HTTP/1.1 431 Request Header Fields Too Large", None),
    ],
    ids=lambda value: repr(value[:30]) if isinstance(value, bytes) else None,
)
async def test_answers(port: int, text: bytes, first: bytes, body: bytes | None) -> None:
    answer = await say(port, text)
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == first
    assert b"Connection: close" in head
    if body is not None:
        assert rest == body


async def test_disconnected_or_slow_clients_do_not_block_others(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "TIMEOUT", 0.05)
    with socket.create_connection(("127.0.0.1", port)) as gone:
        gone.sendall(b"GET /")
    assert await say(port, b"GET / HT") == b""
    assert (await ask(port, "/x"))[0] == 200


async def test_connections_over_the_limit_are_closed(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 2)
    kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with suppress(ConnectionResetError):
        assert await reader.read() == b""
    for _, each in (*kept, (reader, writer)):
        each.close()


@given(st.binary(max_size=200))
def test_arbitrary_bytes_parse_or_raise_invalid_request(noise: bytes) -> None:
    try:
        parse_request(noise + b"\r\n\r\n")
    except InvalidRequest:
        return
    assert noise


def test_error_response_removes_unsafe_characters() -> None:
    assert http_server.error_response(400, 'a"b\\c\r\n\x1b[31m').body == b'{"error":"a?b?c???[31m"}\n'


async def test_connection_accepted_during_close_is_closed() -> None:
    listener = HttpServer(lambda _: Response(200))
    accepted: list[asyncio.StreamWriter] = []

    def end_before_its_first_turn(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        listener._accept(reader, writer)
        for talk in listener._connections:
            talk.cancel()
        accepted.append(writer)

    async def call_in_vain() -> None:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await until(lambda: bool(accepted))
        await until(accepted.pop().transport.is_closing)
        writer.close()

    server = await asyncio.start_server(end_before_its_first_turn, "127.0.0.1", 0)
    async with server:
        await call_in_vain()
        await listener.aclose()
        await call_in_vain()
