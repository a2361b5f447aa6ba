"""Minimal HTTP client: one request straight to its server, without proxy or redirect, with a timeout."""

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

USER_AGENT = f"forewarn/{__version__}"
CHUNK_BYTES = 65_536


class RequestFailed(Exception):
    """No answer of HTTP has come; the message says why."""


class HttpRequest(NamedTuple):
    """What is sent. Its URL may have a secret in it; `origin` is as much of it as may be told."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes = b""

    @property
    def origin(self) -> str:
        """The server's name and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{_host_and_port(parts)}"


async def fetch_status(request: HttpRequest, time_limit: timedelta) -> int:
    """Send a request and return the status of its answer; RequestFailed says why there is none.

    Waiting takes no thread: others need them, and one cannot be called back.
    """
    try:
        async with asyncio.timeout(time_limit.total_seconds()):
            return await _send(request)
    except TimeoutError:
        raise RequestFailed(f"{request.origin} gave no answer within {format_duration(time_limit)}") from None
    except ssl.SSLCertVerificationError as error:
        raise RequestFailed(f"{request.origin} is not trusted: {error.verify_message}") from error
    except h11.RemoteProtocolError as error:
        raise RequestFailed(f"{request.origin} does not answer: what it says is not HTTP") from error
    except (OSError, h11.LocalProtocolError, ValueError) as error:
        raise RequestFailed(f"{request.origin} does not answer: {_error_text(error)}") from error


def _error_text(error: Exception) -> str:
    if isinstance(error, ConnectionError) and error.errno is not None:
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


async def _send(request: HttpRequest) -> int:
    parts = urlsplit(request.url)
    # Reading all the certificates that the system trusts takes a while.
    context = await asyncio.to_thread(ssl.create_default_context) if parts.scheme == "https" else None
    port = parts.port or (80 if context is None else 443)
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=context)
    try:
        connection = h11.Connection(h11.CLIENT)
        writer.write(b"".join(_encode_request(connection, request, parts)))
        return await _read_status(connection, reader)
    finally:
        writer.transport.abort()  # nobody reads the rest


def _encode_request(connection: h11.Connection, request: HttpRequest, parts: SplitResult) -> Iterator[bytes]:
    headers = {
        "Host": _host_and_port(parts),
        "User-Agent": USER_AGENT,
        "Connection": "close",
        **_basic_auth(parts),
        **request.headers,
    }
    if request.body:
        headers["Content-Length"] = str(len(request.body))
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    yield connection.send(h11.Request(method=request.method, target=target, headers=list(headers.items()))) or b""
    yield connection.send(h11.Data(data=request.body)) or b""
    yield connection.send(h11.EndOfMessage()) or b""


async def _read_status(connection: h11.Connection, reader: asyncio.StreamReader) -> int:
    """Read as far as the status. One that only says that the answer is to come is none."""
    while not isinstance(event := connection.next_event(), h11.Response):
        if event is h11.NEED_DATA:
            if not (chunk := await reader.read(CHUNK_BYTES)):
                raise ConnectionError("it hangs up")
            connection.receive_data(chunk)
    return event.status_code


def _host_and_port(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _basic_auth(parts: SplitResult) -> dict[str, str]:
    """Return the header for a user and password that stand in the URL, as browsers send it."""
    if parts.username is None:
        return {}
    credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {b64encode(credentials.encode()).decode()}"}
