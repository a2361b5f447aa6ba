"""wrk, the load generator of the comparison with nginx: it runs with the same arguments against both."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.machine import find_program

SCRIPT = Path(__file__).with_name("wrk_summary.lua")


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """Error counts; `status` counts responses of 400 and above."""

    connect: int
    read: int
    write: int
    status: int
    timeout: int

    @property
    def total(self) -> int:
        """The number of errors."""
        return self.connect + self.read + self.write + self.status + self.timeout


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The exact counters of wrk."""

    requests: int
    bytes: int
    microseconds: int
    errors: Errors

    @property
    def per_second(self) -> float:
        """Responses per second."""
        return self.requests / self.microseconds * 1e6


def command(
    port: int,
    *,
    connections: int,
    seconds: int,
    target: str,
    is_closing: bool = False,
    host: str = "127.0.0.1",
    core: int | None = None,
) -> list[str]:
    """Return the command line without the path of wrk.

    With `is_closing`, every request opens a new connection. With `core`, wrk runs on that processor alone.
    """
    arguments = ["-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(SCRIPT), "-H", "Metadata: true"]
    if is_closing:
        arguments += ["-H", "Connection: close"]
    pinned = [] if core is None else ["taskset", "--cpu-list", str(core)]
    return [*pinned, "wrk", *arguments, f"http://{host}:{port}{target}"]


def run(typed: Sequence[str]) -> Summary:
    """Run wrk and return its summary."""
    program, *arguments = typed
    ended = subprocess.run([find_program(program), *arguments], capture_output=True, text=True, check=True)
    return read_summary(ended.stdout)


def read_summary(printed: str) -> Summary:
    """Parse the line that our script adds to wrk's output."""
    line = next((line for line in printed.splitlines() if line.startswith("{")), None)
    if line is None:
        raise ValueError(f"wrk has printed no summary: {printed}")
    return msgspec.convert(json.loads(line), Summary)


def check(summary: Summary, *, answer_bytes: int, connections: int) -> None:
    """Raise unless all responses were 200s of this size; the last one of each connection may be cut off."""
    if summary.errors.total:
        raise ValueError(f"not every request had a good answer: {summary.errors}")
    least, most = summary.requests * answer_bytes, (summary.requests + connections) * answer_bytes
    if not least <= summary.bytes <= most:
        raise ValueError(f"{summary.requests} answers of {answer_bytes} bytes cannot be {summary.bytes} bytes")
