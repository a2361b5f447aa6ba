"""Lock file of the state directory: only one agent at a time may use it."""

import errno
import logging
from pathlib import Path

from forewarn.agent.handlers.programs import DIRECTORY as HANDLERS
from forewarn.agent.status import JOURNAL, SOCKET
from forewarn.core.base_error import BaseError
from forewarn.files import FileLock, FileLocked, UnsafeDirectory, prepare_directory

LOCK_FILE = "agent.lock"
STATE_NAMES = (LOCK_FILE, SOCKET, JOURNAL, HANDLERS)
"""Everything in a state directory."""

log = logging.getLogger("forewarn.agent")

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


class StateDirectoryError(BaseError):
    """The state directory cannot be used; the message says what to do."""

    template = "{problem}"
    problem: str


class StateDirectoryInUse(StateDirectoryError):
    """Another agent uses this state directory."""


def acquire_lock(directory: Path) -> FileLock:
    """Create and lock the directory. Raises StateDirectoryError, or OSError for disk errors such as no space."""
    try:
        if warning := prepare_directory(directory, STATE_NAMES):
            log.warning("%s", warning)
        return FileLock.acquire(directory / LOCK_FILE)
    except UnsafeDirectory as error:
        raise StateDirectoryError(f"state: {error}") from error
    except FileLocked as error:
        what = f"another agent uses {directory}; stop it, or configure another state directory"
        raise StateDirectoryInUse(what) from error
    except OSError as error:
        if error.errno not in CONFIGURATION_ERRNOS:
            raise
        what = f"state: cannot use {directory}: {error.strerror}; configure another state directory"
        raise StateDirectoryError(what) from error
