"""Saved state of a handler: what ran before prepare, kept on disk, so that recover restores exactly that, even after a
reboot.
"""

import logging
from contextlib import suppress
from pathlib import Path

import msgspec

from forewarn.files import read_file, write_file

log = logging.getLogger("forewarn.agent")


class SavedState(msgspec.Struct, frozen=True, kw_only=True):
    """What was running before prepare, and must run again after recover."""

    running: tuple[str, ...]
    is_restored: bool = False


class SavedStateFile:
    """The saved state of one handler. If the disk fails, it logs a warning and keeps the state in memory."""

    def __init__(self, directory: Path, handler: str) -> None:
        self._path = directory / f"{handler}.json"
        self._cached: SavedState | None = None

    def begin(self) -> None:
        """Save that nothing was stopped yet: a prepare that fails early leaves nothing to restore."""
        before = self._load()
        if before is None or before.is_restored:
            self._save(SavedState(running=()))

    def save_running(self, running: tuple[str, ...]) -> tuple[str, ...]:
        """Save what runs before it is stopped; return all that must run again, including that of earlier attempts."""
        before = self._load()
        if before is not None and not before.is_restored:
            running = tuple(dict.fromkeys((*before.running, *running)))
        self._save(SavedState(running=running))
        return running

    def to_restore(self, everything: tuple[str, ...]) -> tuple[str, ...]:
        """Return what must run again; `everything` if no state was saved, because too much is safer than too little."""
        before = self._load()
        return everything if before is None else tuple(each for each in before.running if each in everything)

    def mark_restored(self) -> None:
        """Save that everything runs again. The list is kept, because a recover call can be repeated."""
        before = self._load()
        if before is not None:
            self._save(msgspec.structs.replace(before, is_restored=True))

    def _load(self) -> SavedState | None:
        if self._cached is None:
            with suppress(OSError, msgspec.MsgspecError):
                self._cached = msgspec.json.decode(read_file(self._path), type=SavedState)
        return self._cached

    def _save(self, state: SavedState) -> None:
        if state == self._cached:
            return
        self._cached = state
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(self._path, msgspec.json.encode(state))
        except OSError as error:
            log.warning("cannot save handler state to %s: %s; keeping it in memory", self._path, error.strerror)
