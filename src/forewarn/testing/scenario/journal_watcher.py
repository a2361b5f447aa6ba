"""Watch the journal of a running service, so that callers wait for changes instead of polling."""

import threading

from forewarn.api.client import ApiClient
from forewarn.api.errors import ApiError
from forewarn.api.journal_follower import StreamUnavailable, follow_journal
from forewarn.core.base_error import BaseError


class Cancelled(BaseError):
    """The run of the scenario was cancelled."""

    template = "the scenario was cancelled"


class JournalWatcher:
    """Follows the journal in a background thread, which starts with the first wait."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._changed = threading.Event()
        self._closed = threading.Event()
        self._cancelled = False
        self._error: ApiError | None = None
        self._thread: threading.Thread | None = None

    def wait(self, seconds: float) -> bool:
        """Wait for new journal entries, at most this long; return whether there may be some.

        The first wait may also return because of older entries.
        """
        self.check()
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="forewarn-journal-watcher", daemon=True)
            self._thread.start()
        has_changed = self._changed.wait(seconds)
        self._changed.clear()
        self.check()
        if self._error is not None:
            raise self._error
        return has_changed

    def check(self) -> None:
        """Raise Cancelled if the scenario was cancelled."""
        if self._cancelled:
            raise Cancelled

    def cancel(self) -> None:
        """Make every current and later wait raise Cancelled."""
        self._cancelled = True
        self._changed.set()

    def close(self) -> None:
        """Stop following; the thread ends at the next message of the service."""
        self._closed.set()

    def _follow(self) -> None:
        try:
            for item in follow_journal(self._api, is_known=True, closed=self._closed):
                if self._closed.is_set():
                    return
                if not isinstance(item, StreamUnavailable):
                    self._changed.set()
        except ApiError as error:
            self._error = error
            self._changed.set()
