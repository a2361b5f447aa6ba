"""Open-loop load generator: requests at a fixed rate, whether responses come quickly or not.

`python -m bench.paced_load` writes `Began`, sends requests until its input ends, and writes `Done`. A response
time counts from when its request was due (no coordinated omission)."""

import select
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count, cycle
from typing import NamedTuple

import msgspec

from bench.guest_client import INSTANCE_QUERY, QUERY, RECEIVE_BYTES, connect, post, send_request
from bench.process import allow_open_files, raise_priority, read_task, send_to_parent

LONGEST_PAUSE = 0.05
"""Longest interval between checks for the order to stop."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One connection per source address; together they send requests at this rate, in turn.

    With `is_mixed`, one request in five is not a GET of the events: it asks for the instance's metadata, or approves an
    event that does not exist.
    """

    port: int
    sources: tuple[str, ...]
    per_second: float
    is_mixed: bool = False


class Request(NamedTuple):
    """A request and the beginning of the expected response."""

    content: bytes
    status_line: bytes


GET_EVENTS = Request(QUERY, b"HTTP/1.1 200 ")
GET_INSTANCE = Request(INSTANCE_QUERY, b"HTTP/1.1 200 ")
APPROVE_UNKNOWN = Request(
    post(b'{"StartRequests":[{"EventId":"00000000-0000-0000-0000-000000000000"}]}'), b"HTTP/1.1 400 "
)
EVENTS_ONLY = (GET_EVENTS,)
MIXED = (GET_EVENTS,) * 8 + (GET_INSTANCE, APPROVE_UNKNOWN)


class Began(msgspec.Struct, frozen=True):
    """All callers are connected and have had a response: counting starts now."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """Response times of the GETs of the events, in seconds. A response is wrong if its status is not the expected."""

    took: list[float]
    wrong: int


def run(task: Task) -> Done:
    """Send requests until the input ends."""
    connections = [connect(task.port, source) for source in task.sources]
    try:
        for connection in connections:
            send_request(connection)
        send_to_parent(Began())
        kinds = MIXED if task.is_mixed else EVENTS_ONLY
        return PacedClient(connections, task.per_second, kinds).run(sys.stdin.fileno())
    finally:
        for connection in connections:
            connection.close()


class PacedClient:
    """The loop that sends due requests and records responses."""

    def __init__(
        self, connections: Sequence[socket.socket], per_second: float, kinds: Sequence[Request] = EVENTS_ONLY
    ) -> None:
        self._kinds = cycle(kinds)
        self._sent: dict[int, Request] = {}
        self._connections = {connection.fileno(): connection for connection in connections}
        self._due = _turns([connection.fileno() for connection in connections], per_second)
        self._waiting: dict[int, list[float]] = {}
        self._took: list[float] = []
        self._wrong = 0

    def run(self, until_closed: int) -> Done:
        """Send requests until this file ends, and wait for the last response."""
        number, due_at = next(self._due)
        is_told = False
        with select.epoll() as epoll:
            for each in (*self._connections, until_closed):
                epoll.register(each, select.EPOLLIN)
            while not is_told or self._waiting:
                while not is_told and due_at <= time.monotonic():
                    self._send(number, due_at)
                    number, due_at = next(self._due)
                pause = min(max(due_at - time.monotonic(), 0.0), LONGEST_PAUSE)
                for ready, _ in epoll.poll(pause):
                    if ready == until_closed:
                        is_told = True
                        epoll.unregister(until_closed)
                    else:
                        self._receive(ready)
        return Done(took=self._took, wrong=self._wrong)

    def _send(self, number: int, due_at: float) -> None:
        """Send a request, unless the previous response is missing: then it counts for this request too."""
        if number in self._waiting:
            self._waiting[number].append(due_at)
        else:
            self._waiting[number] = [due_at]
            self._sent[number] = next(self._kinds)
            self._connections[number].sendall(self._sent[number].content)

    def _receive(self, number: int) -> None:
        answer = self._connections[number].recv(RECEIVE_BYTES)
        if not answer:
            raise ConnectionError("the server has closed a connection")
        now = time.monotonic()
        request, due = self._sent[number], self._waiting.pop(number)
        if request is GET_EVENTS:
            self._took += [now - due_at for due_at in due]
        self._wrong += not answer.startswith(request.status_line)


def _turns(numbers: Sequence[int], per_second: float) -> Iterator[tuple[int, float]]:
    began_at = time.monotonic()
    for turn in count():
        yield numbers[turn % len(numbers)], began_at + turn / per_second


if __name__ == "__main__":
    allow_open_files(16_384)
    raise_priority()
    send_to_parent(run(read_task(Task)))
