"""Following the journal: entries, heartbeats, and a connection that is lost and found again."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

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


class Pauses(threading.Event):
    """An event that is never set, and records its pauses instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        return False


def follow(
    *connections: list[Any], after: int | None = None, is_known: bool = False, pauses: Pauses | None = None
) -> tuple[list[Any], Any]:
    """Follow the journal to the error that ends it, which is the last item."""
    api: Any = FakeApi(*connections)
    items: list[Any] = []
    try:
        items.extend(follow_journal(api, after=after, is_known=is_known, closed=pauses or Pauses()))
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


def test_pause_grows_with_each_failure_until_an_entry_arrives() -> None:
    pauses = Pauses()
    follow([LOST], [LOST], [LOST], [STARTING], [entry(7), LOST], [END], is_known=True, pauses=pauses)
    assert pauses.seconds == [1, 2, 4, 5, 1]
