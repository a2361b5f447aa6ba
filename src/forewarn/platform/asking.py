"""One HTTP request, straight to its server: no proxy, no redirect, and over when its time is."""

import asyncio
import os
import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

import h11

from forewarn import __version__
from forewarn.core.duration import format_duration

AGENT = f"forewarn/{__version__}"
PIECE = 65_536


class NoAnswer(Exception):
    """No answer of HTTP has come; the message says why."""


class Request(NamedTuple):
    """What is sent. Its URL may have a secret in it; `place` is as much of it as may be told."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes = b""

    @property
    def place(self) -> str:
        """The server's name and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{_server(parts)}"


async def status_of(request: Request, limit: timedelta) -> int:
    """Send a request and return the status of its answer; NoAnswer says why there is none.

    Waiting takes no thread: others need them, and one cannot be called back.
    """
    try:
        async with asyncio.timeout(limit.total_seconds()):
            return await _ask(request)
    except TimeoutError:
        raise NoAnswer(f"{request.place} gave no answer within {format_duration(limit)}") from None
    except ssl.SSLCertVerificationError as error:
        raise NoAnswer(f"{request.place} is not trusted: {error.verify_message}") from error
    except h11.RemoteProtocolError as error:
        raise NoAnswer(f"{request.place} does not answer: what it says is not HTTP") from error
    except (OSError, h11.LocalProtocolError, ValueError) as error:
        raise NoAnswer(f"{request.place} does not answer: {_why(error)}") from error


def _why(error: Exception) -> str:
    if isinstance(error, ConnectionError) and error.errno is not None:
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


async def _ask(request: Request) -> int:
    parts = urlsplit(request.url)
    # Reading all the certificates that the system trusts takes a while.
    context = await asyncio.to_thread(ssl.create_default_context) if parts.scheme == "https" else None
    port = parts.port or (80 if context is None else 443)
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=context)
    try:
        connection = h11.Connection(h11.CLIENT)
        writer.write(b"".join(_written(connection, request, parts)))
        return await _status(connection, reader)
    finally:
        writer.transport.abort()  # nobody reads the rest


def _written(connection: h11.Connection, request: Request, parts: SplitResult) -> Iterator[bytes]:
    said = {"Host": _server(parts), "User-Agent": AGENT, "Connection": "close", **_password(parts), **request.headers}
    if request.body:
        said["Content-Length"] = str(len(request.body))
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    yield connection.send(h11.Request(method=request.method, target=target, headers=list(said.items()))) or b""
    yield connection.send(h11.Data(data=request.body)) or b""
    yield connection.send(h11.EndOfMessage()) or b""


async def _status(connection: h11.Connection, reader: asyncio.StreamReader) -> int:
    """Read as far as the status. One that only says that the answer is to come is none."""
    while not isinstance(event := connection.next_event(), h11.Response):
        if event is h11.NEED_DATA:
            if not (piece := await reader.read(PIECE)):
                raise ConnectionError("it hangs up")
            connection.receive_data(piece)
    return event.status_code


def _server(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _password(parts: SplitResult) -> dict[str, str]:
    """Return the header for a user and password that stand in the URL, as browsers send it."""
    if parts.username is None:
        return {}
    said = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {b64encode(said.encode()).decode()}"}
