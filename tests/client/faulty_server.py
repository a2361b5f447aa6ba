"""Server on real sockets with a scripted behaviour per connection: resets, delays, cut and wrong responses."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import NamedTuple, TypeAlias

from forewarn.client.endpoint import Endpoint
from tests.client.scripted_flow import document, event

GUARD = 60.0
"""How many seconds an operation may take before it counts as hanging."""

PLAIN = {"Content-Type": "application/json; charset=utf-8"}


class ReceivedRequest(NamedTuple):
    """A received request."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def target(self) -> str:
        return self.line.split(" ")[1]


class Connection:
    """One connection, from the server's side."""

    def __init__(self, line: socket.socket, server: "FaultyServer") -> None:
        self._socket, self._server = line, server
        self.advance_time: Callable[[], None] = lambda: None

    def read(self) -> ReceivedRequest:
        """Read the whole request."""
        with self._socket.makefile("rb") as reader:
            first = reader.readline().decode().rstrip("\r\n")
            # A client that disconnects sends no blank line at the end.
            headers = dict(_header(row) for row in takewhile(b"\r\n".__ne__, reader))
            body = reader.read(int(headers.get("content-length", "0")))
        seen = ReceivedRequest(first, headers, body)
        self.advance_time()
        self._server.record(seen)
        return seen

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self._socket.sendall(part)

    def reset(self) -> None:
        """Close the connection with a TCP reset."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def wait_for_hang_up(self) -> None:
        """Send nothing until the client disconnects."""
        with suppress(OSError):
            self._socket.recv(1)
        self._server.hang_ups.release()


Behaviour: TypeAlias = Callable[[Connection], None]


def _header(row: bytes) -> tuple[str, str]:
    name, _, value = row.decode("latin-1").partition(":")
    return name.lower(), value.strip()


def raw_response(status: int = 200, body: bytes = document(), /, **headers: str) -> bytes:
    """Return a whole response; `_` stands for `-` in header names."""
    given = (
        PLAIN | {"Content-Length": str(len(body))} | {key.replace("_", "-"): value for key, value in headers.items()}
    )
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"HTTP/1.1 {status} Whatever\r\n{head}\r\n".encode() + body


def sends(*parts: bytes) -> Behaviour:
    """Read the request, send these bytes, and close."""

    def act(connection: Connection) -> None:
        connection.read()
        connection.send(*parts)

    return act


def responds(status: int = 200, body: bytes = document(), /, **headers: str) -> Behaviour:
    """Send a correct response."""
    return sends(raw_response(status, body, **headers))


INSTANCE = responds(200, b'{"compute":{"name":"web_0"}}')
HELD = responds(200, document(event()), ETag='"1"', Forewarn_Wait="60")


def dribbles(whole: bytes) -> Behaviour:
    """Send the response byte by byte."""
    return sends(*(bytes([byte]) for byte in whole))


def trickles(first: bytes, more: bytes) -> Behaviour:
    """Send data without end, until the client disconnects."""

    def act(connection: Connection) -> None:
        connection.read()
        connection.send(first)
        while True:
            connection.send(more)
            time.sleep(0.01)

    return act


class FakeTime:
    """A fake clock of the client: time passes only in the behaviours of the server."""

    def __init__(self) -> None:
        self._now = 1000.0

    def monotonic(self) -> float:
        return self._now

    def within(self, act: Behaviour, seconds: float) -> Behaviour:
        """Advance the clock by `seconds` as soon as the request has arrived."""

        def longer(connection: Connection) -> None:
            connection.advance_time = lambda: self._advance(seconds)
            act(connection)

        return longer

    def _advance(self, seconds: float) -> None:
        self._now += seconds


def resets_after(*parts: bytes) -> Behaviour:
    """Read the request, send these bytes, and reset the connection."""

    def act(connection: Connection) -> None:
        connection.read()
        connection.send(*parts)
        connection.reset()

    return act


def closes_at_once(connection: Connection) -> None:
    """Close without reading the request."""


def holds(connection: Connection) -> None:
    """Read the request and never answer."""
    connection.read()
    connection.wait_for_hang_up()


def holds_after(*parts: bytes) -> Behaviour:
    """Send the start of a response and nothing more."""

    def act(connection: Connection) -> None:
        connection.read()
        connection.send(*parts)
        connection.wait_for_hang_up()

    return act


class FaultyServer:
    """Runs one behaviour per connection, in order; after the last one it never answers."""

    def __init__(self, *acts: Behaviour, host: str = "127.0.0.1") -> None:
        self.received: list[ReceivedRequest] = []
        self.requests = threading.Semaphore(0)
        """Released once per received request."""
        self.hang_ups = threading.Semaphore(0)
        """Released once per client that disconnected while it waited for a response."""
        self._behaviours = iter(acts)
        self._listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.url = str(Endpoint(host, self._listener.getsockname()[1]))
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    @property
    def targets(self) -> list[str]:
        return [seen.target for seen in self.received]

    def record(self, seen: ReceivedRequest) -> None:
        self.received.append(seen)
        self.requests.release()

    def wait_for_requests(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.requests.acquire(timeout=GUARD), "no request arrived"

    def wait_for_hang_up(self) -> None:
        assert self.hang_ups.acquire(timeout=GUARD), "the client did not disconnect"

    @contextmanager
    def running(self) -> Iterator["FaultyServer"]:
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
        for line in self._connections:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(GUARD)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._listener.accept()
                self._connections.append(line)
                thread = threading.Thread(target=self._act, args=(line, next(self._behaviours, holds)))
                self._threads.append(thread)
                thread.start()

    def _act(self, line: socket.socket, act: Behaviour) -> None:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with line, suppress(OSError):
            act(Connection(line, self))


@contextmanager
def run_faulty_server(*acts: Behaviour, host: str = "127.0.0.1") -> Iterator[FaultyServer]:
    """Run a server while the context is open."""
    with FaultyServer(*acts, host=host).running() as running:
        yield running
