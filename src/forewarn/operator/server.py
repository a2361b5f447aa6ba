"""Serving the operator API on a socket of its own, in the event loop of the service."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from litestar.types import ASGIApp

from forewarn.fleet.tasks import tasks_until_exit

CONNECTIONS = 256
GRACE = 5
"""How long, in seconds, answers under way may take when the service ends."""


class EndedByItself(Exception):
    """The operator API is served no more, though nobody has ended it."""

    def __init__(self) -> None:
        super().__init__("the server of the operator API has ended by itself: its log says why")


class _Server(uvicorn.Server):
    """A server that is started and ended by its owner: signals are none of its business."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()
        self.is_told = False

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def serve_until_told(self, sockets: list[socket.socket]) -> None:
        await self.serve(sockets)
        if not self.is_told:
            raise EndedByItself

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()


@asynccontextmanager
async def serving(app: ASGIApp, listener: socket.socket) -> AsyncIterator[None]:
    """Serve the application as long as the context lasts, then finish the answers that are under way."""
    config = uvicorn.Config(
        app,
        access_log=False,
        http="h11",
        lifespan="off",
        limit_concurrency=CONNECTIONS,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        ws="none",
    )
    server = _Server(config)
    async with tasks_until_exit() as tasks:
        task = tasks.create_task(server.serve_until_told([listener]), name="operator API")
        try:
            await server.is_up.wait()
            yield
        finally:
            server.is_told = server.should_exit = True
            await asyncio.wait([task])
