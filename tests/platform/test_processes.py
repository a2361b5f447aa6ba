"""The note of a program that outlives the service: it is replaced as a whole, and nothing of it is left behind."""

import os
from datetime import UTC, datetime
from pathlib import Path

from forewarn.platform.processes import ProcessFiles, ProcessNote

NOTE = ProcessNote(pid=1, start_ticks="2", started_at=datetime(2026, 3, 2, tzinfo=UTC), attempt=1)


def test_note_is_replaced_and_not_overwritten(tmp_path: Path) -> None:
    """What a crash interrupts leaves the old note whole; so does whoever has it open."""
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
