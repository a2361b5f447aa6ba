"""Atomic, durable file writes: write a temporary file, fsync, rename, fsync the directory."""

import os
import sys
from contextlib import suppress
from pathlib import Path

TEMPORARY_SUFFIX = ".new"
"""How a file is called that was not written to its end: a program that was killed leaves it, and nobody needs it."""


def write_atomically(path: Path, content: bytes) -> None:
    """Put a file in the place of the old one, if there is one; make its directory if there is none. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_suffix(TEMPORARY_SUFFIX)
    try:
        with new.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def remove(path: Path) -> None:
    """Remove a file, if it is there. Raises OSError."""
    with suppress(FileNotFoundError):
        path.unlink()
        _sync(path.parent)


def _sync(directory: Path) -> None:
    """Make the names in a directory durable."""
    if sys.platform == "win32":
        return  # directories cannot be opened there, and NTFS keeps names in its own journal
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
