"""Child processes of tests, free ports, and polling with a timeout."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

GUARD = 120.0
"""Timeout of anything, in seconds."""


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Poll until the condition holds. The timeout is long because a busy machine is slow."""
    give_up_at = time.monotonic() + GUARD
    while not is_so():
        assert time.monotonic() < give_up_at, f"timeout: waited for {what}"
        time.sleep(0.02)


def free_ports(number: int) -> list[int]:
    """Return distinct free ports."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    try:
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


class Program:
    """A program that can be restarted after it has ended. All its output goes to one file."""

    def __init__(self, command: Sequence[str], log: Path, environ: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._environ = {**os.environ, **(environ or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self.log = log

    def start(self) -> None:
        """Start it; it must not be running."""
        assert not self.is_running, f"{self._command} runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def is_running(self) -> bool:
        """Whether it is running."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(GUARD)

    def output(self) -> str:
        """Return the output of all its runs."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""
