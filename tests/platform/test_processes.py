"""Programs that outlive the service: their notes, and how they are found again."""

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from forewarn.platform.processes import BackgroundProcess, ProcessFiles
from forewarn.process import ProcessNote

NOTE = ProcessNote(pid=1, start_ticks="2", started_at=datetime(2026, 3, 2, tzinfo=UTC), attempt=1)


def test_note_is_replaced_and_not_overwritten(tmp_path: Path) -> None:
    """A crash during the write leaves the old note intact, and so does a process that has it open."""
    files = ProcessFiles(tmp_path, "event.web-0")
    files.write_note(NOTE)
    old = tmp_path / "old"
    os.link(files.note, old)
    before = old.read_bytes()
    files.write_note(ProcessNote(pid=3, start_ticks="4", started_at=NOTE.started_at, attempt=2))
    assert old.read_bytes() == before
    assert files.note.read_bytes() != before


def test_half_written_note_is_removed_with_the_files(tmp_path: Path) -> None:
    files = ProcessFiles(tmp_path, "event.web-0")
    files.write_note(NOTE)
    (tmp_path / "event.web-0.note.0123456789abcdef.new").touch()
    (tmp_path / "event.web-1.note").touch()
    files.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["event.web-1.note"]


def start(files: ProcessFiles, script: str) -> BackgroundProcess:
    return BackgroundProcess.start(["sh", "-c", script], {}, b"", files, attempt=1, now=NOTE.started_at)


def forget_pid(files: ProcessFiles) -> None:
    """Bring the note back to what it was before the program started, as if the service had been killed then."""
    note = msgspec.json.decode(files.note.read_bytes(), type=ProcessNote)
    files.write_note(msgspec.structs.replace(note, pid=None, start_ticks=None))


@pytest.mark.process
async def test_program_is_found_after_a_kill_between_its_start_and_its_note(tmp_path: Path) -> None:
    files = ProcessFiles(tmp_path, "event.web-0")
    with start(files, f"while ! test -e {tmp_path}/go; do sleep 0.01; done; echo finished"):
        forget_pid(files)
        found = BackgroundProcess.find(files)
        assert found is not None
        with found:
            waiting = asyncio.ensure_future(found.wait())
            done, _ = await asyncio.wait([waiting], timeout=0.1)
            assert not done, "it still runs"
            (tmp_path / "go").touch()
            assert (await waiting).stdout == "finished\n"


@pytest.mark.process
async def test_output_is_found_of_a_program_that_ended_before_its_note(tmp_path: Path) -> None:
    files = ProcessFiles(tmp_path, "event.web-0")
    with start(files, "echo finished") as process:
        await process.wait()
        forget_pid(files)
    found = BackgroundProcess.find(files)
    assert found is not None
    with found:
        result = await found.wait()
        assert (result.code, result.stdout) == (None, "finished\n")
