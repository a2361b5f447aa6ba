"""Data directory of the SQLite store: permissions, and a lock file so that one process owns it at a time."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from forewarn.store.port import StoreError, StoreFailed, StoreFull, StoreInUse

LOCK_FILE = "forewarn.lock"

if sys.platform == "win32":
    import msvcrt

    _LOCK_OFFSET = 1 << 20  # a locked byte cannot be read by others there, and the process id has to be

    def _try_lock(fd: int) -> None:
        os.lseek(fd, _LOCK_OFFSET, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(fd: int) -> None:
        # Bound to the open file, not to the process: it also keeps a second store of the same process out.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


class DirectoryLock:
    """Ownership of a data directory. The system takes it back when the process ends, however it ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def acquire(cls, directory: Path) -> "DirectoryLock":
        """Own the directory from now on, or raise StoreInUse."""
        path = directory / LOCK_FILE
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _try_lock(fd)
            _write_pid(fd)
        except BaseException as error:
            os.close(fd)
            if isinstance(error, OSError) and error.errno in {errno.EACCES, errno.EAGAIN, errno.EDEADLK}:
                raise StoreInUse(directory, _read_pid(path)) from error
            raise
        return cls(fd)

    def release(self) -> None:
        """Give the directory back. The lock file stays: to remove it would race with the next owner."""
        os.ftruncate(self._fd, 0)
        os.close(self._fd)


def prepare_directory(directory: Path) -> None:
    """Make the directory, or close an empty one to others. One that is in use keeps the mode its owner gave it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(directory.iterdir()):
        return
    with suppress(PermissionError):  # a mounted volume may belong to someone else: what is made in it is still ours
        directory.chmod(0o700)
    with suppress(PermissionError):  # a parent that may not be read is not ours to make durable
        sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    if sys.platform == "win32":
        return  # directories cannot be opened there, and NTFS keeps names in its own journal
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def wrap_os_errors(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into facts of the store."""
    try:
        yield
    except OSError as error:
        raise to_store_error(error, path) from error


def to_store_error(error: OSError, path: Path) -> StoreError:
    """Say what an error of the operating system means for the store."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StoreFull(path)
    return StoreFailed(path, error.strerror or str(error))


def _write_pid(fd: int) -> None:
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, f"{os.getpid()}\n".encode())


def _read_pid(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None
