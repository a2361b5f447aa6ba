"""Many guests at once: each has a connection of its own, asks one thing, and notes when its answer came.

`python -m bench.burst` connects, says `Asked` as soon as the last question is sent, and `Answered` when the last
answer is there.
"""

import select
import socket
import time
from collections.abc import Sequence

import msgspec

from bench.guest import QUERY, ask, connect, held_query, post, read_answer
from bench.process import PATIENCE, allow_open_files, read_task, say


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One connection per source address; all post `body`, or, without one, wait for a new document.

    An answer is right if it is a 200 and `contains` is in its body.
    """

    port: int
    sources: tuple[str, ...]
    body: str | None = None
    contains: str = ""


class Asked(msgspec.Struct, frozen=True):
    """Every question is sent."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """When it began, and when each answer came, on the monotonic clock; `wall_offset` leads to the time of day."""

    began_at: float
    answered_at: list[float]
    wrong: int
    wall_offset: float


def run(task: Task) -> Answered:
    """Ask, and wait for all answers."""
    connections = [connect(task.port, source) for source in task.sources]
    questions = [_question(task, connection) for connection in connections]
    began_at = time.monotonic()
    for connection, question in zip(connections, questions, strict=True):
        connection.sendall(question)
    say(Asked())
    answered_at, wrong = _collect(connections, task.contains.encode())
    for connection in connections:
        connection.close()
    offset = time.time() - time.monotonic()
    return Answered(began_at=began_at, answered_at=answered_at, wrong=wrong, wall_offset=offset)


def _question(task: Task, connection: socket.socket) -> bytes:
    if task.body is not None:
        return post(task.body.encode())
    return held_query(ask(connection, QUERY).header("etag"))


def _collect(connections: Sequence[socket.socket], contains: bytes) -> tuple[list[float], int]:
    """Read one answer from each. What it says is looked at afterwards: reading 10,000 answers must be quick."""
    waiting = {connection.fileno(): connection for connection in connections}
    received: dict[int, bytes] = dict.fromkeys(waiting, b"")
    answered_at: list[float] = []
    with select.epoll() as epoll:
        for number in waiting:
            epoll.register(number, select.EPOLLIN)
        while waiting:
            ready = epoll.poll(PATIENCE, len(waiting))
            if not ready:
                raise TimeoutError(f"{len(waiting)} questions have no answer after {PATIENCE:.0f} s")
            for number, _ in ready:
                some = waiting[number].recv(1 << 20)
                received[number] += some
                if not some or read_answer(received[number]) is not None:
                    answered_at.append(time.monotonic())
                    epoll.unregister(number)
                    del waiting[number]
    return answered_at, sum(not _is_right(answer, contains) for answer in received.values())


def _is_right(received: bytes, contains: bytes) -> bool:
    answer = read_answer(received)
    return answer is not None and answer.status == 200 and contains in answer.body


if __name__ == "__main__":
    allow_open_files(16_384)
    say(run(read_task(Task)))
