"""Watch the journal of a running service, so that callers wait for changes instead of polling."""

import threading

from forewarn.api.client import ApiClient
from forewarn.api.errors import ApiError, ServiceUnreachable
from forewarn.core.base_error import BaseError

RECONNECT_DELAY = 1.0
"""The seconds before the watcher reconnects to an unreachable service."""


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
        while not self._closed.is_set():
            try:
                for _ in self._api.watch():
                    if self._closed.is_set():
                        return
                    self._changed.set()
            except ServiceUnreachable:
                self._closed.wait(RECONNECT_DELAY)
            except ApiError as error:
                self._error = error
                self._changed.set()
                return
