"""Calls in other threads, and the threads that a client has started."""

import threading
from collections.abc import Callable

from forewarn.client import Closed
from tests.client.faulty_server import GUARD


class Caller(threading.Thread):
    """A thread that makes a call and keeps its outcome."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.outcome: object = "nothing yet"

    def run(self) -> None:
        try:
            self.outcome = self._call()
        except Closed as error:
            self.outcome = type(error)

    def ended(self) -> object:
        self.join(GUARD)
        return self.outcome


def calling(call: Callable[[], object]) -> Caller:
    caller = Caller(call)
    caller.start()
    return caller


def threads_of_the_client() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("forewarn-")]
