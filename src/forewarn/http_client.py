"""Minimal async HTTP client for gates, webhooks, handlers and peers: one request on one connection.

It uses no proxy, follows no redirects, keeps no connections alive and reads at most as much as the caller allows. If
the caller is cancelled, the connection is closed. It needs only asyncio, so agents in VMs can use it.

Five other modules implement HTTP themselves: `client.transport` (inside a VM, synchronous, cancellable from any
thread), `api.transport` (synchronous, streams long responses to the command line), `testing.conformance.raw_http`
(needs every byte of a response, even an invalid one), `agent.status` (synchronous, one GET from the agent's Unix
socket), and `testing.sandbox.ports` (asks a port whose server may not speak HTTP).

RequestFailed              no response; the message names the server, never the rest of the URL
├── InvalidUrl             the URL does not name an HTTP server
├── RequestTimeout         the response took too long
├── InvalidCertificate     the server's certificate is not valid
├── InvalidResponse        the response is not HTTP, or incomplete
└── ResponseTooLarge       the body is longer than allowed
"""

import asyncio
import os
import re
import ssl
from base64 import b64encode
from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from forewarn import __version__
from forewarn.core.base_error import BaseError
from forewarn.core.duration import format_duration
from forewarn.core.text import join_choices

USER_AGENT = f"forewarn/{__version__}"
PORTS = {"http": 80, "https": 443}
BODILESS_STATUSES = frozenset({204, 304})
"""Responses with these statuses never have a body, whatever their headers contain (RFC 9112, section 6.3)."""

BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})
MAX_LINE_BYTES = 65_536
MAX_HEADERS = 1_000
CHUNK_BYTES = 65_536
CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")

NOT_HTTP, CUT_OFF = "it is not HTTP", "the connection was closed before its end"
"""Reasons for InvalidResponse."""

URL_CHARACTERS = "%/:?#[]@!$&'()*+,;=~"
"""Characters allowed in a request target besides letters, digits and `_.-`; all others are percent-encoded."""


class RequestFailed(BaseError):
    """There is no response. `reason` is the cause, without the server's name."""

    template = "no response from {origin}: {reason}"
    origin: str
    reason: str


class InvalidUrl(RequestFailed):
    """The URL does not name an HTTP server; nothing was sent."""

    template = "invalid URL {origin}: {reason}"


class RequestTimeout(RequestFailed):
    """The response took too long; `reason` is the time limit."""

    template = "no response from {origin} within {reason}"


class InvalidCertificate(RequestFailed):
    """The server's certificate is not valid."""

    template = "{origin} is not trusted: {reason}"


class InvalidResponse(RequestFailed):
    """The server sent something other than a complete HTTP response."""

    template = "{origin} sent an invalid response: {reason}"


class ResponseTooLarge(RequestFailed):
    """The body is longer than allowed."""

    template = "the response of {origin} is too large: {reason}"


class HttpRequest(NamedTuple):
    """A request. Its URL may contain a secret, so messages use only `origin`. User and password in the URL are sent."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes = b""

    @property
    def origin(self) -> str:
        """The server's name and port. Of an invalid URL at most the scheme, because the rest may contain a secret."""
        try:
            parts = urlsplit(self.url)
        except ValueError:
            scheme = self.url.partition("://")[0]
            return f"{scheme if scheme in PORTS else ''}://…"
        return f"{parts.scheme}://{_host_and_port(parts)}"


class HttpResponse(NamedTuple):
    """A response; its body is empty unless the caller asked for it."""

    status: int
    body: bytes = b""


async def send_request(
    request: HttpRequest, *, time_limit: timedelta | None = None, tls: ssl.SSLContext | None = None, max_body: int = 0
) -> HttpResponse:
    """Send a request and return the response; raise RequestFailed. Without `max_body` no body is read.

    Without `tls`, https uses the system's trusted certificates. Waiting does not occupy a thread.
    """
    try:
        async with asyncio.timeout(None if time_limit is None else time_limit.total_seconds()):
            return await _send(request, tls, max_body)
    except TimeoutError as error:
        if time_limit is None:  # the operating system's own timeout
            raise RequestFailed(request.origin, _error_text(error)) from error
        raise RequestTimeout(request.origin, format_duration(time_limit)) from None
    except ssl.SSLCertVerificationError as error:
        raise InvalidCertificate(request.origin, error.verify_message) from error
    except asyncio.IncompleteReadError as error:
        raise InvalidResponse(request.origin, CUT_OFF) from error
    except asyncio.LimitOverrunError as error:
        raise InvalidResponse(request.origin, NOT_HTTP) from error
    except UnicodeError as error:
        raise RequestFailed(request.origin, "invalid host name") from error
    except (OSError, ValueError) as error:
        raise RequestFailed(request.origin, _error_text(error)) from error


