"""Child processes of tests, free ports, and polling with a timeout."""

import itertools
import os
import random
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

GUARD = 120.0
"""Timeout of anything, in seconds."""

FIXED_PORTS = range(20_000, 32_768)
"""Linux gives ports from 32768 on to those who do not ask for a certain one."""

_reservations: list[socket.socket] = []


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Poll until the condition holds. The timeout is long because a busy machine is slow."""
    give_up_at = time.monotonic() + GUARD
    while not is_so():
        assert time.monotonic() < give_up_at, f"timeout: waited for {what}"
        time.sleep(0.02)


def free_ports(number: int) -> list[int]:
    """Return distinct free ports, which no other test gets as long as this process runs.

    They are below the ports that the operating system gives to listeners on port 0 and to outgoing connections: such a
    port may be taken by somebody else before its server starts, or while a killed server is away.
    """
    found = (port for port in random.sample(FIXED_PORTS, len(FIXED_PORTS)) if _reserve(port))
    return list(itertools.islice(found, number))


def _reserve(port: int) -> bool:
    """Reserve a port by binding a name that the operating system frees at the end of this process."""
    reservation = socket.socket(socket.AF_UNIX)
    try:
        reservation.bind(f"\0forewarn-test-port-{port}")
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        reservation.close()
        return False
    _reservations.append(reservation)
    return True


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
