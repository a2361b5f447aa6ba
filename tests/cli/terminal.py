"""A pseudo-terminal with a program on it: read the screen, type keys, get the exit status."""

import os
import pty
import subprocess
import sys
import termios
from types import TracebackType
from typing import Self

from tests.support.program import GUARD, PROGRAM, Machine

TAKE_TERMINAL = "import os, sys; os.open(os.ttyname(0), os.O_RDWR); os.execv(sys.argv[1], sys.argv[1:])"
"""The first terminal that a session leader opens becomes its controlling terminal, so that Ctrl-C sends a signal."""


class Terminal:
    """A program with a controlling terminal, so that it receives keys and Ctrl-C."""

    def __init__(self, machine: Machine, *arguments: str, columns: int = 100, lines: int = 24) -> None:
        self.seen = ""
        self._main, other = pty.openpty()
        termios.tcsetwinsize(other, (lines, columns))
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKE_TERMINAL, PROGRAM, *arguments],
            cwd=machine.home,
            env=machine.environment | {"TERM": "xterm"},
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(GUARD)
        os.close(self._main)

    def wait_for(self, text: str) -> None:
        """Read until this text appears, within the time limit of the test."""
        while text not in self.seen:
            assert self._read(), f"{text!r} was not seen in {self.seen!r}"

    def forget(self) -> None:
        """Forget the output so far."""
        self.seen = ""

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._main, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Resize the window."""
        termios.tcsetwinsize(self._main, (lines, columns))

    def end(self) -> int:
        """Read until the end, and return the exit status."""
        while self._read():
            pass
        return self.process.wait(GUARD)

    def _read(self) -> bool:
        try:
            said = os.read(self._main, 65_536)
        except OSError:
            # Reading from a terminal fails when its last program has exited.
            return False
        self.seen += said.decode(errors="replace")
        return bool(said)
