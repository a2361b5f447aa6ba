"""A load generator that can choose its source addresses, which wrk cannot: GETs in a closed loop, by epoll.

`python -m bench.load` writes `Began` and `Done`. It is a separate process with a minimal loop: the generator must not
be the bottleneck.
"""

import resource
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from bench.guest_client import QUERY, RECEIVE_BYTES, connect, send_request
from bench.process import allow_open_files, read_task, send_to_parent

AT_ONCE = 256
"""Number of responses taken from epoll at a time."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One connection per source address; at any time, `in_flight` of them wait for a response, in turn."""

    port: int
    sources: tuple[str, ...]
    in_flight: int
    seconds: float


class Began(msgspec.Struct, frozen=True):
    """All callers are connected and have had a response: counting starts now."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a run. A response is wrong if it is not a 200 with the size of the first one."""

    answers: int
    wrong: int
    seconds: float
    processor_seconds: float
    answer_bytes: int

    @property
    def per_second(self) -> float:
        """Responses per second."""
        return self.answers / self.seconds


def run(task: Task) -> Done:
    """Send requests for the duration of the task."""
    connections = [connect(task.port, source) for source in task.sources]
    try:
        size = {send_request(connection).size for connection in connections}
        if len(size) > 1:
            raise ValueError(f"the callers get answers of different sizes: {sorted(size)}")
        send_to_parent(Began())
        return _drive(connections, task, size.pop())
    finally:
        for connection in connections:
            connection.close()


def _drive(connections: Sequence[socket.socket], task: Task, size: int) -> Done:
    for connection in connections:
        connection.setblocking(False)
    used, began_at = _processor_seconds(), time.monotonic()
    answers, wrong = _loop(connections, task.in_flight, size, began_at + task.seconds)
    return Done(
        answers=answers,
        wrong=wrong,
        seconds=time.monotonic() - began_at,
        processor_seconds=_processor_seconds() - used,
        answer_bytes=size,
    )


def _loop(connections: Sequence[socket.socket], in_flight: int, size: int, until: float) -> tuple[int, int]:
    """For each response, send a request on the connection that was idle longest. Its speed limits the load."""
    receive: dict[int, Callable[[int], bytes]] = {each.fileno(): each.recv for each in connections}
    send: dict[int, Callable[[bytes], int]] = {each.fileno(): each.send for each in connections}
    resting = deque(send.values())
    rest, next_to_ask, now = resting.append, resting.popleft, time.monotonic
    answers = wrong = 0
    with select.epoll() as epoll:
        for each in connections:
            epoll.register(each.fileno(), select.EPOLLIN)
        for _ in range(in_flight):
            next_to_ask()(QUERY)
        while not answers or now() < until:
            for number, _ in epoll.poll(1.0, AT_ONCE):
                answer = receive[number](RECEIVE_BYTES)
                answers += 1
                if len(answer) != size or not answer.startswith(b"HTTP/1.1 200 "):
                    wrong += 1
                    if not answer:
                        raise ConnectionError("the server has closed a connection")
                rest(send[number])
                next_to_ask()(QUERY)
    return answers, wrong


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    allow_open_files(16_384)
    send_to_parent(run(read_task(Task)))
