"""Many guests at once: each sends one request on its own connection, and records the time of the response.

`python -m bench.burst` connects, sends `RequestsSent` to its parent after the last request, and `ResponsesReceived`
after the last response.
"""

import select
import socket
import time
from collections.abc import Sequence

import msgspec

from bench.guest_client import QUERY, connect, long_poll_query, parse_response, post, send_request
from bench.process import TIMEOUT, allow_open_files, read_task, send_to_parent


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One connection per source address; all post `body`, or, without one, wait for a new document.

    A response is correct if it is a 200 and its body has `contains`.
    """

    port: int
    sources: tuple[str, ...]
    body: str | None = None
    contains: str = ""


class RequestsSent(msgspec.Struct, frozen=True):
    """All requests have been sent."""


class ResponsesReceived(msgspec.Struct, frozen=True, kw_only=True):
    """Start time and time of each response on the monotonic clock; add `wall_offset` for the time of day."""

    began_at: float
    answered_at: list[float]
    wrong: int
    wall_offset: float


def run(task: Task) -> ResponsesReceived:
    """Send all requests, and wait for all responses."""
    connections = [connect(task.port, source) for source in task.sources]
    questions = [_question(task, connection) for connection in connections]
    began_at = time.monotonic()
    for connection, question in zip(connections, questions, strict=True):
        connection.sendall(question)
    send_to_parent(RequestsSent())
    answered_at, wrong = _collect(connections, task.contains.encode())
    for connection in connections:
        connection.close()
    offset = time.time() - time.monotonic()
    return ResponsesReceived(began_at=began_at, answered_at=answered_at, wrong=wrong, wall_offset=offset)


def _question(task: Task, connection: socket.socket) -> bytes:
    if task.body is not None:
        return post(task.body.encode())
    return long_poll_query(send_request(connection, QUERY).header("etag"))


def _collect(connections: Sequence[socket.socket], contains: bytes) -> tuple[list[float], int]:
    """Read one response per connection. Check the bodies later: reading 10,000 responses must be fast."""
    waiting = {connection.fileno(): connection for connection in connections}
    received: dict[int, bytes] = dict.fromkeys(waiting, b"")
    answered_at: list[float] = []
    with select.epoll() as epoll:
        for number in waiting:
            epoll.register(number, select.EPOLLIN)
        while waiting:
            ready = epoll.poll(TIMEOUT, len(waiting))
            if not ready:
                raise TimeoutError(f"{len(waiting)} questions have no answer after {TIMEOUT:.0f} s")
            for number, _ in ready:
                some = waiting[number].recv(1 << 20)
                received[number] += some
                if not some or parse_response(received[number]) is not None:
                    answered_at.append(time.monotonic())
                    epoll.unregister(number)
                    del waiting[number]
    return answered_at, sum(not _is_right(answer, contains) for answer in received.values())


def _is_right(received: bytes, contains: bytes) -> bool:
    answer = parse_response(received)
    return answer is not None and answer.status == 200 and contains in answer.body


if __name__ == "__main__":
    allow_open_files(16_384)
    send_to_parent(run(read_task(Task)))
