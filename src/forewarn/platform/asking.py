"""One HTTP request, straight to its server: no proxy, no redirect, and over when its time is."""

import asyncio
import http.client
import socket
import ssl
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from forewarn import __version__
from forewarn.core.duration import duration_text

AGENT = f"forewarn/{__version__}"


class NoAnswer(Exception):
    """No answer of HTTP has come; the message says why."""


class Request(NamedTuple):
    """What is sent. Its URL may have a secret in it; `place` is as much of it as may be told."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes | None = None

    @property
    def place(self) -> str:
        """The server's name and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


async def status_of(request: Request, limit: timedelta) -> int:
    """Send a request and return the status of its answer; NoAnswer says why there is none."""
    seconds = limit.total_seconds()
    connection = _connection(request.url, seconds)
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.to_thread(_ask, connection, request)
    except TimeoutError:
        raise NoAnswer(f"{request.place} gave no answer within {duration_text(limit)}") from None
    except ssl.SSLCertVerificationError as error:
        raise NoAnswer(f"{request.place} is not trusted: {error.verify_message}") from error
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise NoAnswer(f"{request.place} does not answer: {why}") from error
    finally:
        _hang_up(connection)


def _connection(url: str, seconds: float) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=seconds)


def _ask(connection: http.client.HTTPConnection, request: Request) -> int:
    parts = urlsplit(request.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"User-Agent": AGENT, "Connection": "close", **_password(request.url), **request.headers}
    connection.request(request.method, target, request.body, headers)
    with connection.getresponse() as answer:
        return answer.status


def _password(url: str) -> dict[str, str]:
    """Return the header for a user and password that stand in the URL, as browsers send it."""
    parts = urlsplit(url)
    if parts.username is None:
        return {}
    said = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {b64encode(said.encode()).decode()}"}


def _hang_up(connection: http.client.HTTPConnection) -> None:
    """Let a thread that still waits for the answer wait no more."""
    if isinstance(connection.sock, socket.socket):
        with suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()
