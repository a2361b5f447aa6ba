"""Time from `forewarn up` on an empty data directory to the first response, and to ready."""

import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median

import msgspec

from bench.figures import rounded
from bench.guest_client import HOST, connect, send_request
from bench.process import TIMEOUT, cpu_seconds, wait_for
from bench.result import BenchmarkResult
from bench.workspace import Workspace

TARGET_SECONDS = 0.2
VMS = 15
"""Number of VMs in the demonstration fleet, each with a separate port."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Number of starts."""

    rounds: int = 7


FULL = Size()
QUICK = Size(rounds=2)


class Start(msgspec.Struct, frozen=True):
    """Times to the first response and to ready, and the processor time used."""

    answered: float
    ready: float
    processor: float


def measure(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Start it repeatedly, and poll the first VM's port until it responds."""
    starts: list[Start] = []
    for number in range(1, size.rounds + 1):
        starts.append(_start(workspace.empty_directory(), _free_ports()))
        workspace.log(f"    start {number} of {size.rounds}: {starts[-1].answered:.2f} s")
    answered = [start.answered for start in starts]
    ready = [start.ready for start in starts]
    return BenchmarkResult(
        what="`forewarn up` with the demonstration fleet until the first answer",
        measured=f"{median(answered):.2f} s (worst of {size.rounds}: {max(answered):.2f} s); "
        f"operators served after {median(ready):.2f} s",
        target=f"≤ {TARGET_SECONDS} s",
        met=max(answered) <= TARGET_SECONDS,
        figures={
            "seconds": rounded(answered, 3),
            "ready_seconds": rounded(ready, 3),
            "processor_seconds": rounded([start.processor for start in starts], 3),
        },
        note="from the start of the Python process, on an empty data directory, to the first VM's first 200; then the "
        "operator API is loaded, and the service says that it is ready",
    )


def _start(data: Path, port: int) -> Start:
    began_at = time.monotonic()
    with _up(data, port) as process:
        wait_for(lambda: _is_answered(process, port), "the first answer", every=0.002)
        answered = time.monotonic() - began_at
        assert process.stdout is not None
        process.stdout.readline()
        ready = time.monotonic() - began_at
        return Start(answered, ready, cpu_seconds(process.pid))


@contextmanager
def _up(data: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    options = ("--data", str(data), "--listen", f"{HOST}:{port}", "--operator", f"{HOST}:0", "--output", "json")
    process = subprocess.Popen(
        [sys.executable, "-m", "forewarn.cli", "up", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
        process.send_signal(signal.SIGINT)
        process.wait(TIMEOUT)
    finally:
        process.kill()
        process.communicate()


def _free_ports() -> int:
    """Return the first of VMS consecutive free ports."""
    for first in range(20_000 + secrets.randbelow(5_000), 30_000, VMS):
        with ExitStack() as probes, suppress(OSError):
            for port in range(first, first + VMS):
                probes.enter_context(socket.create_server((HOST, port)))
            return first
    raise RuntimeError(f"found no {VMS} consecutive free ports")


def _is_answered(process: subprocess.Popen[bytes], port: int) -> bool:
    if (status := process.poll()) is not None:
        raise RuntimeError(f"`forewarn up` has ended with status {status}")
    try:
        with connect(port, HOST) as connection:
            answer = send_request(connection)
    except ConnectionRefusedError:
        return False
    if answer.status != 200:
        raise ValueError(f"the first answer is {answer.status}: {answer.body!r}")
    return True
