"""The workflow store: files are complete or missing, and disk errors do not stop the agent."""

import logging
import os
import re
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from forewarn.agent.handlers.base import HandlerCall, Phase
from forewarn.agent.workflow import store as journal_module
from forewarn.agent.workflow.planner import WorkflowContext, start
from forewarn.agent.workflow.reducer import apply_input
from forewarn.agent.workflow.state import EventRemoved, EventSeen, EventWorkflow, HandlerStep
from forewarn.agent.workflow.store import WorkflowStore, decode_workflow, encode_workflow, file_name, read_workflow
from forewarn.client import Ending
from tests.agent.harness import ID, NOON, AgentHarness, FakeService, RecordingHandler, event, seconds
from tests.support.disks import fill_disk, mount_disk


def workflow(id_: str = ID, **facts: object) -> EventWorkflow:
    seen = event(id_, **facts)  # type: ignore[arg-type]  # facts of an event
    return start(seen, (HandlerStep(handler="drain"),), WorkflowContext(now=NOON, vm_name="web_0")).workflow


def test_saved_workflow_is_loaded_and_deleted_one_is_not(tmp_path: Path) -> None:
    journal = WorkflowStore(tmp_path / "journal")
    assert journal.load() == ()
    journal.save(workflow())
    journal.save(workflow("B"))
    assert WorkflowStore(tmp_path / "journal").load() == (workflow(), workflow("B"))
    journal.delete(ID)
    assert WorkflowStore(tmp_path / "journal").load() == (workflow("B"),)
    journal.delete(ID)
    assert journal.error is None


