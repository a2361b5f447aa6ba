"""A command in a separate process that writes lines as things happen."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from tests.support.program import GUARD, PROGRAM, Machine


class Lines:
    """A command that writes lines as things happen."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    @property
    def stdout(self) -> IO[str]:
        """The lines that it writes."""
        assert self.process.stdout is not None
        return self.process.stdout

    def ended(self) -> tuple[int, str, str]:
        """Wait for its end; return the exit status and the remaining output."""
        stdout, stderr = self.process.communicate(timeout=GUARD)
        return self.process.returncode, stdout, stderr


@contextmanager
def lines(machine: Machine, *arguments: str) -> Iterator[Lines]:
    """Run a command for a while."""
    process = subprocess.Popen(
        [PROGRAM, *arguments],
        cwd=machine.home,
        env=machine.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        yield Lines(process)
        process.kill()
