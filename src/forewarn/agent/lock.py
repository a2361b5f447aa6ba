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
"""Errors that mean a wrong setting: the directory is unusable. Any other error may be a temporary disk problem."""


class StateDirectoryError(Exception):
    """The state directory cannot be used; the message says what to do."""


class StateDirectoryInUse(StateDirectoryError):
    """Another agent uses this state directory."""


def acquire_lock(directory: Path) -> FileLock:
    """Create and lock the directory. Raises StateDirectoryError, or OSError for disk errors such as no space."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return FileLock.acquire(directory / LOCK_FILE)
    except FileLocked as error:
        what = f"another agent uses {directory}; stop it, or configure another state directory"
        raise StateDirectoryInUse(what) from error
    except OSError as error:
        if error.errno not in CONFIGURATION_ERRNOS:
            raise
        what = f"state: cannot use {directory}: {error.strerror}; configure another state directory"
        raise StateDirectoryError(what) from error
