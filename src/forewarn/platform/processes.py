"""Child processes that outlive the service: each has its files, and a note (pid and start time) to find it again after
a restart.

Input and output are files, not pipes: a write to a pipe whose reader has exited would kill the program.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

log = logging.getLogger(__name__)

FIRST_POLL, LONGEST_POLL = 0.005, 0.25
"""How often, in seconds, a program is looked at. One from before a restart is no child of ours and sends no signal."""

TERMINATE_TIMEOUT = 10.0
"""How long, in seconds, a program that is told to end may take."""

MAX_OUTPUT, KEPT_OUTPUT = 1024 * 1024, 64 * 1024
"""From how many bytes on the beginning of a program's output is thrown away, and how many of the end are kept."""

RESTORED_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores them, and who is ignored stays so in a program that is started."""


class ProcessNote(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be known of a program to find it again. `start_ticks` tells it from a later one with the same pid."""

    pid: int
    start_ticks: str | None = msgspec.field(name="born")
    started_at: datetime = msgspec.field(name="since")
    attempt: int


class ProcessResult(NamedTuple):
    """How a program ended; the code of one from before a restart is not known."""

    code: int | None
    stdout: str
    stderr: str


class ProcessFiles:
    """The files of one program."""

    def __init__(self, directory: Path, name: str) -> None:
        self.stdin = directory / f"{name}.in"
        self.stdout = directory / f"{name}.out"
        self.stderr = directory / f"{name}.err"
        self.note = directory / f"{name}.note"

    def remove(self) -> None:
        """Take them away; one that stays does no harm to what is told of the program."""
        for path in (self.stdin, self.stdout, self.stderr, self.note):
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def write_note(self, note: ProcessNote) -> None:
        """Write the note; without one, which a full disk may be the cause of, the program runs all the same."""
        try:
            self.note.write_bytes(msgspec.json.encode(note))
        except OSError as error:
            log.warning("process %d will not be found again after a crash: %s", note.pid, error)

    def oversized_outputs(self) -> list[Path]:
        """Return the files that have grown too large."""
        return [path for path in (self.stdout, self.stderr) if _size(path) > MAX_OUTPUT]


class Process:
    """A program that was started, by this process or by one before it."""

    def __init__(self, note: ProcessNote, files: ProcessFiles) -> None:
        self.note = note
        self._files = files
        self._code: int | None = None

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        environ: Mapping[str, str],
        stdin: bytes,
        files: ProcessFiles,
        *,
        attempt: int,
        now: datetime,
    ) -> Self:
        """Start a program in a session of its own; OSError says why it cannot be."""
        files.remove()
        files.stdin.write_bytes(stdin)
        writing = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        pid = os.posix_spawn(
            argv[0],
            [_bytes(word) for word in argv],
            {_bytes(name): _bytes(value) for name, value in environ.items()},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, str(files.stdin), os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(files.stdout), writing, 0o600),
                (os.POSIX_SPAWN_OPEN, 2, str(files.stderr), writing, 0o600),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=RESTORED_SIGNALS,
        )
        note = ProcessNote(pid=pid, start_ticks=_start_ticks(pid), started_at=now, attempt=attempt)
        files.write_note(note)
        return cls(note, files)

    @classmethod
    def find(cls, files: ProcessFiles) -> Self | None:
        """Find a program by its note."""
        try:
            note = msgspec.json.decode(files.note.read_bytes(), type=ProcessNote)
        except (OSError, msgspec.MsgspecError):
            return None
        return cls(note, files)

    async def wait(self) -> ProcessResult:
        """Wait for the end. Whoever stops waiting leaves the program running."""
        pause = FIRST_POLL
        while not self.has_exited():
            for path in self._files.oversized_outputs():
                await asyncio.to_thread(_truncate_output, path)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_POLL)
        return ProcessResult(self._code, _read_text(self._files.stdout), _read_text(self._files.stderr))

    async def terminate(self) -> ProcessResult:
        """End the program and everything that it started in its session, and give it a moment for that."""
        self._signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(TERMINATE_TIMEOUT):
                await self.wait()
        self._signal(signal.SIGKILL)
        return await self.wait()

    def kill(self) -> None:
        """End the program at once, where nobody waits for what it would say."""
        if not self.has_exited():
            self._signal(signal.SIGKILL)

    def has_exited(self) -> bool:
        """Tell whether it has ended."""
        if self._code is not None or _start_ticks(self.note.pid) != self.note.start_ticks:
            return True
        try:
            pid, status = os.waitpid(self.note.pid, os.WNOHANG)
        except ChildProcessError:
            return not _is_alive(self.note.pid)
        if pid:
            self._code = os.waitstatus_to_exitcode(status)
        return bool(pid)

    def time_left(self, limit: timedelta, now: datetime) -> timedelta:
        """Return how much of its time limit is left."""
        return max(self.note.started_at + limit - now, timedelta(0))

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.note.pid, number)


def _bytes(text: str) -> bytes:
    """Write a text as UTF-8; what the system gave us and is none goes on as it came."""
    return text.encode(errors="surrogateescape")


def _start_ticks(pid: int) -> str | None:
    """Return when a process began, in the system's own count; None where it is gone or the system does not say."""
    fields = _stat(pid)
    return fields[19] if fields else None


def _is_alive(pid: int) -> bool:
    if fields := _stat(pid):
        return fields[0] != "Z"
    with suppress(OSError):
        os.kill(pid, 0)
        return True
    return False


def _stat(pid: int) -> list[str]:
    """Return what Linux says of a process after its name, which may itself have spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _truncate_output(path: Path) -> None:
    """Keep the end of what a program prints without end. The system may take its time to free the rest."""
    with suppress(OSError):
        end = _read_tail(path)
        os.truncate(path, 0)
        with path.open("ab") as again:
            again.write(end)


def _read_tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - KEPT_OUTPUT, 0))
        return file.read(KEPT_OUTPUT)


def _read_text(path: Path) -> str:
    try:
        return _read_tail(path).decode(errors="replace")
    except OSError:
        return ""
