"""Marker files that a handler writes when it has prepared or recovered: watch them for changes."""

import threading
import time
from pathlib import Path
from typing import Self

from forewarn.guest.observer import Observed

POLL_INTERVAL = 0.02

CLOCK_READINGS = 5
"""How often both clocks are read: this process may lose its processor between the two."""


class Marker:
    """One file that is polled, by any thread. It counts as changed when it appears or is written to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._state = _file_state(path)
        self._changes: list[float] = []

    @property
    def changes(self) -> tuple[float, ...]:
        """The times of its changes until now, by the monotonic clock."""
        self.poll()
        return tuple(self._changes)

    def poll(self) -> None:
        """Check whether the file has changed. Its modification time is more exact than the time of this call."""
        with self._lock:
            state = _file_state(self.path)
            if state is not None and state != self._state:
                self._changes.append(_monotonic_time(state[0] / 1e9))
            self._state = state


class MarkerWatcher:
    """Polls markers in a thread until the context ends, and whenever the handler approves.

    Of several changes between two polls, only the last is seen. A handler that has prepared before it approves has
    changed its marker when the approval arrives, and cannot change it for another event before the response.
    """

    def __init__(self, *markers: Marker | None) -> None:
        self._markers = [marker for marker in markers if marker is not None]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="forewarn-exam-markers", daemon=True)

    def __enter__(self) -> Self:
        if self._markers:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._markers:
            self._thread.join()

    def observe(self, request: Observed) -> None:
        """Poll the markers if the request is an approval."""
        if request.approved:
            for marker in self._markers:
                marker.poll()

    def _watch(self) -> None:
        while not self._stopped.wait(POLL_INTERVAL):
            for marker in self._markers:
                marker.poll()


def _file_state(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _monotonic_time(wall: float) -> float:
    """Return a past time of day by the monotonic clock, from the closest readings of both clocks."""
    readings = ((time.monotonic(), time.time(), time.monotonic()) for _ in range(CLOCK_READINGS))
    now, wall_now, _ = min(readings, key=lambda reading: reading[2] - reading[0])
    return now - max(0.0, wall_now - wall)
