"""Tests of the journal watcher: it wakes waiters at new entries, reconnects, and can be cancelled."""

import threading
from collections.abc import Iterator
from typing import cast

import pytest

from forewarn.api import journal_follower
from forewarn.api.client import ApiClient
from forewarn.api.errors import ApiError, RequestRefused, ServiceUnreachable
from forewarn.testing.scenario.journal_watcher import Cancelled, JournalWatcher

GUARD = 60.0
LONG = 3600.0


class Journal:
    """A fake API client: the first calls of `watch` raise the given errors, later ones yield new entries."""

    def __init__(self, *tries: Exception) -> None:
        self._tries = list(tries)
        self.grows = threading.Semaphore(0)

    def watch(self, *, after: int | None, campaign: str | None) -> Iterator[None]:
        if self._tries:
            raise self._tries.pop(0)
        while True:
            self.grows.acquire()
            yield None


def run_watcher(journal: Journal) -> JournalWatcher:
    return JournalWatcher(cast("ApiClient", journal))


def test_wait_returns_once_for_new_entries() -> None:
    journal = Journal()
    watcher = run_watcher(journal)
    journal.grows.release()
    assert watcher.wait(LONG)
    assert not watcher.wait(0)


@pytest.mark.parametrize(
    "error",
    [ServiceUnreachable("http://127.0.0.1:1", "nobody is there"), RequestRefused(503, "starting", "not ready yet", {})],
    ids=["unreachable", "starting"],
)
def test_watcher_reconnects_to_a_service_that_restarts(monkeypatch: pytest.MonkeyPatch, error: ApiError) -> None:
    monkeypatch.setattr(journal_follower, "FIRST_PAUSE", 0.0)
    journal = Journal(error)
    journal.grows.release()
    assert run_watcher(journal).wait(LONG)


def test_wait_raises_a_refusal() -> None:
    with pytest.raises(RequestRefused, match="not yours"):
        run_watcher(Journal(RequestRefused(403, "forbidden", "not yours", {}))).wait(LONG)


def test_cancel_ends_the_current_wait_and_all_later_ones() -> None:
    watcher, outcomes = run_watcher(Journal()), list[str]()

    def wait() -> None:
        try:
            watcher.wait(LONG)
        except Cancelled:
            outcomes.append("cancelled")

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(0.1)  # most likely the thread waits by now; otherwise its wait must raise immediately
    watcher.cancel()
    waiting.join(GUARD)
    assert outcomes == ["cancelled"]
    with pytest.raises(Cancelled):
        watcher.wait(LONG)
