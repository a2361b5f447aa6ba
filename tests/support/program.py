"""The `forewarn` program in child processes, each with its own home directory, and `forewarn up` as a process."""

import json
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PROGRAM = Path(sys.executable).parent / "forewarn"
GUARD = 120.0
"""Timeout of a program, in seconds."""

LOOPBACK = "127.{}.{}.{}".format(*str(100 + os.getpid() % 900))
"""A loopback address for this test process only, so that no other process takes the ports of the VMs while a service is
down. It is as long as 127.0.0.1, for output in columns."""

FREE_PORTS = ("--listen", f"{LOOPBACK}:0", "--operator", "127.0.0.1:0")


class Machine:
    """A user's machine: a home directory, an environment without settings, and the program."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.runtime = home / "run"
        self.runtime.mkdir(mode=0o700)
        self.environment = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "XDG_RUNTIME_DIR": str(self.runtime),
            "LANG": "C.UTF-8",
        }

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [PROGRAM, *arguments],
            cwd=self.home,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=GUARD,
            check=False,
        )

    def run_on_terminal(self, *arguments: str, columns: int) -> list[str]:
        """Run a command that must succeed on a terminal of this width; return the visible lines."""
        main, other = pty.openpty()
        termios.tcsetwinsize(other, (24, columns))
        process = subprocess.Popen(
            [PROGRAM, *arguments], cwd=self.home, env=self.environment, stdin=other, stdout=other, stderr=other
        )
        os.close(other)
        seen = b""
        # Reading from a terminal fails after its last program has exited.
        with os.fdopen(main, "rb", buffering=0) as terminal, suppress(OSError):
            while said := terminal.read(65_536):
                seen += said
        assert process.wait(GUARD) == 0, seen
        return seen.decode().splitlines()

    def run_json(self, *arguments: str, **environment: str) -> Any:
        """Run a command that must succeed, and return its parsed JSON output."""
        ended = self.run(*arguments, "-o", "json", **environment)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    def start(self, *arguments: str, **environment: str) -> "UpProcess":
        """Start `forewarn up`."""
        return UpProcess(
            subprocess.Popen(
                [PROGRAM, "up", *arguments],
                cwd=self.home,
                env=self.environment | environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    @contextmanager
    def up(self, *arguments: str, **environment: str) -> Iterator["UpProcess"]:
        """Run `forewarn up` on free ports while the context is open; it must exit cleanly."""
        service = self.start("-o", "json", *FREE_PORTS, *arguments, **environment)
        try:
            service.wait_until_ready()
            yield service
        except BaseException:
            service.process.kill()
            service.stop()
            raise
        if service.process.poll() is None:
            assert service.stop(signal.SIGINT) == 0, service.stderr


class UpProcess:
    """A started service."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.ready: dict[str, Any] = {}
        self.stderr = ""

    def wait_until_ready(self) -> None:
        """Wait for the line that it prints when ready; fail if it exits before."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.stop()
            raise AssertionError(f"it did not start: {self.stderr}")
        self.ready = json.loads(line)

    @property
    def guest_urls(self) -> dict[str, str]:
        """The URLs of the VMs, by scope/name."""
        urls: dict[str, str] = self.ready["guest_urls"]
        return urls

    def stop(self, number: int | None = None) -> int:
        """Send a signal, wait until it exits, and return the exit status."""
        if number is not None:
            self.process.send_signal(number)
        _, self.stderr = self.process.communicate(timeout=GUARD)
        return self.process.returncode
