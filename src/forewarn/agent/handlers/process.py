"""Process runner: runs a program in its own session with an output limit, and terminates it with all its children."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

FIRST_POLL, LONGEST_POLL = 0.005, 0.1
"""How often, in seconds, a program is looked at."""

GRACE = 2.0
"""How long, in seconds, a program that is told to end may take. The event does not wait."""

LARGEST_OUTPUT, KEPT_OUTPUT = 1024 * 1024, 64 * 1024
"""From how many bytes on the beginning of a program's output is thrown away, and how many of the end are kept."""


class ProcessResult(NamedTuple):
    """How a program ended, and the end of what it printed, results and complaints together."""

    code: int
    output: str

    @property
    def summary(self) -> str:
        """How it ended, in words, with the last line that it printed."""
        how = f"was ended by {_signal_name(-self.code)}" if self.code < 0 else f"ended with {self.code}"
        lines = self.output.strip().splitlines()
        return f"{how}: {_printable(lines[-1])}" if lines else how


async def run_process(argv: Sequence[str], environ: Mapping[str, str], stdin_data: bytes = b"") -> ProcessResult:
    """Run a program to its end. OSError says why it cannot be started; whoever stops waiting ends it.

    Its input and output are no pipes: one that leaves a child behind does not keep us waiting for that child, and what
    the child prints later does not end it, nor is it kept.
    """
    with _unnamed_file() as stdin, _unnamed_file() as output:
        stdin.write(stdin_data)
        stdin.flush()
        stdin.seek(0)
        program = _start(argv, environ, stdin, output)
        try:
            await _wait_for_exit(program, lambda: _truncate(output))
        except BaseException:
            await asyncio.shield(_terminate(program))
            raise
        return ProcessResult(program.returncode or 0, _read_tail(output).decode(errors="replace"))


def check_program(path: str | Path) -> str | None:
    """Return why a program could not be started; None if it could."""
    try:
        is_file = Path(path).is_file()
    except OSError as error:
        return f"{path}: {error.strerror}"
    if not is_file:
        return f"there is no program {path}"
    return None if os.access(path, os.X_OK) else f"{path} may not be run: chmod +x {path}"


def _start(
    argv: Sequence[str], environ: Mapping[str, str], stdin: IO[bytes], output: IO[bytes]
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603  # it is the user's own program, and no shell
        argv, stdin=stdin, stdout=output, stderr=output, env=environ, start_new_session=True
    )


async def _wait_for_exit(program: "subprocess.Popen[bytes]", is_flooding: Callable[[], bool] = lambda: False) -> None:
    pause = FIRST_POLL
    while program.poll() is None:
        await asyncio.sleep(pause)
        # What is printed between two looks is in memory: gigabytes in a second.
        pause = FIRST_POLL if is_flooding() else min(2 * pause, LONGEST_POLL)


async def _terminate(program: "subprocess.Popen[bytes]") -> None:
    """End a program and everything in its session, and give it a moment for that."""
    _signal(program, signal.SIGTERM)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await _wait_for_exit(program)
    finally:
        if sys.platform != "win32":
            _signal(program, signal.SIGKILL)
        program.kill()
    # One that hangs in the kernel, as when a file server is away, does not end even then; nothing else waits for it.
    await _wait_for_exit(program)


def _signal(program: "subprocess.Popen[bytes]", number: int) -> None:
    with suppress(OSError):
        if sys.platform == "win32":
            program.send_signal(number)
        else:
            os.killpg(program.pid, number)


@contextmanager
def _unnamed_file() -> Iterator[IO[bytes]]:
    """Make a file that needs no room on any disk, where the system has such; a full one is no reason to do nothing."""
    if sys.platform == "linux":
        import fcntl

        with os.fdopen(os.memfd_create("forewarn", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b") as file:
            # Scripts that write to /dev/stderr open it anew, each with a place of its own.
            fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
            try:
                yield file
            finally:
                # Whoever was left behind still has it, and nobody would ever empty it again.
                fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    else:
        with tempfile.TemporaryFile() as file:
            yield file


def _truncate(output: IO[bytes]) -> bool:
    """Keep the end of what a program prints without end; tell whether there was so much of it."""
    if os.fstat(output.fileno()).st_size <= LARGEST_OUTPUT:
        return False
    end = _read_tail(output)
    os.ftruncate(output.fileno(), 0)
    os.write(output.fileno(), end)
    return True


def _read_tail(output: IO[bytes]) -> bytes:
    """Read the end of a file without moving the place at which its writer goes on."""
    start = max(os.fstat(output.fileno()).st_size - KEPT_OUTPUT, 0)
    if sys.platform == "win32":
        output.seek(start)
        return output.read(KEPT_OUTPUT)
    return os.pread(output.fileno(), KEPT_OUTPUT, start)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _printable(line: str) -> str:
    return "".join(char if char.isprintable() else " " for char in line.strip()[:500])
