"""Data directory of the SQLite store: a lock file, so that one process owns it at a time, and errors of the system."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forewarn.files import FileLock, FileLocked
from forewarn.store.port import StoreError, StoreFailed, StoreFull, StoreInUse

LOCK_FILE = "forewarn.lock"


def lock_directory(directory: Path) -> FileLock:
    """Lock the directory until the lock is released; raise StoreInUse if another process owns it."""
    try:
        return FileLock.acquire(directory / LOCK_FILE, may_be_read_only=True)
    except FileLocked as error:
        raise StoreInUse(directory, error.pid) from error


@contextmanager
def wrap_os_errors(path: Path) -> Iterator[None]:
    """Convert errors of the operating system to store errors."""
    try:
        yield
    except OSError as error:
        raise to_store_error(error, path) from error


def to_store_error(error: OSError, path: Path) -> StoreError:
    """Return the store error for an error of the operating system."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StoreFull(path)
    return StoreFailed(path, error.strerror or str(error))