async def _send(request: HttpRequest, tls: ssl.SSLContext | None, max_body: int) -> HttpResponse:
    parts, port = _split_url(request)
    head = _encode_head(request, parts)
    if parts.scheme == "https" and tls is None:
        # Loading all trusted certificates of the system takes a while.
        tls = await asyncio.to_thread(ssl.create_default_context)
    reader, writer = await asyncio.open_connection(
        parts.hostname,
        port,
        ssl=tls if parts.scheme == "https" else None,
        limit=MAX_LINE_BYTES,
    )
    try:
        writer.write(head + request.body)
        status, headers = await _read_head(reader, request)
        if not max_body or status in BODILESS_STATUSES or request.method == "HEAD":
            return HttpResponse(status)
        return HttpResponse(status, await _read_body(reader, headers, request, max_body))
    finally:
        writer.transport.abort()  # discard the unread rest


def _split_url(request: HttpRequest) -> tuple[SplitResult, int]:
    """Return the parsed URL and the port."""
    try:
        parts = urlsplit(request.url)
    except ValueError as error:
        raise InvalidUrl(request.origin, str(error)) from error
    if parts.scheme not in PORTS:
        raise InvalidUrl(request.origin, f"the scheme must be {join_choices(PORTS)}")
    if not parts.hostname:
        raise InvalidUrl(request.origin, "it has no host")
    try:
        return parts, parts.port or PORTS[parts.scheme]
    except ValueError as error:
        raise InvalidUrl(request.origin, "the port must be a number from 1 to 65535") from error


def _encode_head(request: HttpRequest, parts: SplitResult) -> bytes:
    headers = {"Host": _host_and_port(parts), "User-Agent": USER_AGENT, **_basic_auth(parts), **request.headers}
    if request.body or request.method in BODY_METHODS:
        headers["Content-Length"] = str(len(request.body))
    headers["Connection"] = "close"
    target = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=URL_CHARACTERS)
    lines = [f"{request.method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if any(char in line for line in lines for char in "\r\n\0"):
        raise ValueError("a header contains a line break")
    return "\r\n".join([*lines, "", ""]).encode()


async def _read_head(reader: asyncio.StreamReader, request: HttpRequest) -> tuple[int, dict[bytes, bytes]]:
    """Read the head of the final response; interim responses (1xx) are skipped."""
    while True:
        version, _, rest = (await reader.readuntil(b"\n")).partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise InvalidResponse(request.origin, NOT_HTTP)
        headers: dict[bytes, bytes] = {}
        for _ in range(MAX_HEADERS):
            line = (await reader.readuntil(b"\n")).strip()
            if not line:
                break
            name, _, value = line.partition(b":")
            headers[name.lower()] = value.strip()
        else:
            raise InvalidResponse(request.origin, f"it has more than {MAX_HEADERS} headers")
        if (status := int(rest[:3])) >= 200:
            return status, headers


async def _read_body(
    reader: asyncio.StreamReader, headers: Mapping[bytes, bytes], request: HttpRequest, max_body: int
) -> bytes:
    """Read the body: in chunks, up to Content-Length, or else to the end of the connection."""
    encoding = headers.get(b"transfer-encoding", b"").lower()
    if encoding == b"chunked":
        return await _read_chunks(reader, request, max_body)
    if encoding:
        raise InvalidResponse(request.origin, "its Transfer-Encoding is not chunked")
    declared = headers.get(b"content-length", b"")
    length = int(declared) if declared.isdigit() and len(declared) < 20 else None
    body = b""
    while len(body) <= max_body and (length is None or len(body) < length):
        chunk = await reader.read(CHUNK_BYTES)
        if not chunk:
            break
        body += chunk
    if len(body) > max_body or (length or 0) > max_body:
        raise _too_large(request, max_body)
    if length is not None and len(body) < length:
        raise InvalidResponse(request.origin, CUT_OFF)
    return body[:length]


async def _read_chunks(reader: asyncio.StreamReader, request: HttpRequest, max_body: int) -> bytes:
    """Read a chunked body (RFC 9112, section 7.1). Trailers after the last chunk are ignored."""
    body = b""
    while True:
        digits = (await reader.readuntil(b"\n")).partition(b";")[0].strip()
        if not CHUNK_SIZE.fullmatch(digits):
            raise InvalidResponse(request.origin, "a chunk has no size")
        size = int(digits, 16)
        if not size:
            return body
        if len(body) + size > max_body:
            raise _too_large(request, max_body)
        body += await reader.readexactly(size)
        if (await reader.readuntil(b"\n")).strip():
            raise InvalidResponse(request.origin, "a chunk is longer than its size")


def _too_large(request: HttpRequest, max_body: int) -> ResponseTooLarge:
    return ResponseTooLarge(request.origin, f"more than {max_body} bytes")


def _error_text(error: Exception) -> str:
    if isinstance(error, ConnectionError) and error.errno is not None:
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _host_and_port(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _basic_auth(parts: SplitResult) -> dict[str, str]:
    """Return the Authorization header for a user and password in the URL, as browsers send it."""
    if parts.username is None:
        return {}
    credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {b64encode(credentials.encode()).decode()}"}
