"""Constant HTTP traffic from several threads; every response is recorded."""

import http.client
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread

from tests.support.processes import GUARD, wait_until

USERS = 4


class Traffic:
    """The traffic and its results so far."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._over = Event()
        self._lock = Lock()
        self._answers: Counter[str] = Counter()
        self.failures: list[str] = []

    def keep_asking(self) -> None:
        """Send requests until `end` is called."""
        while not self._over.is_set():
            self._ask()

    def end(self) -> None:
        """Send no more requests; those in flight finish."""
        self._over.set()

    def answers(self) -> Counter[str]:
        """Return the number of responses of each server."""
        with self._lock:
            return self._answers.copy()

    def forget_failures(self) -> None:
        """Reset the counters after all requests in flight have been answered."""
        before = self.answers().total()
        wait_until(lambda: self.answers().total() > before + 2 * USERS, "answers")
        with self._lock:
            self.failures.clear()

    def wait_for_answers_of(self, *servers: str) -> None:
        """Wait until each of these servers has sent another response."""
        before = self.answers()
        wait_until(
            lambda: all(self.answers()[server] > before[server] for server in servers),
            f"answers of {', '.join(servers)}",
        )

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=GUARD)
        try:
            connection.request("GET", "/")
            answer = connection.getresponse()
            self._note(answer.status, answer.read().decode())
        except (OSError, http.client.HTTPException) as error:
            self._fail(repr(error))
        finally:
            connection.close()

    def _note(self, status: int, body: str) -> None:
        if status != 200:
            self._fail(f"{status}: {body}")
            return
        with self._lock:
            self._answers[body] += 1

    def _fail(self, why: str) -> None:
        with self._lock:
            self.failures.append(why)


@contextmanager
def constant_traffic(port: int) -> Iterator[Traffic]:
    """Send requests while the context is open."""
    traffic = Traffic(port)
    users = [Thread(target=traffic.keep_asking, daemon=True) for _ in range(USERS)]
    for user in users:
        user.start()
    try:
        yield traffic
    finally:
        traffic.end()
        for user in users:
            user.join(GUARD)
