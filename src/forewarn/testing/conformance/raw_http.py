"""Raw HTTP over a socket: send any request, valid or not, read every byte of the response, and limit the request
rate.

It shares nothing with `forewarn.http_client`: the kit sends requests that no client would send, and must see every
byte of a response that a client would repair or refuse.
"""

import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

import msgspec

from forewarn.client.endpoint import Endpoint
from forewarn.core.base_error import BaseError
from forewarn.wire.protocol import NEWEST_VERSION

DEFAULT_RATE = 4.0
"""Requests per second: one less than a VM may send, because its handler polls too."""

METADATA_HEADER = ("Metadata", "true")

EVENTS_PATH = "/metadata/scheduledevents"

MAX_RESPONSE_BYTES = 16 * 1024 * 1024

MAX_EXCERPT = 300

CONTINUE, NOT_MODIFIED, NO_CONTENT = 100, 304, 204

_STATUS_LINE = re.compile(r"HTTP/(\d\.\d) (\d{3})(?: (.*))?")

_LENGTH = re.compile(r"[0-9]{1,18}")

_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;.*)?")


class Pace:
    """Rate limit of the kit itself."""

    def __init__(
        self,
        requests_per_second: float = DEFAULT_RATE,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._interval = 1.0 / requests_per_second
        self._monotonic, self._sleep = monotonic, sleep
        self._next_at = monotonic()
        self.requests = 0

    def now(self) -> float:
        """Return the time of the monotonic clock in seconds."""
        return self._monotonic()

    def wait(self) -> None:
        """Wait until the next request may be sent."""
        self.pause(self._next_at - self._monotonic())
        self._next_at = self._monotonic() + self._interval
        self.requests += 1

    def pause(self, seconds: float) -> None:
        """Wait for this many seconds."""
        if seconds > 0:
            self._sleep(seconds)


def excerpt(text: str | bytes, limit: int = MAX_EXCERPT) -> str:
    """Return the beginning of a text from the endpoint in one line, with unprintable characters escaped."""
    full_text = text.decode(errors="replace") if isinstance(text, bytes) else text
    printable = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in full_text[:limit])
    return f"{printable}…" if len(full_text) > limit else printable


class RequestFailed(BaseError):
    """No complete response arrived; the message has the reason."""

    template = "{problem}"
    problem: str


class ResponseTimeout(RequestFailed):
    """The endpoint took too long."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request, exactly as it is sent."""

    method: str = "GET"
    target: str = f"{EVENTS_PATH}?api-version={NEWEST_VERSION}"
    headers: tuple[tuple[str, str], ...] = (METADATA_HEADER,)
    body: bytes | None = None
    http_version: str = "1.1"
    connection: str | None = "close"

    def __str__(self) -> str:
        """Describe the request by its differences from the usual one, for those who debug an endpoint."""
        parts = [f"{self.method} {self.target}"]
        metadata_headers = [pair for pair in self.headers if pair[0].lower() == METADATA_HEADER[0].lower()]
        other_headers = [
            pair for pair in self.headers if metadata_headers != [METADATA_HEADER] or pair != METADATA_HEADER
        ]
        if other_headers:
            parts.append(f"with {', '.join(f'{name}: {excerpt(value, 40)}'.strip() for name, value in other_headers)}")
        if not metadata_headers:
            parts.append("without Metadata: true")
        if self.http_version != "1.1":
            parts.append(f"in HTTP/{self.http_version}")
        if self.body is not None:
            parts.append(f"with {'the body ' + excerpt(self.body, 80) if self.body else 'an empty body'}")
        return " ".join(parts)

    def head(self, host: str) -> bytes:
        """Return the request line and headers as bytes."""
        fields = [("Host", host), *self.headers]
        if self.connection is not None:
            fields.append(("Connection", self.connection))
        if self.body is not None:
            fields.append(("Content-Length", str(len(self.body))))
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
        return f"{self.method} {self.target} HTTP/{self.http_version}\r\n{lines}\r\n".encode("latin-1")


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """A response as it was received, with its chunks joined."""

    status: int
    reason: str = ""
    http_version: str = "1.1"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def __str__(self) -> str:
        quoted = excerpt(self.body)
        return f"{self.status} {self.reason}".strip() + (f": {quoted}" if quoted else "")

    def header(self, name: str) -> str | None:
        """Return the value of a header; pass the name in lower case."""
        return next((value for key, value in self.headers if key.lower() == name), None)

    @property
    def announces_close(self) -> bool:
        """Return whether the endpoint closes the connection after this response."""
        words = {word.strip().lower() for word in (self.header("connection") or "").split(",")}
        return "close" in words or (self.http_version == "1.0" and "keep-alive" not in words)


