"""Web server that records requests and sends prepared responses."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple


class ReceivedRequest(NamedTuple):
    """A received request."""

    request_line: str
    headers: dict[str, str]
    body: bytes


class RecordingServer:
    """The server: its port, the received requests, and the next responses.

    A response is a status, bytes to send as they are, or None for no response. When `statuses` is empty, it is
    `response`.
    """

    def __init__(self) -> None:
        self.port = 0
        self.received: list[ReceivedRequest] = []
        self.statuses: list[int | bytes | None] = []
        self.response: int | bytes | None = 200

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self.port}/hook"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Receive one request and send the next response."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.received.append(ReceivedRequest(head[0], headers, body))
            status = self.statuses.pop(0) if self.statuses else self.response
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
async def run_recording_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[RecordingServer]:
    """Run the server while the context is open."""
    recording = RecordingServer()
    server = await asyncio.start_server(recording.handle, "127.0.0.1", 0, ssl=tls)
    recording.port = server.sockets[0].getsockname()[1]
    async with server:
        yield recording
