"""Minimal HTTP client: one request without proxy, redirect or keep-alive. Cancelling the call closes the connection."""

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

LONGEST_LINE = 65_536
MOST_HEADERS = 1_000
PORTS = {"http": 80, "https": 443}


class InvalidResponse(Exception):
    """Somebody answered, but not as HTTP does."""


class Request(NamedTuple):
    """What is sent. Its URL may be secret; `origin` says as much of it as others may know."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def origin(self) -> str:
        """The server's name and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


async def send(request: Request, tls: ssl.SSLContext | None) -> int:
    """Send a request and return the status of the response; raises OSError, InvalidResponse or EOFError."""
    parts = urlsplit(request.url)
    port = parts.port or PORTS[parts.scheme]
    reader, writer = await asyncio.open_connection(
        parts.hostname, port, ssl=tls if parts.scheme == "https" else None, limit=LONGEST_LINE
    )
    try:
        writer.write(_head(request, parts) + request.body)
        await writer.drain()
        return await _status(reader)
    finally:
        writer.close()


def _head(request: Request, parts: SplitResult) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {
        "Host": parts.netloc.rpartition("@")[2],
        **request.headers,
        "Content-Length": str(len(request.body)),
        "Connection": "close",
    }
    lines = [f"{request.method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


async def _status(reader: asyncio.StreamReader) -> int:
    """Read the status of the answer; those below 200 only say that one is to come."""
    while (status := _number(await _line(reader))) < 200:
        for _ in range(MOST_HEADERS):
            if not (await _line(reader)).strip():
                break
    return status


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError:
        raise InvalidResponse("a line has no end") from None


def _number(line: bytes) -> int:
    version, _, rest = line.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
        raise InvalidResponse("its answer does not begin as those of HTTP do")
    return int(rest[:3])