class RawConnection:
    """A connection to the endpoint. Every wait on it ends after `timeout` seconds."""

    def __init__(self, endpoint: Endpoint, timeout: float) -> None:
        self._host = str(endpoint).removeprefix("http://")
        self._timeout = timeout
        self._unread = b""
        try:
            self._socket = socket.create_connection((endpoint.host, endpoint.port), timeout)
        except OSError as error:
            raise RequestFailed(f"no connection: {_error_text(error)}") from error
        # Nagle's algorithm would delay small packets and make the endpoint look slow.
        with suppress(OSError):  # some systems refuse it on a connection that is already closed
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """Return the file descriptor, for select."""
        return self._socket.fileno()

    def send(self, request: Request) -> None:
        """Send a request with its body."""
        self.send_bytes(request.head(self._host) + (request.body or b""))

    def send_head(self, request: Request) -> None:
        """Send a request without its body."""
        self.send_bytes(request.head(self._host))

    def send_bytes(self, content: bytes) -> None:
        """Send any bytes. If the endpoint does not accept all of them, it may still have responded."""
        self._socket.settimeout(self._timeout)
        try:
            self._socket.sendall(content)
        except OSError:
            return

    def read_response(self, request: Request | None = None, *, within: float | None = None) -> Response:
        """Read the next complete response."""
        deadline = time.monotonic() + (self._timeout if within is None else within)
        http, status, reason, headers = self._head(deadline)
        head = Response(status=status, reason=reason, http_version=http, headers=headers)
        is_to_head = request is not None and request.method == "HEAD"
        if is_to_head or status < 200 or status in (NO_CONTENT, NOT_MODIFIED):
            return head
        return msgspec.structs.replace(head, body=self._body(head, deadline))

    def read_until_close(self, within: float) -> tuple[bytes, bool]:
        """Return the bytes that arrive until the endpoint closes the connection, and whether it does so in time."""
        deadline = time.monotonic() + within
        try:
            while self._receive(deadline):
                pass
        except ResponseTimeout:
            return self._unread, False
        except RequestFailed:
            # The endpoint reset the connection, perhaps with unread bytes on its side: that also closes it.
            return self._unread, True
        return self._unread, True

    def _head(self, deadline: float) -> tuple[str, int, str, tuple[tuple[str, str], ...]]:
        first, *fields = self._read_until(b"\r\n\r\n", deadline).decode("latin-1").split("\r\n")
        found = _STATUS_LINE.fullmatch(first)
        if found is None:
            raise RequestFailed(f"the response is not HTTP: {excerpt(first)}")
        pairs = (field.partition(":") for field in fields)
        return found[1], int(found[2]), found[3] or "", tuple((name, value.strip(" \t")) for name, _, value in pairs)

    def _body(self, response: Response, deadline: float) -> bytes:
        if (response.header("transfer-encoding") or "").lower() == "chunked":
            return self._chunks(deadline)
        length = response.header("content-length")
        if length is None:
            while self._receive(deadline):
                pass
            return self._read_exactly(len(self._unread), deadline)
        if not _LENGTH.fullmatch(length):
            raise RequestFailed(f"the response has an invalid Content-Length: {excerpt(length)}")
        return self._read_exactly(int(length), deadline)

    def _chunks(self, deadline: float) -> bytes:
        body = b""
        while True:
            size = _CHUNK_SIZE.fullmatch(self._read_until(b"\r\n", deadline))
            if size is None:
                raise RequestFailed("a chunk of the response has no valid size")
            if not (count := int(size[1], 16)):
                break
            body += self._read_exactly(count, deadline)
            if len(body) > MAX_RESPONSE_BYTES:
                raise RequestFailed(f"the response is longer than {MAX_RESPONSE_BYTES} bytes")
            self._read_until(b"\r\n", deadline)
        while self._read_until(b"\r\n", deadline):
            pass
        return body

    def _read_until(self, end: bytes, deadline: float) -> bytes:
        while end not in self._unread:
            self._require_more(deadline)
        taken, _, self._unread = self._unread.partition(end)
        return taken

    def _read_exactly(self, count: int, deadline: float) -> bytes:
        while len(self._unread) < count:
            self._require_more(deadline)
        taken, self._unread = self._unread[:count], self._unread[count:]
        return taken

    def _require_more(self, deadline: float) -> None:
        if not self._receive(deadline):
            raise RequestFailed("the connection was closed before the response was complete")

    def _receive(self, deadline: float) -> bool:
        """Wait for bytes; return False if the endpoint has closed the connection."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise ResponseTimeout("no complete response in time")
        self._socket.settimeout(left)
        try:
            received = self._socket.recv(65_536)
        except TimeoutError:
            raise ResponseTimeout("no complete response in time") from None
        except OSError as error:
            raise RequestFailed(f"no complete response: {_error_text(error)}") from error
        self._unread += received
        if len(self._unread) > MAX_RESPONSE_BYTES:
            raise RequestFailed(f"the response is longer than {MAX_RESPONSE_BYTES} bytes")
        return bool(received)


def _error_text(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
