"""The state directory belongs to one agent at a time: two would undo each other's work."""

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


class StateInUse(Exception):
    """Another agent works with this state directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"another agent works with {directory}; stop it, or give this one a directory of its own")
        self.directory = directory


def own(directory: Path) -> int:
    """Own the directory for as long as the file that is returned is open; the system gives it back in any case.

    Raises StateInUse, or OSError if the directory is of no use.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _try_lock(fd)
    except OSError as error:
        os.close(fd)
        if error.errno in {errno.EACCES, errno.EAGAIN, errno.EDEADLK}:
            raise StateInUse(directory) from error
        raise
    return fd
