"""A web server that writes down what it is sent, and answers what it is told to, or nothing."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple


class Received(NamedTuple):
    """A request as it came."""

    first: str
    headers: dict[str, str]
    body: bytes


class Web:
    """The server: its port, what came, and what it says next. `None` is silence; bytes are said as they are."""

    def __init__(self) -> None:
        self.port = 0
        self.received: list[Received] = []
        self.statuses: list[int | bytes | None] = []

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/hook?a=b"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request; answer it with the next status, and after the last with 200."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.received.append(Received(head[0], headers, body))
            status = self.statuses.pop(0) if self.statuses else 200
            if status is None:
                await reader.read()
            elif isinstance(status, bytes):
                writer.write(status)
                await writer.drain()
            else:
                writer.write(f"HTTP/1.1 {status} As told\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n".encode())
                await writer.drain()
        finally:
            writer.close()


@asynccontextmanager
async def web_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[Web]:
    """Serve for a while."""
    web = Web()
    server = await asyncio.start_server(web.serve, "127.0.0.1", 0, ssl=tls)
    web.port = server.sockets[0].getsockname()[1]
    async with server:
        yield web
