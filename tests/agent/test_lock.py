"""The lock of the state directory: one agent at a time."""

from pathlib import Path

import pytest

from forewarn.agent.lock import LOCK_FILE, StateDirectoryError, StateDirectoryInUse, acquire_lock
from forewarn.files import FileLock


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
