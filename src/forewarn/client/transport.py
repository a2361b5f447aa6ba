"""One request over one connection, with http.client, which knows no proxies. It can be ended from any thread.

A connection is not kept: a VM that was frozen, moved or restored finds nothing stale, and at a request a second it
costs nothing that anybody would notice.
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
from forewarn.client.endpoint import Endpoint
from forewarn.client.errors import NotUnderstood, TooSlow, Unreachable
from forewarn.client.talk import Answer, Failure, Request
from forewarn.core.text import truncate_text

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

CONNECT_WITHIN = 5.0
"""How many seconds a connection may take, however long the answer may: the service is next door."""

LARGEST_ANSWER = 16 * 1024 * 1024
LONGEST_WHY = 300

LONGEST_WAIT_OF_SYSTEM = 3600.0
"""For how many seconds the system can surely be told to wait, where a user wants to wait for ever."""

LONGEST_BLOCK = 0.5 if sys.platform == "win32" else LONGEST_WAIT_OF_SYSTEM
"""For how many seconds at a time it is told to wait for an answer: on Windows Ctrl-C is not noticed meanwhile."""

KEEP_ALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A held request whose server went without a word is found out after some 20 seconds, not after a minute."""

HEADERS = {
    "Metadata": "true",
    "Accept": "application/json",
    "User-Agent": f"forewarn/{__version__}",
    "Connection": "close",
}


HEAD_ENDS = (b"\r\n\r\n", b"\n\n", b"\n\r\n")


class HungUp(OSError):
    """Somebody has ended the exchange."""


class Exchange:
    """A request and its answer. After `hang_up`, `run` returns soon, whatever it waits for, and usually a Failure."""

    def __init__(self, endpoint: Endpoint, request: Request, timeout: float) -> None:
        self._endpoint, self._request, self._timeout = endpoint, request, timeout
        self._lock = threading.Lock()
        self._socket: _TimedSocket | None = None
        self._is_hung_up = False

    def run(self) -> Answer | Failure:
        """Send the request and read the whole answer. What goes wrong is returned, not raised."""
        try:
            with self._connected() as line:
                return _converse(line, self._endpoint, self._request)
        except Exception as error:
            if (failure := failure_of(error)) is None:
                raise
            return failure

    def hang_up(self) -> None:
        """Make `run` return; may be called at any time, by any thread, and more than once."""
        with self._lock:
            self._is_hung_up = True
            if self._socket is not None:
                _cut(self._socket)

    def _connected(self) -> "_TimedSocket":
        give_up_at = time.monotonic() + self._timeout
        failure: OSError = OSError(errno.EHOSTUNREACH, "the name has no address")
        for family, address in _addresses(self._endpoint):
            line = self._taken(_TimedSocket(family, socket.SOCK_STREAM))
            try:
                line.reach(address, min(give_up_at, time.monotonic() + CONNECT_WITHIN))
            except OSError as error:
                line.close()
                failure = error
            except BaseException:
                # Ctrl-C, say.
                line.close()
                raise
            else:
                line.give_up_at = give_up_at
                return line
        raise failure

    def _taken(self, line: "_TimedSocket") -> "_TimedSocket":
        with self._lock:
            if self._is_hung_up:
                line.close()
                raise HungUp("hung up")
            self._socket = line
        return line


def failure_of(error: Exception) -> Failure | None:
    """Tell what an error on the way means; None for one that can only be a mistake of this library."""
    # Half of the time that importing this library would take is in http.client, which brings mail and TLS along.
    from http.client import HTTPException

    match error:
        case TimeoutError():
            return Failure(TooSlow, "no whole answer in time")
        case OSError():
            return Failure(Unreachable, error.strerror or str(error) or type(error).__name__)
        case HTTPException() | ValueError():
            # The words of http.client quote what the other side has sent, which may be anything.
            return Failure(
                NotUnderstood, " ".join(truncate_text(f"{type(error).__name__}: {error}", LONGEST_WHY).split())
            )
        case _:
            return None


class _TimedSocket(socket.socket):
    """A socket that gives up at a moment, however slowly the other side goes on talking.

    It notices whether the head of the answer has come to its end: http.client takes an answer that is cut off there for
    one without a body, and that has a meaning here.
    """

    give_up_at = 0.0
    has_head = False
    _tail = b""

    def reach(self, address: tuple[str, int], give_up_at: float) -> None:
        self.give_up_at = give_up_at
        self.settimeout(self._left())
        try:
            self.connect(address)
        except TimeoutError as error:
            raise OSError(errno.EHOSTUNREACH, "nobody takes the call") from error
        # Some systems know the options, but not all of them: then it is found out later.
        with suppress(OSError):
            self.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in KEEP_ALIVE.items():
                if (number := getattr(socket, option, None)) is not None:
                    self.setsockopt(socket.IPPROTO_TCP, number, value)

    def recv_into(self, buffer: "WriteableBuffer", nbytes: int = 0, flags: int = 0) -> int:
        while True:
            self.settimeout(min(self._left(), LONGEST_BLOCK))
            with suppress(TimeoutError):
                size = super().recv_into(buffer, nbytes, flags)
                self._note(bytes(memoryview(buffer)[:size]))
                return size

    def sendall(self, data: "ReadableBuffer", flags: int = 0) -> None:
        self.settimeout(min(self._left(), LONGEST_WAIT_OF_SYSTEM))
        super().sendall(data, flags)

    def _note(self, received: bytes) -> None:
        if not self.has_head:
            self._tail += received
            self.has_head = any(end in self._tail for end in HEAD_ENDS)
            self._tail = self._tail[-3:]

    def _left(self) -> float:
        left = self.give_up_at - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def _addresses(endpoint: Endpoint) -> Iterator[tuple[socket.AddressFamily, tuple[str, int]]]:
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(errno.EHOSTUNREACH, "the name cannot be looked up") from error
    for family, _, _, _, address in found:
        yield family, address  # type: ignore[misc]  # IPv6 addresses have two more parts, which connect() takes as well


def _converse(line: _TimedSocket, endpoint: Endpoint, request: Request) -> Answer | Failure:
    from http.client import HTTPConnection

    # Which of its interfaces leads to the service is this machine's own business.
    connection = HTTPConnection(endpoint.host.partition("%")[0], endpoint.port)
    connection.sock = line
    connection.request(request.method, request.target, request.body, HEADERS | dict(request.headers))
    with connection.getresponse() as response:
        body = response.read(LARGEST_ANSWER + 1)
        if len(body) > LARGEST_ANSWER:
            return Failure(NotUnderstood, f"the answer is longer than {LARGEST_ANSWER} bytes")
        if not line.has_head:
            return Failure(NotUnderstood, "the answer ends within its head")
        if response.length:
            return Failure(NotUnderstood, f"the answer ends {response.length} bytes too early")
        headers = {name.lower(): value for name, value in reversed(response.getheaders())}
        return Answer(response.status, headers, body)


def _cut(line: socket.socket) -> None:
    """End what another thread waits for on a socket. That thread closes it, so that its number is not given away."""
    try:
        line.shutdown(socket.SHUT_RDWR)
    except OSError:
        # It is not connected yet; where that cannot be shut down, closing it ends the wait.
        line.close()
