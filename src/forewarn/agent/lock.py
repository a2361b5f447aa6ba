"""Lock file of the state directory: only one agent at a time may use it."""

import errno
from pathlib import Path

from forewarn.files import FileLock, FileLocked

LOCK_FILE = "agent.lock"

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


def acquire_lock(directory: Path) -> FileLock:
    """Own the directory until the lock is released. Raises StateDirectoryError, or OSError if the disk has no space."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return FileLock.acquire(directory / LOCK_FILE)
    except FileLocked as error:
        what = f"another agent works with {directory}; stop it, or give this one a directory of its own"
        raise StateDirectoryInUse(what) from error
    except OSError as error:
        if error.errno not in CONFIGURATION_ERRNOS:
            raise
        raise StateDirectoryError(f"state: {directory} cannot be used: {error.strerror}; name another one") from error
