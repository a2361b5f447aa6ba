"""Programs that outlive the service: each has its files, and a note (pid and start time) to find it after a restart."""

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

import msgspec

from forewarn.files import open_file, read_file, remove_unfinished, write_file
from forewarn.process import OutputFile, Process, ProcessNote, ProcessResult

log = logging.getLogger(__name__)

GRACE = timedelta(seconds=10)
"""Time between SIGTERM and SIGKILL: the program may have to leave a VM in a consistent state."""


class ProcessFiles:
    """The files of one program."""

    def __init__(self, directory: Path, name: str) -> None:
        self.stdin = directory / f"{name}.in"
        self.stdout = directory / f"{name}.out"
        self.stderr = directory / f"{name}.err"
        self.note = directory / f"{name}.note"

    def remove(self) -> None:
        """Remove them; a file that remains does no harm."""
        for path in (self.stdin, self.stdout, self.stderr, self.note):
            with suppress(OSError):
                path.unlink(missing_ok=True)
        with suppress(OSError):
            remove_unfinished(self.note)

    def open_outputs(self, stack: ExitStack) -> tuple[OutputFile, OutputFile]:
        """Open the files to which the program writes."""
        return stack.enter_context(OutputFile.at(self.stdout)), stack.enter_context(OutputFile.at(self.stderr))

    def write_note(self, note: ProcessNote) -> None:
        """Write the note. If that fails, for example on a full disk, the program runs without one."""
        try:
            write_file(self.note, msgspec.json.encode(note))
        except OSError as error:
            log.warning("cannot write %s; its process will not be found again after a crash: %s", self.note, error)


class BackgroundProcess:
    """A program that this service process or an earlier one started. Use it as a context manager."""

    def __init__(
        self, note: ProcessNote, process: Process | None, outputs: tuple[OutputFile, OutputFile], open_files: ExitStack
    ) -> None:
        """Create it from its parts; without a `process`, the program has ended."""
        self.note = note
        self._process = process
        self._outputs = outputs
        self._open_files = open_files

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
        """Start a program; raise OSError if it cannot be started."""
        files.remove()
        with os.fdopen(open_file(files.stdin, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as written:
            written.write(stdin)
        with ExitStack() as opened, os.fdopen(open_file(files.stdin, os.O_RDONLY), "rb") as input_file:
            outputs = files.open_outputs(opened)
            note = ProcessNote(pid=None, start_ticks=None, started_at=now, attempt=attempt)
            files.write_note(note)
            process = Process.start(argv, environ, input_file, *outputs)
            note = msgspec.structs.replace(note, pid=process.pid, start_ticks=process.start_ticks)
            files.write_note(note)
            return cls(note, process, outputs, opened.pop_all())

    @classmethod
    def find(cls, files: ProcessFiles) -> Self | None:
        """Find a program by its note."""
        try:
            note = msgspec.json.decode(read_file(files.note), type=ProcessNote)
            with ExitStack() as opened:
                outputs = files.open_outputs(opened)
                process = Process.find(note, (files.stdin, files.stdout, files.stderr), outputs)
                return cls(note, process, outputs, opened.pop_all())
        except (OSError, msgspec.MsgspecError):
            return None

    async def wait(self) -> ProcessResult:
        """Wait for the end. If the caller is cancelled, the program keeps running."""
        return self._result(None if self._process is None else await self._process.wait())

    async def terminate(self) -> ProcessResult:
        """End the program and its session."""
        return self._result(None if self._process is None else await self._process.terminate(GRACE))

    def time_left(self, limit: timedelta, now: datetime) -> timedelta:
        """Return the rest of its time limit."""
        return max(self.note.started_at + limit - now, timedelta(0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close this process's file descriptors; the program keeps its own."""
        self._open_files.close()

    def _result(self, code: int | None) -> ProcessResult:
        stdout, stderr = self._outputs
        return ProcessResult(code, stdout.text, stderr.text)
