"""Files that commands write: replaced completely or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from forewarn.cli.errors import CliError, ExitCode
from forewarn.files import replace_file


@contextmanager
def atomic_write(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """Provide a file to write to; it replaces the old file when the context ends without an error."""
    try:
        with replace_file(path, is_private=private) as file:
            yield file
    except OSError as error:
        raise CliError(ExitCode.FAILED, f"cannot write {path}: {error.strerror or error}") from error
