"""News for live views: lines of the journal as they are written, and what happens to the connection."""

import threading
from collections.abc import Iterable, Iterator
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeAlias

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import ApiError, CannotReach, Refusal

TICK = 1.0
"""A countdown is shown anew every second."""

PAUSE = 1.0
"""How many seconds pass before a lost service is asked again."""

TROUBLE = "The service cannot be reached; trying again. "
BACK = "The service is back."

FORGOTTEN = frozenset({"pruned", "unknown-position"})
"""What a service says that no longer has the lines after ours, or never had: then those from now on must do."""


class Quiet(NamedTuple):
    """The service is there, and has nothing new."""


class Lost(NamedTuple):
    """The service cannot be reached for now."""

    why: str


class Back(NamedTuple):
    """The service can be reached again."""


class Failure(NamedTuple):
    """The service does not let us watch."""

    error: ApiError


class Pressed(NamedTuple):
    """Somebody pressed a key."""

    key: str


News: TypeAlias = v1.JournalEntry | Quiet | Lost | Back | Failure | Pressed


class Feed:
    """Reads the journal in a thread of its own. After a lost connection it goes on where it was, and says so."""

    def __init__(self, api: ApiClient, *, after: int | None = None, campaign: str | None = None) -> None:
        self._api = api
        self._campaign = campaign
        self._position = after
        self._inbox: SimpleQueue[News] = SimpleQueue()
        self._first: News | None = None

    def open(self) -> None:
        """Begin; what happens after this has returned is not missed."""
        threading.Thread(target=self._read, daemon=True).start()
        self._first = self._inbox.get()
        if isinstance(self._first, Failure):
            raise self._first.error

    def put(self, news: News) -> None:
        """Add news from elsewhere."""
        self._inbox.put(news)

    def wait(self, seconds: float) -> Iterator[News]:
        """Give all news that are there; if there are none, wait for some, but not longer than this."""
        try:
            first, self._first = self._first, None
            yield self._inbox.get(timeout=seconds) if first is None else first
            while True:
                yield self._inbox.get_nowait()
        except Empty:
            return

    def _read(self) -> None:
        is_open = is_lost = False
        while True:
            try:
                for entry in self._api.watch(after=self._position, campaign=self._campaign):
                    if is_lost:
                        self._inbox.put(Back())
                    is_open, is_lost = True, False
                    self._take(entry)
            except ApiError as error:
                if not is_open or not _passes(error):
                    self._inbox.put(Failure(error))
                    return
                if not is_lost:
                    self._inbox.put(Lost(str(error)))
                is_lost = True
                if isinstance(error, Refusal) and error.code in FORGOTTEN:
                    self._position = None
            threading.Event().wait(PAUSE)

    def _take(self, entry: v1.JournalEntry | None) -> None:
        if entry is not None:
            self._position = entry.position
        self._inbox.put(entry or Quiet())


def _passes(error: ApiError) -> bool:
    """Tell whether it may be better in a moment: the service is being restarted, or has too much to do."""
    return isinstance(error, CannotReach) or (
        isinstance(error, Refusal) and (error.status >= 500 or error.code in FORGOTTEN)
    )


def trouble_after(news: Iterable[News], before: str) -> str:
    """Return why the service cannot be reached, or nothing if it can; raise why it lets nobody watch."""
    for each in news:
        match each:
            case Failure(error):
                raise error
            case Lost(why):
                before = why
            case Back():
                before = ""
            case _:
                pass
    return before
