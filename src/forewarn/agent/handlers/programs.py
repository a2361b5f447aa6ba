"""Programs of handlers: while one runs, a note on disk identifies it, so that the next agent finds a program that
outlived its agent.

Only Linux identifies a process by more than its pid. On other systems an earlier agent's program is not found.
"""

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

import msgspec

from forewarn.agent.handlers.base import HandlerContext
from forewarn.agent.phases import HandlerCall, Phase
from forewarn.clock import Clock, SystemClock
from forewarn.files import read_file, remove_unfinished, write_file
from forewarn.process import Process, ProcessNote, ProcessResult, boot_id, run_process

DIRECTORY = "handlers"
"""The directory of the handlers' files in the state directory: notes, and the state that handlers save."""

GRACE = timedelta(seconds=2)
"""Time between SIGTERM and SIGKILL, as for a call that is cancelled."""

SUFFIX = ".note"
LARGEST_NOTE = 64 * 1024

log = logging.getLogger("forewarn.agent")


class ProgramNote(msgspec.Struct, frozen=True, kw_only=True):
    """A program that a handler runs, and for what. `call` is None for a notification."""

    event: str
    handler: str
    phase: Phase
    call: HandlerCall | None
    program: str
    until: datetime
    """The end of its time limit."""
    process: ProcessNote

    def __str__(self) -> str:
        pid = "process unknown" if self.process.pid is None else f"process {self.process.pid}"
        what = f"notification of {self.phase.value}" if self.call is None else self.call.value
        return f"{what} of {self.handler} ({self.program}, {pid})"


class HandlerPrograms:
    """Runs the programs of one handler. If the disk fails, they run without a note."""

    def __init__(self, directory: Path, handler: str, clock: Clock | None = None) -> None:
        self._directory, self._handler = directory, handler
        self._clock = clock or SystemClock()

    async def run(
        self, argv: Sequence[str], environ: Mapping[str, str], context: HandlerContext | None, stdin: bytes = b""
    ) -> ProcessResult:
        """Run a program to its end, with stderr merged into stdout. If the caller is cancelled, the program is ended.

        Without a `context`, for a self-test, it has no note. Raises OSError if it cannot be started.
        """
        if context is None:
            return await run_process(argv, environ, stdin, merge=True)
        label, now = f"forewarn-{os.urandom(8).hex()}", self._clock.now()
        path = self._directory / f"{label}{SUFFIX}"
        process = ProcessNote(
            pid=None, start_ticks=None, started_at=now, attempt=context.attempt, boot=boot_id(), label=label
        )
        note = ProgramNote(
            event=context.event.id,
            handler=self._handler,
            phase=context.phase,
            call=context.call,
            program=argv[0],
            until=now + context.time_limit,
            process=process,
        )
        self._write(path, note)

        def add_pid(started: Process) -> None:
            known = msgspec.structs.replace(process, pid=started.pid, start_ticks=started.start_ticks)
            self._write(path, msgspec.structs.replace(note, process=known))

        try:
            return await run_process(argv, environ, stdin, merge=True, label=label, on_start=add_pid)
        finally:
            _remove(path)

    def _write(self, path: Path, note: ProgramNote) -> None:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(path, msgspec.json.encode(note))
        except OSError as error:
            what = "cannot write %s: %s; if this agent is killed, the next one will not find %s"
            log.warning(what, path, error.strerror, note)


class OrphanProgram:
    """A program that an earlier agent started and that is still running."""

    def __init__(self, note: ProgramNote, process: Process, path: Path) -> None:
        self.note = note
        self._process, self._path = process, path

    @classmethod
    def find(cls, path: Path) -> Self | None:
        """Find the program of a note; None if it has ended or the note is damaged."""
        if sys.platform != "linux":
            return None
        try:
            note = msgspec.json.decode(read_file(path, LARGEST_NOTE), type=ProgramNote)
        except (OSError, ValueError):
            return None
        process = Process.find(note.process)
        if process is None or process.has_exited():
            return None
        known = msgspec.structs.replace(note.process, pid=process.pid, start_ticks=process.start_ticks)
        return cls(msgspec.structs.replace(note, process=known), process, path)

    def has_exited(self) -> bool:
        """Return whether it has ended."""
        return self._process.has_exited()

    async def terminate(self) -> None:
        """End it with its session."""
        await self._process.terminate(GRACE)

    def remove_note(self) -> None:
        """Remove its note."""
        _remove(self._path)


def find_orphans(directory: Path) -> Iterator[OrphanProgram]:
    """Yield the programs of earlier agents that are still running. Changes nothing."""
    for path in _notes(directory):
        if (found := OrphanProgram.find(path)) is not None:
            yield found


def remove_stale_notes(directory: Path, running: Sequence[OrphanProgram]) -> None:
    """Remove the notes of programs that have ended. Only the one agent of the state directory may call this."""
    kept = {program.note.process.label for program in running}
    for path in _notes(directory):
        if path.name.removesuffix(SUFFIX) not in kept:
            _remove(path)


def _notes(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.suffix == SUFFIX)
    except OSError:
        return []


def _remove(path: Path) -> None:
    """Remove a note; one that remains does no harm."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
        remove_unfinished(path)
