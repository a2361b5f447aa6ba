"""Child processes of a benchmark, and their memory and processor time."""

import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")

ROOT = Path(__file__).parents[1]
TICKS = os.sysconf("SC_CLK_TCK")
TIMEOUT = 60.0
"""Timeout in seconds of everything that is not measured."""


class ChildProcess:
    """A module of this package as a process: it reads its task from the first line, then exchanges lines of JSON."""

    def __init__(self, module: str, task: msgspec.Struct) -> None:
        self.began_at = time.monotonic()
        self._module = module
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self.pid = self._process.pid
        self.send(task)

    def send(self, what: msgspec.Struct) -> None:
        """Write a line to the program."""
        self._in.write(msgspec.json.encode(what) + b"\n")
        self._in.flush()

    def receive(self, answer: type[T]) -> T:
        """Read the program's next line."""
        line = self._out.readline()
        if not line:
            raise RuntimeError(f"{self._module} ended with status {self._process.wait()} before it had answered")
        return msgspec.json.decode(line, type=answer)

    def close(self) -> None:
        """Close the program's input."""
        self._in.close()

    def check_alive(self) -> None:
        """Raise if the program has ended."""
        if (status := self._process.poll()) is not None:
            raise RuntimeError(f"{self._module} has ended with status {status}")

    def end(self) -> None:
        """Close the program's input, which ends it, and wait; kill it if it does not end."""
        self._in.close()
        try:
            self._process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
        self._out.close()

    def kill(self) -> None:
        """Kill the program: its output is no longer needed."""
        self._process.kill()
        self._process.wait()


@contextmanager
def run_child(module: str, task: msgspec.Struct) -> Iterator[ChildProcess]:
    """Run a module of this package while the context is open."""
    child = ChildProcess(module, task)
    try:
        yield child
    except BaseException:
        child.kill()
        raise
    finally:
        child.end()


def read_task(task: type[T]) -> T:
    """Read the task of this program."""
    return msgspec.json.decode(sys.stdin.buffer.readline(), type=task)


def send_to_parent(what: msgspec.Struct) -> None:
    """Write a line to the parent process."""
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.buffer.flush()


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return read_resident(Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))


def read_resident(status: str) -> int:
    """Parse the resident size from /proc/PID/status."""
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise ValueError("no VmRSS in the process's status")
    return int(found[1]) * 1024


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    return read_cpu(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")) / TICKS


def read_cpu(stat: str) -> int:
    """Parse the user and system ticks from /proc/PID/stat; the program name may contain any characters."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def pin(pid: int, core: int) -> None:
    """Let all threads of a process run on one processor alone."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def raise_priority() -> None:
    """Raise the priority of this process, if the system allows it.

    Real guests are other machines. Their stand-ins here do little work, but must not wait for a processor that the
    operator's programs use: that would count as lateness of the service.
    """
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def allow_open_files(number: int) -> None:
    """Raise the limit of open files to this number, or to the hard limit without root."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, max(number, most)))
    except (ValueError, PermissionError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(condition: Callable[[], bool], what: str, *, every: float = 0.01) -> None:
    """Poll until the condition holds."""
    give_up_at = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"waited {TIMEOUT:.0f} s for {what}")
        time.sleep(every)
