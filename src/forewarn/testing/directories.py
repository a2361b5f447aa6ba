"""A directory for a while."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def own_directory() -> Iterator[Path]:
    """Give a directory that goes with the context, or else with the process.

    One that is forked off meanwhile takes nothing away when it ends, as it would with `tempfile.TemporaryDirectory`.
    """
    directory, owner = Path(tempfile.mkdtemp(prefix="forewarn-test-")), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)
    try:
        yield directory
    finally:
        atexit.unregister(remove)
        remove()
