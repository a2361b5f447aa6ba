"""Journal stream for live views: entries of the journal and connection state, read in a thread, with reconnect."""

import threading
from collections.abc import Iterable, Iterator
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeAlias

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import ApiError, RequestRefused, ServiceUnreachable

RECONNECT_DELAY = 1.0
"""How many seconds pass before a lost service is asked again."""

POSITION_LOST_CODES = frozenset({"journal-pruned", "position-not-found"})
"""What a service says that no longer has the lines after ours, or never had: then those from now on must do."""


class Heartbeat(NamedTuple):
    """The service is there, and has nothing new."""


class StreamUnavailable(NamedTuple):
    """The service cannot be reached for now."""

    reason: str


class StreamResumed(NamedTuple):
    """The service can be reached again."""


class StreamFailed(NamedTuple):
    """The service does not let us watch."""

    error: ApiError


class KeyInput(NamedTuple):
    """Somebody pressed a key."""

    key: str


StreamItem: TypeAlias = v1.JournalEntry | Heartbeat | StreamUnavailable | StreamResumed | StreamFailed | KeyInput


class JournalStream:
    """Reads the journal in a thread of its own. After a lost connection it goes on where it was, and says so."""

    def __init__(self, api: ApiClient, *, after: int | None = None, campaign: str | None = None) -> None:
        self._api = api
        self._campaign = campaign
        self._position = after
        self._queue: SimpleQueue[StreamItem] = SimpleQueue()
        self._first: StreamItem | None = None

    def open(self) -> None:
        """Begin; what happens after this has returned is not missed."""
        threading.Thread(target=self._read, daemon=True).start()
        self._first = self._queue.get()
        if isinstance(self._first, StreamFailed):
            raise self._first.error

    def put(self, item: StreamItem) -> None:
        """Add news from elsewhere."""
        self._queue.put(item)

    def wait(self, seconds: float) -> Iterator[StreamItem]:
        """Give all news that are there; if there are none, wait for some, but not longer than this."""
        try:
            first, self._first = self._first, None
            yield self._queue.get(timeout=seconds) if first is None else first
            while True:
                yield self._queue.get_nowait()
        except Empty:
            return

    def _read(self) -> None:
        is_open = is_lost = False
        while True:
            try:
                for entry in self._api.watch(after=self._position, campaign=self._campaign):
                    if is_lost:
                        self._queue.put(StreamResumed())
                    is_open, is_lost = True, False
                    self._put_entry(entry)
            except ApiError as error:
                if not is_open or not _is_transient(error):
                    self._queue.put(StreamFailed(error))
                    return
                if not is_lost:
                    self._queue.put(StreamUnavailable(str(error)))
                is_lost = True
                if isinstance(error, RequestRefused) and error.code in POSITION_LOST_CODES:
                    self._position = None
            threading.Event().wait(RECONNECT_DELAY)

    def _put_entry(self, entry: v1.JournalEntry | None) -> None:
        if entry is not None:
            self._position = entry.position
        self._queue.put(entry or Heartbeat())


def _is_transient(error: ApiError) -> bool:
    """Tell whether it may be better in a moment: the service is being restarted, or has too much to do."""
    return isinstance(error, ServiceUnreachable) or (
        isinstance(error, RequestRefused) and (error.status >= 500 or error.code in POSITION_LOST_CODES)
    )


def connection_error(items: Iterable[StreamItem], error_text: str) -> str:
    """Return why the service cannot be reached, or nothing if it can; raise the error if it refuses to be watched."""
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
