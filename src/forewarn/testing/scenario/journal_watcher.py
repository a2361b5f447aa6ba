"""Watch the journal of a running service, so that callers wait for changes instead of polling."""

import threading
import time

from forewarn.api.client import ApiClient
from forewarn.api.errors import ApiError, ServiceUnreachable
from forewarn.core.base_error import BaseError

RECONNECT_DELAY = 1.0
"""How many seconds pass before a service that is gone is asked again."""


class Cancelled(BaseError):
    """The run of the scenario was cancelled."""

    template = "the scenario was cancelled"


class JournalWatcher:
    """Follows the journal in a thread of its own, from the first wait on."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._changed = threading.Event()
        self._closed = threading.Event()
        self._cancelled = False
        self._error: ApiError | None = None
        self._thread: threading.Thread | None = None

    def wait(self, seconds: float) -> bool:
        """Wait until the journal may have grown, but not longer than this; tell whether it may.

        It may also have grown before the first wait.
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

    def deadline(self, seconds: float) -> float:
        """Return the moment that is so many seconds of real time away, for `wait_until`."""
        return time.monotonic() + seconds

    def wait_until(self, deadline: float) -> bool:
        """Wait like `wait`, but not beyond a moment; False as soon as it is over."""
        left = deadline - time.monotonic()
        return left > 0 and self.wait(left)

    def check(self) -> None:
        """Raise Cancelled if somebody has had enough."""
        if self._cancelled:
            raise Cancelled

    def cancel(self) -> None:
        """Let every wait end, now and later, with Cancelled."""
        self._cancelled = True
        self._changed.set()

    def close(self) -> None:
        """Follow no longer; the thread ends with the next sign from the service."""
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
