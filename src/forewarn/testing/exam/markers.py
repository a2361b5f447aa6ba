"""Marker files that a handler writes when it has prepared or recovered: watch them for changes."""

import threading
import time
from pathlib import Path

POLL_INTERVAL = 0.02


class Marker:
    """One file that is polled. It counts as changed when it appears or is written to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state = _file_state(path)
        self._changes: list[float] = []

    @property
    def changes(self) -> tuple[float, ...]:
        """The times of its changes, by the monotonic clock."""
        return tuple(self._changes)

    def poll(self) -> None:
        """Check whether the file has changed. Its modification time is more exact than the time of this call."""
        state = _file_state(self.path)
        if state is not None and state != self._state:
            ago = max(0.0, time.time() - state[0] / 1e9)
            self._changes.append(time.monotonic() - ago)
        self._state = state


class MarkerWatcher:
    """Polls markers in a thread until the context ends."""

    def __init__(self, *markers: Marker | None) -> None:
        self._markers = [marker for marker in markers if marker is not None]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="forewarn-exam-markers", daemon=True)

    def __enter__(self) -> None:
        if self._markers:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._markers:
            self._thread.join()

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
