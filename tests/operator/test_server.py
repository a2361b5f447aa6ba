"""The operator API's server: its owner notices when it does not come up, or does not stay."""

import asyncio
import socket
from collections.abc import Iterator

import pytest
import uvicorn
from litestar import Litestar

from forewarn.operator.server import EndedByItself, serving


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


async def serve(listener: socket.socket, *, until: asyncio.Event) -> None:
    async with asyncio.timeout(60), serving(Litestar([]), listener):
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

    monkeypatch.setattr(uvicorn.Server, "main_loop", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        await serve(listener, until=asyncio.Event())


async def test_end_that_nobody_asked_for_is_an_error(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stop(*_: object) -> None:
        pass

    monkeypatch.setattr(uvicorn.Server, "main_loop", stop)
    with pytest.raises(EndedByItself):
        await serve(listener, until=asyncio.Event())
