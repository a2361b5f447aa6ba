"""The lock of the state directory: one agent at a time."""

from pathlib import Path

import pytest

from forewarn.agent.compose import check_agent
from forewarn.agent.handlers.saved_state import SavedStateFile
from forewarn.agent.lock import LOCK_FILE, StateDirectoryError, StateDirectoryInUse, acquire_lock
from forewarn.agent.settings import AgentSettings
from forewarn.files import FileLock
from tests.agent.harness import ID, AgentHarness, FakeService, RecordingHandler, event, until


def test_directory_is_created_and_locked_until_it_is_released(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "state"
    held = acquire_lock(directory)
    assert (directory / LOCK_FILE).is_file()
    assert directory.stat().st_mode & 0o777 == 0o700
    with pytest.raises(StateDirectoryInUse, match=str(directory)):
        acquire_lock(directory)
    held.release()
    acquire_lock(directory).release()


@pytest.mark.parametrize("name", ["file", "file/state", "x" * 300], ids=["a file", "below a file", "too long"])
def test_path_that_cannot_be_a_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateDirectoryError, match="state: ") as refused:
        acquire_lock(tmp_path / name)
    assert not isinstance(refused.value, StateDirectoryInUse)


def test_full_disk_is_trouble_that_may_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FileLock, "acquire", fail)
    with pytest.raises(OSError, match="No space left"):
        acquire_lock(tmp_path)


async def test_agent_refuses_a_symbolic_link_in_place_of_any_file(tmp_path: Path, diary: list[str]) -> None:
    state = tmp_path / "state"
    harness = AgentHarness(state, FakeService(), [RecordingHandler("drain", diary)])
    SavedStateFile(state / "handlers", "stop").save_running(("a.service",))
    async with harness.run_agent():
        await harness.show(event())
        await until((state / "agent.sock").exists)
        names = sorted(str(path.relative_to(state)) for path in state.rglob("*"))
        assert (state / "agent.sock").stat().st_mode & 0o777 == 0o600
    assert names == ["agent.lock", "agent.sock", "handlers", "handlers/stop.json", "journal", f"journal/{ID}.json"]
    for name in names:
        check_link(state / name, tmp_path / "target")


def check_link(place: Path, target: Path) -> None:
    """Put a link in this place, and remove it again."""
    aside = place.with_name("aside")
    if place.exists():
        place.rename(aside)
    target.write_text("of another user")
    place.symlink_to(target)
    state = place.parent if place.parent.name == "state" else place.parent.parent
    with pytest.raises(StateDirectoryError, match=f"run `rm {place}`"):
        acquire_lock(state)
    assert target.read_text() == "of another user"
    place.unlink()
    if aside.exists():
        aside.rename(place)


def test_directory_that_everyone_can_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    tmp_path.chmod(0o777)
    with pytest.raises(StateDirectoryError, match=f"state: {tmp_path} is writable by every user: run `chmod o-w"):
        acquire_lock(tmp_path)
    (problem,) = check_agent(AgentSettings(state=tmp_path))
    assert problem.startswith(f"state: {tmp_path} is writable by every user")
