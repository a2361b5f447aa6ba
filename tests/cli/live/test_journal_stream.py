"""Streams for live views: news, signals, and a connection that is lost and found again."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from forewarn.api.errors import ApiError, InvalidResponse, RequestRefused, ServiceUnreachable
from forewarn.cli.live import journal_stream
from forewarn.cli.live.journal_stream import (
    Heartbeat,
    JournalStream,
    KeyInput,
    StreamFailed,
    StreamResumed,
    StreamUnavailable,
    connection_error,
)

LOST = ServiceUnreachable("http://h", "down")
PRUNED = RequestRefused(410, "journal-pruned", "gone", {})


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


def read(monkeypatch: pytest.MonkeyPatch, *connections: list[Any], after: int | None = None) -> tuple[list[Any], Any]:
    """Read a stream to the error that ends it."""
    monkeypatch.setattr(journal_stream, "RECONNECT_DELAY", 0.0)
    api: Any = FakeApi(*connections)
    stream = JournalStream(api, after=after)
    stream._read()
    return list(stream.wait(0)), api


END = InvalidResponse("http://h", "nonsense")


def test_stream_resumes_after_the_last_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    items, api = read(monkeypatch, [entry(7), None, LOST], [LOST], [entry(8), END], after=6)
    assert [type(item) for item in items] == [
        SimpleNamespace,
        Heartbeat,
        StreamUnavailable,
        StreamResumed,
        SimpleNamespace,
        StreamFailed,
    ]
    assert api.asked == [6, 7, 7]


def test_position_that_the_service_does_not_have_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    _, api = read(monkeypatch, [entry(7), PRUNED], [END])
    assert api.asked == [None, None]


def test_service_that_cannot_be_reached_at_first_is_an_error() -> None:
    api: Any = FakeApi([LOST])
    with pytest.raises(ServiceUnreachable):
        JournalStream(api).open()


def test_first_item_is_not_lost() -> None:
    api: Any = FakeApi([entry(7), END])
    stream = JournalStream(api)
    stream.open()
    stream.put(KeyInput("q"))
    found = list(stream.wait(60))
    assert found[0] == entry(7)


def test_empty_stream_gives_nothing_after_the_time() -> None:
    api: Any = FakeApi()
    assert list(JournalStream(api).wait(0)) == []


def test_connection_error_is_shown_until_the_connection_is_back() -> None:
    assert connection_error([StreamUnavailable("down"), Heartbeat()], "") == "down"
    assert connection_error([StreamUnavailable("down"), StreamResumed()], "old") == ""
    assert connection_error([Heartbeat()], "old") == "old"
    with pytest.raises(InvalidResponse):
        connection_error([StreamFailed(END)], "")
