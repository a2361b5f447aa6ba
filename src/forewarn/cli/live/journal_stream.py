"""Streams for live views: entries or changes and the connection state, read in a thread, with reconnect."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from queue import Empty, SimpleQueue
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import ApiError
from forewarn.api.journal_follower import Heartbeat, StreamResumed, StreamUnavailable, follow_journal
from forewarn.client import ClientError

N = TypeVar("N")
"""What is followed."""


class StreamFailed(NamedTuple):
    """The source refuses to be followed."""

    error: ApiError | ClientError


class KeyInput(NamedTuple):
    """The user pressed a key."""

    key: str


SIGNALS = (Heartbeat, StreamUnavailable, StreamResumed, StreamFailed, KeyInput)
"""Every other item of a stream is news: an entry of the journal, or a change of a VM's events."""

StreamItem: TypeAlias = N | Heartbeat | StreamUnavailable | StreamResumed | StreamFailed | KeyInput


class LiveStream(ABC, Generic[N]):
    """Items that a thread reads, in a queue."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[StreamItem[N]] = SimpleQueue()
        self._first: StreamItem[N] | None = None

    def open(self) -> None:
        """Start the thread and wait for its first item. What happens after this has returned is not missed."""
        threading.Thread(target=self._read, daemon=True).start()
        self._first = self._queue.get()
        if isinstance(self._first, StreamFailed):
            raise self._first.error

    def put(self, item: StreamItem[N]) -> None:
        """Add an item."""
        self._queue.put(item)

    def wait(self, seconds: float) -> Iterator[StreamItem[N]]:
        """Yield all items in the queue; if it is empty, wait for one, at most this long."""
        try:
            first, self._first = self._first, None
            yield self._queue.get(timeout=seconds) if first is None else first
            while True:
                yield self._queue.get_nowait()
        except Empty:
            return

    @abstractmethod
    def _read(self) -> None:
        """Put items, the first one as soon as the source has answered; runs in the thread."""


class JournalStream(LiveStream[v1.JournalEntry]):
    """Reads the journal. After a lost connection it resumes where it was."""

    def __init__(self, api: ApiClient, *, after: int | None = None, campaign: str | None = None) -> None:
        super().__init__()
        self._api = api
        self._campaign = campaign
        self._after = after

    def _read(self) -> None:
        try:
            for item in follow_journal(self._api, after=self._after, campaign=self._campaign):
                self.put(item)
        except ApiError as error:
            self.put(StreamFailed(error))


def connection_error(items: Iterable[StreamItem[N]], error_text: str) -> str:
    """Return why the service cannot be reached, or "" if it can; raise the error if it refuses the stream."""
    for each in items:
        match each:
            case StreamFailed(error):
                raise error
            case StreamUnavailable(why):
                error_text = why
            case StreamResumed():
                error_text = ""
            case _:
                pass
    return error_text
