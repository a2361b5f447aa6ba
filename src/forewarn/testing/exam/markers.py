"""Marker files that a handler writes when it has prepared or recovered: watch them for changes."""

import threading
import time
from pathlib import Path

POLL_INTERVAL = 0.02


class Marker:
    """One file, looked at again and again. A change is that it appears, or is written to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state = _file_state(path)
        self._changes: list[float] = []

    @property
    def changes(self) -> tuple[float, ...]:
        """When it has changed, by the monotonic clock."""
        return tuple(self._changes)

    def poll(self) -> None:
        """See whether it has changed. The file itself knows better when that was."""
        state = _file_state(self.path)
        if state is not None and state != self._state:
            ago = max(0.0, time.time() - state[0] / 1e9)
            self._changes.append(time.monotonic() - ago)
        self._state = state


class MarkerWatcher:
    """Looks at markers until it is told to end."""

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
