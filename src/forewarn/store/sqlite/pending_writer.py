"""A writer on a disk that could not be written when the store was opened: full, or read-only.

Until the disk can be written, it refuses every save, and the store can only be read. It tries again before each save,
at most once a second.
"""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from forewarn.store.port import Retention, StoreError
from forewarn.store.sqlite.writer import Save, SaveResult, Writer

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class PendingWriter:
    """Has the methods of a writer; opens the real one as soon as that is possible."""

    def __init__(self, path: Path, error: StoreError, open_writer: Callable[[], Writer]) -> None:
        """`error` is the reason why the file could not be opened; `open_writer` tries that again."""
        self._path = path
        self._error = error
        self._tried_at = time.monotonic()
        self._writer: Writer | None = None
        self._open_writer = open_writer

    def commit(self, saves: Sequence[Save]) -> list[SaveResult]:
        """Write the saves, or refuse all of them."""
        try:
            return self._open().commit(saves)
        except StoreError as error:
            return [error] * len(saves)

    def settle(self) -> list[SaveResult]:
        """Find out what became of the saves whose outcome is unknown."""
        return [] if self._writer is None else self._writer.settle()

    def prune(self, retention: Retention, now: datetime) -> int:
        """Remove one batch of journal rows beyond the retention."""
        return self._open().prune(retention, now)

    def check(self, size: int = 0) -> None:
        """Make a test write."""
        self._open().check(size)

    def close(self) -> None:
        """Close the real writer, if there is one."""
        if self._writer is not None:
            self._writer.close()

    def _open(self) -> Writer:
        if self._writer is not None:
            return self._writer
        if time.monotonic() - self._tried_at < RETRY_SECONDS:
            raise self._error
        self._tried_at = time.monotonic()
        try:
            self._writer = self._open_writer()
        except StoreError as error:
            self._error = error
            raise
        log.warning("%s can be written again: changes are accepted", self._path)
        return self._writer
