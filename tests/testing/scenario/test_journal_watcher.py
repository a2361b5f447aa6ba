"""The bell rings when the journal grows, whatever becomes of the connection, and lets nobody wait in vain."""

import threading
from collections.abc import Iterator
from typing import cast

import pytest

from forewarn.api.client import ApiClient
from forewarn.api.errors import RequestRefused, ServiceUnreachable
from forewarn.testing.scenario.journal_watcher import Cancelled, JournalWatcher

GUARD = 60.0
FOR_EVER = 3600.0


class Journal:
    """A service of which one can follow the journal: each time it is tried, it goes as was said, and then on."""

    def __init__(self, *tries: Exception) -> None:
        self._tries = list(tries)
        self.grows = threading.Semaphore(0)

    def watch(self) -> Iterator[None]:
        if self._tries:
            raise self._tries.pop(0)
        while True:
            self.grows.acquire()
            yield None


def run_watcher(journal: Journal) -> JournalWatcher:
    return JournalWatcher(cast("ApiClient", journal))


def test_wait_returns_once_for_what_has_happened() -> None:
    journal = Journal()
    bell = run_watcher(journal)
    journal.grows.release()
    assert bell.wait(FOR_EVER)
    assert not bell.wait(0)


def test_service_that_is_gone_is_asked_again() -> None:
    journal = Journal(ServiceUnreachable("http://127.0.0.1:1", "nobody is there"))
    journal.grows.release()
    assert run_watcher(journal).wait(FOR_EVER)


def test_refusal_is_told_to_who_waits() -> None:
    with pytest.raises(RequestRefused, match="not yours"):
        run_watcher(Journal(RequestRefused(403, "forbidden", "not yours", {}))).wait(FOR_EVER)


def test_moment_that_is_over_is_not_waited_for() -> None:
    bell = run_watcher(Journal())
    assert not bell.wait_until(bell.deadline(0))


def test_cancelling_ends_the_wait_that_is_under_way_and_all_others() -> None:
    bell, outcomes = run_watcher(Journal()), list[str]()

    def wait() -> None:
        try:
            bell.wait(FOR_EVER)
        except Cancelled:
            outcomes.append("cancelled")

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(0.1)  # most likely it waits by now; if not, it must not begin to
    bell.cancel()
    waiting.join(GUARD)
    assert outcomes == ["cancelled"]
    with pytest.raises(Cancelled):
        bell.wait(FOR_EVER)