def test_reannounced_event_and_unknown_values_survive_a_round_trip(tmp_path: Path) -> None:
    strange = workflow(type="Defrost", status="Thinking", source="Moon", description='\x00"\u2028', duration=seconds(9))
    gone = apply_input(apply_input(strange, EventRemoved(Ending.FINISHED), now=NOON), EventSeen(event()), now=NOON)
    journal = WorkflowStore(tmp_path)
    journal.save(gone)
    assert journal.load() == (gone,)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files and directories that were synced."""
    done: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        done.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    return done


def test_save_syncs_file_and_directories(tmp_path: Path, synced: list[str]) -> None:
    journal = WorkflowStore(tmp_path / "journal")
    journal.save(workflow())
    journal.delete(ID)
    assert re.sub(r"\.\w+\.new", ".new", " ".join(synced)) == f"{ID}.json.new journal journal"


@pytest.mark.parametrize(
    "id_",
    ["../../etc/passwd", "", ".", "a" * 500, "\ud800", "CON", "x/y", "a.b", "Ünïcode"],
    ids=lambda id_: ascii(id_)[:20],
)
def test_no_event_id_escapes_the_directory(id_: str) -> None:
    name = file_name(id_)
    assert name == Path(name).name
    assert len(name) <= 71
    assert name.isascii()


GARBAGE = {
    "empty": b"",
    "zeros": bytes(4096),
    "truncated": encode_workflow(workflow())[:200],
    "no JSON": b"\xff\xfe{",
    "other JSON": b"[1,2,3]",
    "deep": b"[" * 100_000,
    "another format": encode_workflow(workflow()).replace(b'"format":1', b'"format":99'),
    "a state that does not exist": encode_workflow(workflow()).replace(b'"begun"', b'"perhaps"'),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_damaged_file_is_renamed_and_reported(tmp_path: Path, garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    journal = WorkflowStore(tmp_path)
    journal.save(workflow("B"))
    (tmp_path / f"{ID}.json").write_bytes(garbage)
    assert journal.load() == (workflow("B"),)
    assert (tmp_path / f"{ID}.json.unreadable-1").read_bytes() == garbage
    assert f", renamed to {ID}.json.unreadable-1; check whether something is still prepared" in caplog.text
    assert len(journal.unreadable) == 1
    (tmp_path / f"{ID}.json").write_bytes(garbage)
    assert journal.load() == (workflow("B"),)
    assert (tmp_path / f"{ID}.json.unreadable-2").exists()


def test_name_of_a_damaged_file_is_synced(tmp_path: Path, synced: list[str]) -> None:
    """The file may be the only record that something is prepared."""
    (tmp_path / f"{ID}.json").write_bytes(b"")
    assert WorkflowStore(tmp_path).load() == ()
    assert synced == [tmp_path.name]


def test_oversized_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "LARGEST", 100)
    (tmp_path / "x").write_bytes(encode_workflow(workflow()))
    with pytest.raises(ValueError, match="larger than 100 bytes"):
        read_workflow(tmp_path / "x")


@given(st.binary(max_size=300), st.integers(0, 2000), st.integers(0, 30))
def test_any_damage_is_detected_or_harmless(noise: bytes, at: int, cut: int) -> None:
    page = encode_workflow(workflow())
    try:
        found = decode_workflow(page[:at] + noise + page[at + cut :])
    except ValueError:
        return
    assert found == workflow()


def test_partly_written_file_is_not_loaded(tmp_path: Path) -> None:
    journal = WorkflowStore(tmp_path)
    journal.save(workflow())
    (tmp_path / f"{ID}.new").write_bytes(b"half")
    assert journal.load() == (workflow(),)


def test_partly_written_file_is_removed(tmp_path: Path) -> None:
    WorkflowStore(tmp_path).save(workflow())
    (tmp_path / "B.new").write_bytes(b'{"format":')
    assert WorkflowStore(tmp_path).load() == (workflow(),)
    assert [path.name for path in tmp_path.iterdir()] == [f"{ID}.json"]


def test_directory_that_is_a_file_is_reported_without_raising(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("no directory")
    journal = WorkflowStore(tmp_path / "journal")
    assert journal.load() == ()
    journal.save(workflow())
    assert journal.has_error.is_set()
    assert "cannot write the workflow files" in str(journal.error)
    (tmp_path / "journal").unlink()
    journal.flush()
    assert not journal.error
    assert journal.load() == (workflow(),)


def test_store_without_a_directory_saves_nothing() -> None:
    journal = WorkflowStore(None)
    journal.save(workflow())
    assert journal.load() == ()
    assert journal.error is None


def test_read_workflow_names_the_problem(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(GARBAGE["another format"])
    with pytest.raises(ValueError, match="unknown format 99; this agent reads format 1"):
        read_workflow(tmp_path / "x")


@pytest.mark.process
async def test_agent_continues_on_a_full_disk_and_writes_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="forewarn.agent")
    diary: list[str] = []
    drain = RecordingHandler("drain", diary)
    with mount_disk(tmp_path / "disk", "128k"):
        harness = AgentHarness(tmp_path / "disk" / "state", FakeService(), [drain])
        async with harness.run_agent() as agent:
            ballast = fill_disk(tmp_path / "disk")
            await harness.show(event())
            assert agent.workflows[ID].phase is Phase.APPROVE
            assert drain.attempts(HandlerCall.PREPARE) == [1]
            error = "cannot write the workflow files: No space left on device"
            assert any(error in each for each in agent.status().problems)
            ballast.unlink()
            await harness.advance(seconds(10))
            assert agent.status().problems == ()
        harness.service.show()
        async with harness.run_agent() as agent:
            assert drain.attempts(HandlerCall.RECOVER) == [1]
            assert not agent.workflows
    assert caplog.messages.count("all workflow files are on disk again") == 1


@pytest.mark.process
async def test_agent_starts_on_a_full_disk(tmp_path: Path) -> None:
    diary: list[str] = []
    drain = RecordingHandler("drain", diary)
    with mount_disk(tmp_path / "disk", "64k"):
        fill_disk(tmp_path / "disk")
        harness = AgentHarness(tmp_path / "disk" / "state", FakeService(event()), [drain])
        async with harness.run_agent() as agent:
            assert agent.workflows[ID].phase is Phase.APPROVE
            await harness.show()
            assert drain.attempts(HandlerCall.RECOVER) == [1]
            assert not agent.workflows
