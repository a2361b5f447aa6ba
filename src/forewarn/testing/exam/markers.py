"""Files that the user's handler writes when it has prepared, or recovered: when they changed."""

import threading
import time
from pathlib import Path

LOOK_EVERY = 0.02


class Marker:
    """One file, looked at again and again. A change is that it appears, or is written to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state = _state(path)
        self._changes: list[float] = []

    @property
    def changes(self) -> tuple[float, ...]:
        """When it has changed, by the monotonic clock."""
        return tuple(self._changes)

    def look(self) -> None:
        """See whether it has changed. The file itself knows better when that was."""
        state = _state(self.path)
        if state is not None and state != self._state:
            ago = max(0.0, time.time() - state[0] / 1e9)
            self._changes.append(time.monotonic() - ago)
        self._state = state


class Watching:
    """Looks at markers until it is told to end."""

    def __init__(self, *markers: Marker | None) -> None:
        self._markers = [marker for marker in markers if marker is not None]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="forewarn-exam-markers", daemon=True)

    def __enter__(self) -> None:
        if self._markers:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._markers:
            self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_EVERY):
            for marker in self._markers:
                marker.look()


def _state(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
