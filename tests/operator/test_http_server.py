"""The operator API's server: its owner notices when it does not come up, or does not stay."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
import uvicorn
from litestar import Litestar, get, post
from litestar.params import JSONBody

from forewarn.operator import http_server
from forewarn.operator.http_server import ServerFailed, run_server


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


async def serve(listener: socket.socket, *, until: asyncio.Event) -> None:
    async with asyncio.timeout(60), run_server(Litestar([]), listener):
        await until.wait()


async def test_server_ends_when_its_owner_does(listener: socket.socket) -> None:
    over = asyncio.Event()
    over.set()
    await serve(listener, until=over)


async def test_error_while_it_starts_is_raised(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise OSError("no more sockets")

    monkeypatch.setattr(uvicorn.Server, "startup", fail)
    with pytest.raises(OSError, match="no more sockets"):
        await serve(listener, until=asyncio.Event())


async def test_error_while_it_runs_is_raised(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(uvicorn.Server, "on_tick", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        await serve(listener, until=asyncio.Event())


async def test_end_that_nobody_asked_for_is_an_error(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stop(*_: object) -> bool:
        return True

    monkeypatch.setattr(uvicorn.Server, "on_tick", stop)
    with pytest.raises(ServerFailed):
        await serve(listener, until=asyncio.Event())


@get("/hello")
async def hello() -> str:
    return "hello"


@post("/sum")
async def add_up(data: JSONBody[list[int]]) -> int:
    return sum(data)


HEAD = b"POST /sum HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n"
SLOW_CALLERS = {
    "says nothing": b"",
    "never ends its head": b"GET /hello HTTP/1.1\r\nHost:",
    "never ends its body": HEAD + b"[1,",
    "never ends its second request": b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\nGET /",
}


@pytest.mark.parametrize("case", SLOW_CALLERS)
async def test_slow_caller_is_cut_off(listener: socket.socket, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setattr(http_server, "READ_TIMEOUT", 0.1)
    async with asyncio.timeout(60), run_server(Litestar([hello, add_up]), listener):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(SLOW_CALLERS[case])
        if case == "never ends its second request":
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()


async def test_caller_who_takes_a_moment_between_pieces_is_answered(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only who is silent is cut off: the waits together may be longer than each may be."""
    waits: list[float] = []
    patient = http_server.TimeoutProtocol._start_read_timer

    def count(self: http_server.TimeoutProtocol) -> None:
        waits.append(http_server.READ_TIMEOUT)
        patient(self)

    monkeypatch.setattr(http_server.TimeoutProtocol, "_start_read_timer", count)
    async with asyncio.timeout(60), run_server(Litestar([hello, add_up]), listener):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        for piece in (HEAD, b"[1,", b"2,3"):
            known = len(waits)
            writer.write(piece)
            while len(waits) == known:  # noqa: ASYNC110 - what the server has read raises no event
                await asyncio.sleep(0.001)
        writer.write(b"]")
        answer = await reader.readuntil(b"\r\n\r\n6")
        assert answer.startswith(b"HTTP/1.1 201")
        writer.close()
