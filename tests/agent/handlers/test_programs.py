"""Programs of handlers: their notes on disk, and how the next agent finds them."""

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from forewarn.agent.handlers.base import Phase
from forewarn.agent.handlers.programs import (
    HandlerPrograms,
    OrphanProgram,
    ProgramNote,
    find_orphans,
    remove_stale_notes,
)
from forewarn.agent.phases import HandlerCall
from forewarn.clock import ManualClock
from forewarn.process import ProcessNote, ProcessResult, boot_id
from tests.agent.handlers.handler_contexts import EVENT, NOW, PREPARE, handler_context

pytestmark = pytest.mark.process

ENVIRON = {"PATH": os.environ["PATH"]}


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def notes(directory: Path) -> list[ProgramNote]:
    paths = [directory / name for name in names(directory) if name.endswith(".note")]
    return [msgspec.json.decode(path.read_bytes(), type=ProgramNote) for path in paths]


def start(directory: Path, script: str = "exec sleep 1000") -> "asyncio.Task[ProcessResult]":
    runner = HandlerPrograms(directory, "stop", ManualClock(NOW))
    return asyncio.ensure_future(runner.run(["/bin/sh", "-c", script], ENVIRON, PREPARE))


async def started(directory: Path) -> ProgramNote:
    async with asyncio.timeout(60):
        while not (found := notes(directory)) or found[0].process.pid is None:  # noqa: ASYNC110 - only files to watch
            await asyncio.sleep(0.01)
    return found[0]


async def end(running: "asyncio.Task[ProcessResult]") -> None:
    running.cancel()
    await asyncio.wait([running])


async def test_running_program_has_a_note_and_an_ended_one_has_none(tmp_path: Path) -> None:
    running = start(tmp_path)
    note = await started(tmp_path)
    process = note.process
    assert note == ProgramNote(
        event=EVENT.id,
        handler="stop",
        phase=Phase.PREPARE,
        call=HandlerCall.PREPARE,
        program="/bin/sh",
        until=NOW + timedelta(seconds=30),
        process=ProcessNote(
            pid=process.pid,
            start_ticks=process.start_ticks,
            started_at=NOW,
            attempt=1,
            boot=boot_id(),
            label=process.label,
        ),
    )
    assert process.pid is not None
    assert os.getpgid(process.pid) == process.pid
    assert str(note) == f"prepare of stop (/bin/sh, process {process.pid})"
    await end(running)
    assert names(tmp_path) == []


async def test_self_test_has_no_note(tmp_path: Path) -> None:
    ran = await HandlerPrograms(tmp_path, "stop").run(["/bin/sh", "-c", f"ls {tmp_path}"], ENVIRON, None)
    assert ran == ProcessResult(0, "")


@pytest.mark.parametrize("has_pid", [True, False], ids=["after", "before the pid is on disk"])
async def test_program_is_found_after_a_kill(tmp_path: Path, has_pid: bool) -> None:
    running = start(tmp_path)
    note = await started(tmp_path)
    if not has_pid:
        unfinished = msgspec.structs.replace(note.process, pid=None, start_ticks=None)
        path = tmp_path / f"{note.process.label}.note"
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(note, process=unfinished)))
    (found,) = find_orphans(tmp_path)
    assert (found.note, found.has_exited()) == (note, False)
    remove_stale_notes(tmp_path, [found])
    assert len(notes(tmp_path)) == 1
    await found.terminate()
    await running
    assert (found.has_exited(), names(tmp_path)) == (True, [])


async def test_process_of_another_boot_or_program_is_not_found(tmp_path: Path) -> None:
    running = start(tmp_path)
    note = await started(tmp_path)
    path = tmp_path / f"{note.process.label}.note"
    for wrong in ({"boot": "another"}, {"start_ticks": "1"}):
        other = msgspec.structs.replace(note.process, **wrong)
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(note, process=other)))
        assert OrphanProgram.find(path) is None, wrong
    path.write_bytes(b"{")
    assert OrphanProgram.find(path) is None
    remove_stale_notes(tmp_path, [])
    assert names(tmp_path) == []
    await end(running)


async def test_full_disk_does_not_stop_a_program(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    ran = await HandlerPrograms(tmp_path / "file", "stop").run(["/bin/echo", "done"], ENVIRON, handler_context())
    assert ran == ProcessResult(0, "done\n")
    assert "the next one will not find prepare of stop" in caplog.text


async def test_other_systems_do_not_look_for_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere a pid may belong to any other program, and ending that would be worse than a late prepare."""
    running = start(tmp_path)
    await started(tmp_path)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert list(find_orphans(tmp_path)) == []
    monkeypatch.undo()
    await end(running)
