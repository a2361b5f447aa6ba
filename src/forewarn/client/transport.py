"""HTTP transport: one request over one connection with http.client, without proxies. Any thread can cancel it.

Connections are not kept alive: a VM that was frozen, moved or restored never has a stale one, and at one request per
second the cost does not matter.

It does not use `forewarn.http_client`: this library must work without an event loop, any thread can cancel a request,
and a response that was cut off in its headers must be distinguished from a complete one.
"""

import errno
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from forewarn import __version__
from forewarn.client.effects import Failure, Request, Response
from forewarn.client.endpoint import Endpoint
from forewarn.client.errors import NotUnderstood, TooSlow, Unreachable
from forewarn.core.text import truncate_text

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

CONNECT_TIMEOUT = 5.0
"""How many seconds connecting may take, whatever the timeout of the response: the service is one hop away."""

LARGEST_RESPONSE = 16 * 1024 * 1024
LONGEST_REASON = 300

LONGEST_SOCKET_TIMEOUT = 3600.0
"""Longest timeout that is passed to the system, for users who set an infinite timeout."""

LONGEST_BLOCK = 0.5 if sys.platform == "win32" else LONGEST_SOCKET_TIMEOUT
"""Longest single wait for data: on Windows, Ctrl-C is not noticed during a wait."""

KEEP_ALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Detects a dead server during a long poll after about 20 seconds instead of a minute."""

HEADERS = {
    "Metadata": "true",
    "Accept": "application/json",
    "User-Agent": f"forewarn/{__version__}",
    "Connection": "close",
}


HEAD_ENDS = (b"\r\n\r\n", b"\n\n", b"\n\r\n")


class RequestCancelled(OSError):
    """The exchange was cancelled."""


class Exchange:
    """A request and its response. After `cancel`, `run` returns soon, usually with a Failure."""

    def __init__(self, endpoint: Endpoint, request: Request, timeout: float) -> None:
        self._endpoint, self._request, self._timeout = endpoint, request, timeout
        self._lock = threading.Lock()
        self._socket: _TimedSocket | None = None
        self._is_cancelled = False

    def run(self) -> Response | Failure:
        """Send the request and read the complete response. Errors are returned, not raised."""
        try:
            with self._connect() as sock:
                return _exchange(sock, self._endpoint, self._request)
        except Exception as error:
            if (failure := failure_of(error)) is None:
                raise
            return failure

    def cancel(self) -> None:
        """Make `run` return. Any thread may call this at any time, also repeatedly."""
        with self._lock:
            self._is_cancelled = True
            if self._socket is not None:
                _shut_down(self._socket)

    def _connect(self) -> "_TimedSocket":
        deadline = time.monotonic() + self._timeout
        failure: OSError = OSError(errno.EHOSTUNREACH, "the host name has no address")
        for family, address in _addresses(self._endpoint):
            sock = self._track(_TimedSocket(family, socket.SOCK_STREAM))
            try:
                sock.connect_before(address, min(deadline, time.monotonic() + CONNECT_TIMEOUT))
            except OSError as error:
                sock.close()
                failure = error
            except BaseException:
                # For example Ctrl-C.
                sock.close()
                raise
            else:
                sock.deadline = deadline
                return sock
        raise failure

    def _track(self, sock: "_TimedSocket") -> "_TimedSocket":
        with self._lock:
            if self._is_cancelled:
                sock.close()
                raise RequestCancelled("cancelled")
            self._socket = sock
        return sock


def failure_of(error: Exception) -> Failure | None:
    """Return the Failure for an error of the exchange; None for an internal error of this library."""
    # Imported late: http.client, which imports email and ssl, would double the import time of this library.
    from http.client import HTTPException

    match error:
        case TimeoutError():
            return Failure(TooSlow, "no complete response in time")
        case OSError():
            return Failure(Unreachable, error.strerror or str(error) or type(error).__name__)
        case HTTPException() | ValueError():
            # Messages of http.client quote the received bytes, which may be anything.
            return Failure(
                NotUnderstood, " ".join(truncate_text(f"{type(error).__name__}: {error}", LONGEST_REASON).split())
            )
        case _:
            return None


class _TimedSocket(socket.socket):
    """A socket with a total deadline, even if the other side keeps sending slowly.

    It records whether the response headers were complete: http.client takes a response that is cut off in its headers
    as one with an empty body, which has a meaning here.
    """

    deadline = 0.0
    has_head = False
    _tail = b""

    def connect_before(self, address: tuple[str, int], deadline: float) -> None:
        self.deadline = deadline
        self.settimeout(self._time_left())
        try:
            self.connect(address)
        except TimeoutError as error:
            raise OSError(errno.EHOSTUNREACH, "connection timed out") from error
        # Some systems do not have all of these options; there a dead server is detected later.
        with suppress(OSError):
            self.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in KEEP_ALIVE.items():
                if (number := getattr(socket, option, None)) is not None:
                    self.setsockopt(socket.IPPROTO_TCP, number, value)

    def recv_into(self, buffer: "WriteableBuffer", nbytes: int = 0, flags: int = 0) -> int:
        while True:
            self.settimeout(min(self._time_left(), LONGEST_BLOCK))
            with suppress(TimeoutError):
                size = super().recv_into(buffer, nbytes, flags)
                self._detect_head(bytes(memoryview(buffer)[:size]))
                return size

    def sendall(self, data: "ReadableBuffer", flags: int = 0) -> None:
        self.settimeout(min(self._time_left(), LONGEST_SOCKET_TIMEOUT))
        super().sendall(data, flags)

    def _detect_head(self, received: bytes) -> None:
        if not self.has_head:
            self._tail += received
            self.has_head = any(end in self._tail for end in HEAD_ENDS)
            self._tail = self._tail[-3:]

    def _time_left(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def _addresses(endpoint: Endpoint) -> Iterator[tuple[socket.AddressFamily, tuple[str, int]]]:
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(errno.EHOSTUNREACH, "the host name is not valid") from error
    for family, _, _, _, address in found:
        yield family, address  # type: ignore[misc]  # IPv6 addresses have two more parts, which connect() accepts


def _exchange(sock: _TimedSocket, endpoint: Endpoint, request: Request) -> Response | Failure:
    from http.client import HTTPConnection

    # The Host header must not contain the zone id of a link-local IPv6 address.
    connection = HTTPConnection(endpoint.host.partition("%")[0], endpoint.port)
    connection.sock = sock
    connection.request(request.method, endpoint.path + request.target, request.body, HEADERS | dict(request.headers))
    with connection.getresponse() as response:
        body = response.read(LARGEST_RESPONSE + 1)
        if len(body) > LARGEST_RESPONSE:
            return Failure(NotUnderstood, f"the response is longer than {LARGEST_RESPONSE} bytes")
        if not sock.has_head:
            return Failure(NotUnderstood, "the response ends within its headers")
        if response.length:
            return Failure(NotUnderstood, f"the response ends {response.length} bytes too early")
        headers = {name.lower(): value for name, value in reversed(response.getheaders())}
        return Response(response.status, headers, body)


def _shut_down(sock: socket.socket) -> None:
    """End the wait of another thread on a socket. That thread closes the socket, so its number is not reused early."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        # The socket is not connected yet; closing it ends the wait where shutdown cannot.
        sock.close()
