"""Small event handlers in threads, as programs under test."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from forewarn.client import Appeared, ClientError, Closed, Event, ScheduledEvents

GUARD = 60.0
"""How many seconds a test waits for something that must happen."""


@contextmanager
def run_handler(url: str, *, prepare: Callable[[Event], bool] = lambda _: True) -> Iterator[None]:
    """Run a handler until the context ends: it approves every event of the VM for which `prepare` returns True."""
    with ScheduledEvents(url, interval=0.05, on_trouble=_nothing) as client:
        thread = threading.Thread(target=_handle, args=(client, prepare), daemon=True)
        thread.start()
        try:
            yield
        finally:
            client.close()
            thread.join(GUARD)
            assert not thread.is_alive()


def _handle(client: ScheduledEvents, prepare: Callable[[Event], bool]) -> None:
    try:
        for change in client.watch(mine=True):
            if isinstance(change, Appeared) and prepare(change.event):
                client.approve(change.event)
    except Closed:
        pass


def _nothing(error: ClientError, pause: float) -> None:
    """Do not log retries."""
