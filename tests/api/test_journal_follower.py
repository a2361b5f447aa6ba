"""Following the journal: entries, heartbeats, and a connection that is lost and found again."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from forewarn.api import journal_follower
from forewarn.api.errors import ApiError, InvalidResponse, RequestRefused, ServiceUnreachable
from forewarn.api.journal_follower import Heartbeat, StreamResumed, StreamUnavailable, follow_journal

LOST = ServiceUnreachable("http://h", "down")
STARTING = RequestRefused(503, "starting", "not ready yet", {})
PRUNED = RequestRefused(410, "journal-pruned", "gone", {})
END = InvalidResponse("http://h", "nonsense")
LOST_ONCE = StreamUnavailable(str(LOST))


def entry(position: int) -> Any:
    return SimpleNamespace(position=position)


class FakeApi:
    """Gives each of its connections in turn: entries, None for a heartbeat, and an error at its end."""

    def __init__(self, *connections: list[Any]) -> None:
        self._connections = list(connections)
        self.asked: list[int | None] = []

    def watch(self, *, after: int | None, campaign: str | None) -> Iterator[Any]:
        self.asked.append(after)
        for each in self._connections.pop(0):
            if isinstance(each, ApiError):
                raise each
            yield each


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_follower, "FIRST_PAUSE", 0.0)


def follow(*connections: list[Any], after: int | None = None, is_known: bool = False) -> tuple[list[Any], Any]:
    """Follow the journal to the error that ends it, which is the last item."""
    api: Any = FakeApi(*connections)
    items: list[Any] = []
    try:
        items.extend(follow_journal(api, after=after, is_known=is_known))
    except ApiError as error:
        items.append(error)
    return items, api.asked


def test_follower_resumes_after_the_last_entry() -> None:
    items, asked = follow([entry(7), None, LOST], [LOST], [STARTING], [entry(8), END], after=6)
    assert items == [entry(7), Heartbeat(), LOST_ONCE, StreamResumed(), entry(8), END]
    assert asked == [6, 7, 7, 7]


def test_position_that_the_service_does_not_have_is_given_up() -> None:
    _, asked = follow([entry(7), PRUNED], [END])
    assert asked == [None, None]


def test_service_that_cannot_be_reached_at_first_is_an_error_unless_it_is_known() -> None:
    assert follow([LOST]) == ([LOST], [None])
    items, asked = follow([LOST], [STARTING], [None, END], is_known=True)
    assert (items, asked) == ([LOST_ONCE, StreamResumed(), Heartbeat(), END], [None, None, None])
