"""Atomic file write: the file is replaced completely or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from forewarn.cli.errors import CliError, ExitCode


@contextmanager
def atomic_write(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """Give a file to write to; when the context ends well, it takes the place of what was there."""
    temporary: Path | None = None
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if not private:
            temporary.chmod(_file_mode(path))
        temporary.replace(path)
        temporary = None
    except OSError as error:
        raise CliError(ExitCode.FAILED, f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _file_mode(path: Path) -> int:
    """Return the mode of the file that is replaced, else the one that the user's new files have."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
