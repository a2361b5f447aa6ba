"""Lock file of the state directory: only one agent at a time may use it."""

import errno
import os
import sys
from pathlib import Path

LOCK_FILE = "agent.lock"

if sys.platform == "win32":
    import msvcrt

    def _try_lock(fd: int) -> None:
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


CONFIGURATION_ERRNOS = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EEXIST,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
    }
)
"""What is wrong with the directory that was named; anything else is trouble of the disk, which may pass."""


class StateDirectoryError(Exception):
    """The state directory cannot be used; the message says what to do."""


class StateDirectoryInUse(StateDirectoryError):
    """Another agent works with this state directory."""


def acquire_lock(directory: Path) -> int:
    """Own the directory for as long as the file that is returned is open; the system gives it back in any case.

    Raises StateDirectoryError, or OSError if the disk has no place for a lock.
    """
    fd = _open_lock_file(directory)
    try:
        _try_lock(fd)
    except OSError as error:
        os.close(fd)
        if error.errno in {errno.EACCES, errno.EAGAIN, errno.EDEADLK}:
            what = f"another agent works with {directory}; stop it, or give this one a directory of its own"
            raise StateDirectoryInUse(what) from error
        raise
    return fd


def _open_lock_file(directory: Path) -> int:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        if error.errno not in CONFIGURATION_ERRNOS:
            raise
        raise StateDirectoryError(f"state: {directory} cannot be used: {error.strerror}; name another one") from error
