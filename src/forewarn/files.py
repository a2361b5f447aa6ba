"""Atomic, durable file writes, and lock files. Nothing else in the package renames, syncs or locks a file."""

import errno
import glob
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Self

from forewarn.core.base_error import BaseError

TEMPORARY_SUFFIX = ".new"
"""The suffix of temporary files. A process that is killed while it writes leaves one behind, which can be deleted."""

if sys.platform == "win32":
    import msvcrt

    _LOCK_OFFSET = 1 << 20  # other processes cannot read a locked byte, and they need to read the process id at 0

    def _try_lock(fd: int) -> None:
        os.lseek(fd, _LOCK_OFFSET, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

    def is_locked(_: int) -> bool:
        """Return True always: on Windows only taking the lock would tell."""
        return True
else:
    import fcntl

    def _try_lock(fd: int) -> None:
        # The lock belongs to the open file, not to the process, so it also excludes a second owner in this process.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def is_locked(fd: int) -> bool:
        """Return whether any process holds the lock of an open file."""
        # Readers take a shared lock, so that one reader does not take another reader for the holder.
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


class FileLocked(BaseError):
    """Another process has locked the file; `pid` is None if the holder did not write its process id."""

    template = "{path} is locked by another process"
    path: Path
    pid: int | None


class FileLock:
    """A locked file. The system releases the lock when the process ends, however it ends."""

    def __init__(self, fd: int, *, has_pid: bool) -> None:
        self._fd, self._has_pid = fd, has_pid

    @classmethod
    def acquire(cls, path: Path) -> Self:
        """Create the lock file if it is missing, lock it and write our process id; raise FileLocked or OSError."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(fd, path)
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)
            os.write(fd, f"{os.getpid()}\n".encode())
        except BaseException:
            os.close(fd)
            raise
        return cls(fd, has_pid=True)

    @classmethod
    def hold(cls, file: BinaryIO, path: Path) -> Self:
        """Lock an open file, and hold the lock after the file is closed; raise FileLocked, which names `path`."""
        fd = os.dup(file.fileno())
        try:
            if sys.platform != "win32":  # a locked file cannot be read there
                _lock(fd, path)
        except BaseException:
            os.close(fd)
            raise
        return cls(fd, has_pid=False)

    def release(self) -> None:
        """Release the lock. The file stays, because removing it would race with the next owner."""
        if self._has_pid:
            os.ftruncate(self._fd, 0)
        os.close(self._fd)


def _lock(fd: int, path: Path) -> None:
    try:
        _try_lock(fd)
    except OSError as error:
        if error.errno in {errno.EACCES, errno.EAGAIN, errno.EDEADLK}:
            raise FileLocked(path, _read_pid(path)) from error
        raise


def _read_pid(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None


@contextmanager
def replace_file(path: Path, *, is_private: bool = True) -> Iterator[BinaryIO]:
    """Yield a file to write to. It replaces `path` durably when the context ends without an error.

    A private file is readable only by its owner. Other files keep the mode of the file that they replace.
    """
    temporary = path.with_name(f"{path.name}.{os.urandom(8).hex()}{TEMPORARY_SUFFIX}")
    # Not tempfile: it imports archive modules, which an agent would keep in memory.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        if not is_private:
            temporary.chmod(_file_mode(path))
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_file(path: Path, content: bytes, *, is_private: bool = True) -> None:
    """Replace a file's content atomically: after a crash the file is either the old or the new one. Raises OSError."""
    with replace_file(path, is_private=is_private) as file:
        file.write(content)


def remove_file(path: Path) -> None:
    """Remove a file durably, if it exists. Raises OSError."""
    with suppress(FileNotFoundError):
        path.unlink()
        sync_directory(path.parent)


def remove_unfinished(path: Path) -> None:
    """Remove the temporary files that killed processes left. Only the one process that writes `path` may call this."""
    for left in path.parent.glob(f"{glob.escape(path.name)}.*{TEMPORARY_SUFFIX}"):
        left.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    if sys.platform == "win32":
        return  # directories cannot be opened on Windows, and NTFS journals names itself
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return  # writable but not readable, so it cannot be synced
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _file_mode(path: Path) -> int:
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
