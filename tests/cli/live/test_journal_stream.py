"""Streams for live views: news and signals."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from forewarn.api.errors import ApiError, InvalidResponse, ServiceUnreachable
from forewarn.api.journal_follower import Heartbeat, StreamResumed, StreamUnavailable
from forewarn.cli.live.journal_stream import JournalStream, KeyInput, StreamFailed, connection_error

LOST = ServiceUnreachable("http://h", "down")


def entry(position: int) -> Any:
    return SimpleNamespace(position=position)


class FakeApi:
    """Gives entries and ends with an error."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def watch(self, *, after: int | None, campaign: str | None) -> Iterator[Any]:
        for each in self._items:
            if isinstance(each, ApiError):
                raise each
            yield each


END = InvalidResponse("http://h", "nonsense")


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
    api: Any = FakeApi([])
    assert list(JournalStream(api).wait(0)) == []


def test_connection_error_is_shown_until_the_connection_is_back() -> None:
    assert connection_error([StreamUnavailable("down"), Heartbeat()], "") == "down"
    assert connection_error([StreamUnavailable("down"), StreamResumed()], "old") == ""
    assert connection_error([Heartbeat()], "old") == "old"
    with pytest.raises(InvalidResponse):
        connection_error([StreamFailed(END)], "")
