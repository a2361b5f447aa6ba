"""Background load: guests in long polls and operators that watch the journal, on one connection each.

`python -m bench.background_load` writes `Began` when all are connected, continues until its input ends, and writes
`Done`. A guest whose long poll is answered starts the next one at once.
"""

import select
import socket
import sys
from urllib.parse import urlsplit

import msgspec

from bench.guest_client import RECEIVE_BYTES, connect, long_poll_query, parse_response, send_request
from bench.process import allow_open_files, read_task, send_to_parent


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of the guests, and the operator API with a token and a number of watchers."""

    port: int
    sources: tuple[str, ...]
    operator_url: str
    token: str
    watchers: int


class Began(msgspec.Struct, frozen=True):
    """All guests and watchers are connected."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """How many long polls were answered, how many with an error, and how many bytes the watchers have read."""

    answers: int
    wrong: int
    watched_bytes: int


class _Guest:
    """One guest, always in a long poll."""

    def __init__(self, port: int, source: str) -> None:
        self.connection = connect(port, source)
        self._received = b""
        self._wait(send_request(self.connection).header("etag"))

    def receive(self) -> int | None:
        """Read from the connection; return the status of a complete answer, after which the next long poll starts."""
        some = self.connection.recv(RECEIVE_BYTES)
        if not some:
            raise ConnectionError("the server has closed the connection of a guest")
        self._received += some
        answer = parse_response(self._received)
        if answer is None:
            return None
        self._received = b""
        self._wait(answer.header("etag"))
        return answer.status

    def _wait(self, etag: str) -> None:
        self.connection.sendall(long_poll_query(etag))


def run(task: Task) -> Done:
    """Wait and watch until the input ends."""
    guests = {guest.connection.fileno(): guest for guest in (_Guest(task.port, source) for source in task.sources)}
    watchers = {each.fileno(): each for each in (_watch(task) for _ in range(task.watchers))}
    send_to_parent(Began())
    answers = wrong = watched_bytes = 0
    with select.epoll() as epoll:
        for number in (*guests, *watchers, sys.stdin.fileno()):
            epoll.register(number, select.EPOLLIN)
        while True:
            for ready, _ in epoll.poll():
                if ready == sys.stdin.fileno():
                    return Done(answers=answers, wrong=wrong, watched_bytes=watched_bytes)
                if ready in watchers:
                    some = watchers[ready].recv(RECEIVE_BYTES)
                    if not some:
                        raise ConnectionError("the service has closed the connection of a watcher")
                    watched_bytes += len(some)
                elif (status := guests[ready].receive()) is not None:
                    answers += 1
                    wrong += status not in (200, 304)  # 304: the document was the same for a minute


def _watch(task: Task) -> socket.socket:
    address = urlsplit(task.operator_url)
    assert address.hostname is not None
    connection = socket.create_connection((address.hostname, address.port or 80))
    head = f"GET /v1/watch HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {task.token}\r\n"
    connection.sendall(f"{head}Accept: text/event-stream\r\n\r\n".encode())
    return connection


if __name__ == "__main__":
    allow_open_files(16_384)
    send_to_parent(run(read_task(Task)))
