"""Saved state of a handler: what ran before prepare, kept on disk, so that recover restores exactly that, even after a
reboot.
"""

import logging
from contextlib import suppress
from pathlib import Path

import msgspec

from forewarn.files import write_file

log = logging.getLogger("forewarn.agent")


class SavedState(msgspec.Struct, frozen=True, kw_only=True):
    """The things that were running, and are to run again."""

    running: tuple[str, ...]
    is_restored: bool = False


class SavedStateFile:
    """One note of one handler. A disk that takes no more is no reason to stop: it is said, and memory has to do."""

    def __init__(self, directory: Path, handler: str) -> None:
        self._path = directory / f"{handler}.json"
        self._cached: SavedState | None = None

    def begin(self) -> None:
        """Note that nothing has been touched yet: what fails before anything is found has nothing to restore."""
        before = self._load()
        if before is None or before.is_restored:
            self._save(SavedState(running=()))

    def save_running(self, running: tuple[str, ...]) -> tuple[str, ...]:
        """Note what runs before it is stopped; return all that is to run again, from an earlier try too."""
        before = self._load()
        if before is not None and not before.is_restored:
            running = tuple(dict.fromkeys((*before.running, *running)))
        self._save(SavedState(running=running))
        return running

    def to_restore(self, everything: tuple[str, ...]) -> tuple[str, ...]:
        """Return what is to run again; everything where nothing is known, rather than too little."""
        before = self._load()
        return everything if before is None else tuple(each for each in before.running if each in everything)

    def mark_restored(self) -> None:
        """Note that it runs again. What ran stays known: the same may be asked for once more."""
        before = self._load()
        if before is not None:
            self._save(msgspec.structs.replace(before, is_restored=True))

    def _load(self) -> SavedState | None:
        if self._cached is None:
            with suppress(OSError, msgspec.MsgspecError):
                self._cached = msgspec.json.decode(self._path.read_bytes(), type=SavedState)
        return self._cached

    def _save(self, state: SavedState) -> None:
        if state == self._cached:
            return
        self._cached = state
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(self._path, msgspec.json.encode(state))
        except OSError as error:
            log.warning("cannot note what ran in %s: %s", self._path, error.strerror)
