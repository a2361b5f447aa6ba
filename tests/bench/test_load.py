"""The load generators count correct responses and nothing else."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench import burst, load
from bench.process import run_child

pytestmark = pytest.mark.process

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
HANG_UP = b""
REFUSED = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n"


class Server(socketserver.ThreadingTCPServer):
    """Sends the first response once per connection, then the second one."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, first: bytes, then: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.first, self.then = first, then
        self.callers: set[str] = set()


class Handler(socketserver.BaseRequestHandler):
    server: Server

    def handle(self) -> None:
        self.server.callers.add(self.client_address[0])
        answer = self.server.first
        while self.request.recv(65536):
            if answer == HANG_UP:
                return
            self.request.sendall(answer)
            answer = self.server.then


@contextmanager
def serving(first: bytes, then: bytes) -> Iterator[Server]:
    with Server(first, then) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def run_load(server: Server, sources: tuple[str, ...]) -> load.Done:
    task = load.Task(port=server.server_address[1], sources=sources, in_flight=min(2, len(sources)), seconds=0.1)
    with run_child("bench.load", task) as talk:
        talk.receive(load.Began)
        return talk.receive(load.Done)


def test_load_uses_every_source_address() -> None:
    with serving(OK, OK) as server:
        done = run_load(server, ("127.0.0.1", "127.0.0.2", "127.3.2.1"))
    assert server.callers == {"127.0.0.1", "127.0.0.2", "127.3.2.1"}
    assert (done.answers > 0, done.wrong, done.answer_bytes) == (True, 0, len(OK))


@pytest.mark.parametrize("then", [REFUSED, OK + b"x"], ids=["another-status", "another-size"])
def test_wrong_responses_are_counted_as_errors(then: bytes) -> None:
    with serving(OK, then) as server:
        done = run_load(server, ("127.0.0.1",) * 3)
    assert done.wrong == done.answers > 0


def test_load_fails_when_the_server_closes_connections() -> None:
    with serving(OK, HANG_UP) as server, pytest.raises(RuntimeError, match=r"bench\.load ended with status 1"):
        run_load(server, ("127.0.0.1",))


@pytest.mark.parametrize(("answer", "wrong"), [(OK, 0), (REFUSED, 3)], ids=["right", "refused"])
def test_burst_measures_every_response(answer: bytes, wrong: int) -> None:
    with serving(answer, answer) as server:
        task = burst.Task(port=server.server_address[1], sources=("127.0.0.1",) * 3, body="{}")
        with run_child("bench.burst", task) as talk:
            talk.receive(burst.RequestsSent)
            answered = talk.receive(burst.ResponsesReceived)
    assert (len(answered.answered_at), answered.wrong) == (3, wrong)
    assert all(at >= answered.began_at for at in answered.answered_at)


def test_burst_checks_the_response_bodies() -> None:
    with serving(OK, OK) as server:
        task = burst.Task(port=server.server_address[1], sources=("127.0.0.1",) * 2, body="", contains="Started")
        with run_child("bench.burst", task) as talk:
            talk.receive(burst.RequestsSent)
            assert talk.receive(burst.ResponsesReceived).wrong == 2


def test_exited_program_is_reported() -> None:
    with run_child("bench.load", load.Task(port=1, sources=("127.0.0.1",), in_flight=1, seconds=0)) as talk:
        with pytest.raises(RuntimeError, match=r"bench\.load ended with status 1"):
            talk.receive(load.Began)
        with pytest.raises(RuntimeError, match=r"bench\.load has ended with status 1"):
            talk.check_alive()
