"""A server on real sockets that does to each connection just what it is told, byte by byte."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import NamedTuple, TypeAlias

from forewarn.client.endpoint import Endpoint
from tests.client.talking import document

GUARD = 60.0
"""For how many seconds something may take before it counts as hanging."""

PLAIN = {"Content-Type": "application/json; charset=utf-8"}


class Seen(NamedTuple):
    """A request as it arrived."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def target(self) -> str:
        return self.line.split(" ")[1]


class Connection:
    """One connection, from the server's side."""

    def __init__(self, line: socket.socket, server: "MisbehavingServer") -> None:
        self._line, self._server = line, server
        self.let_pass: Callable[[], None] = lambda: None

    def read(self) -> Seen:
        """Take the whole request."""
        with self._line.makefile("rb") as reader:
            first = reader.readline().decode().rstrip("\r\n")
            # A client that hangs up has no blank line at the end.
            headers = dict(_header(row) for row in takewhile(b"\r\n".__ne__, reader))
            body = reader.read(int(headers.get("content-length", "0")))
        seen = Seen(first, headers, body)
        self.let_pass()
        self._server.note(seen)
        return seen

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self._line.sendall(part)

    def reset(self) -> None:
        """End the connection in a way that the other side takes for an error."""
        self._line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._line.close()

    def wait_for_hang_up(self) -> None:
        """Say nothing until the other side goes."""
        with suppress(OSError):
            self._line.recv(1)
        self._server.hang_ups.release()


Act: TypeAlias = Callable[[Connection], None]


def _header(row: bytes) -> tuple[str, str]:
    name, _, value = row.decode("latin-1").partition(":")
    return name.lower(), value.strip()


def answered(status: int = 200, body: bytes = document(), /, **headers: str) -> bytes:
    """Make a whole answer; `_` stands for `-` in the names of headers."""
    given = (
        PLAIN | {"Content-Length": str(len(body))} | {key.replace("_", "-"): value for key, value in headers.items()}
    )
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"HTTP/1.1 {status} Whatever\r\n{head}\r\n".encode() + body


def says(*parts: bytes) -> Act:
    """Read the request, send these bytes, and close."""

    def act(connection: Connection) -> None:
        connection.read()
        connection.send(*parts)

    return act


def gives(status: int = 200, body: bytes = document(), /, **headers: str) -> Act:
    """Answer like a good server."""
    return says(answered(status, body, **headers))


def dribbles(whole: bytes) -> Act:
    """Send each byte for itself."""
    return says(*(bytes([byte]) for byte in whole))


def trickles(first: bytes, more: bytes) -> Act:
    """Send more and more, without end, until the other side has gone."""

    def act(connection: Connection) -> None:
        connection.read()
        connection.send(first)
        while True:
            connection.send(more)
            time.sleep(0.01)

    return act


class PassingTime:
    """The time that answers take, as the client sees it: it passes only within what a server is told to do."""

    def __init__(self) -> None:
        self._now = 1000.0

    def monotonic(self) -> float:
        return self._now

    def within(self, act: Act, seconds: float) -> Act:
        """Let so much time pass as soon as the request has come."""

        def longer(connection: Connection) -> None:
            connection.let_pass = lambda: self._pass(seconds)
            act(connection)

        return longer

    def _pass(self, seconds: float) -> None:
        self._now += seconds


def resets_after(*parts: bytes) -> Act:
    """Read the request, send these bytes, and reset the connection."""

    def act(connection: Connection) -> None:
        connection.read()
        connection.send(*parts)
        connection.reset()

    return act


def closes_at_once(connection: Connection) -> None:
    """Do not even read the request."""


def holds(connection: Connection) -> None:
    """Read the request and say nothing any more."""
    connection.read()
    connection.wait_for_hang_up()


def holds_after(*parts: bytes) -> Act:
    """Send the beginning of an answer and nothing more."""

    def act(connection: Connection) -> None:
        connection.read()
        connection.send(*parts)
        connection.wait_for_hang_up()

    return act


class MisbehavingServer:
    """Does one act per connection, in turn; when there are no more, it holds."""

    def __init__(self, *acts: Act, host: str = "127.0.0.1") -> None:
        self.seen: list[Seen] = []
        self.requests = threading.Semaphore(0)
        """Released once for each request that has arrived."""
        self.hang_ups = threading.Semaphore(0)
        """Released once for each client that has gone while it was held."""
        self._acts = iter(acts)
        self._listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.url = str(Endpoint(host, self._listener.getsockname()[1]))
        self._lines: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    @property
    def targets(self) -> list[str]:
        return [seen.target for seen in self.seen]

    def note(self, seen: Seen) -> None:
        self.seen.append(seen)
        self.requests.release()

    def wait_for_requests(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.requests.acquire(timeout=GUARD), "no request has come"

    def wait_for_hang_up(self) -> None:
        assert self.hang_ups.acquire(timeout=GUARD), "the client has not gone"

    @contextmanager
    def running(self) -> Iterator["MisbehavingServer"]:
        self._threads[0].start()
        try:
            yield self
        finally:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._end()

    def _end(self) -> None:
        self._threads[0].join(GUARD)
        for line in self._lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(GUARD)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._listener.accept()
                self._lines.append(line)
                thread = threading.Thread(target=self._act, args=(line, next(self._acts, holds)))
                self._threads.append(thread)
                thread.start()

    def _act(self, line: socket.socket, act: Act) -> None:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with line, suppress(OSError):
            act(Connection(line, self))


@contextmanager
def server(*acts: Act, host: str = "127.0.0.1") -> Iterator[MisbehavingServer]:
    """Run a server for a while."""
    with MisbehavingServer(*acts, host=host).running() as running:
        yield running
