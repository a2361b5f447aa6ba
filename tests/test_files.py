"""A file is replaced completely and durably or not at all; a lock has one holder at a time."""

import os
import stat
from pathlib import Path

import pytest

from forewarn.files import (
    FileLock,
    FileLocked,
    is_locked,
    remove_file,
    remove_unfinished,
    replace_file,
    write_file,
)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o640)
    return path


def test_file_is_replaced_without_leaving_other_files(file: Path) -> None:
    write_file(file, b"new")
    assert (file.read_bytes(), list(file.parent.iterdir())) == (b"new", [file])


def test_private_file_is_readable_only_by_its_owner(file: Path) -> None:
    write_file(file, b"new")
    assert mode_of(file) == 0o600


def test_other_file_keeps_the_mode_of_the_file_that_it_replaces(file: Path) -> None:
    write_file(file, b"new", is_private=False)
    assert mode_of(file) == 0o640


def test_new_file_that_is_not_private_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "file", b"new", is_private=False)
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "file") == 0o640


def test_error_while_writing_leaves_only_the_old_file(file: Path) -> None:
    def interrupted_write() -> None:
        with replace_file(file) as draft:
            draft.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted_write()
    assert (file.read_bytes(), list(file.parent.iterdir())) == (b"old", [file])


def test_content_is_synced_before_the_name_and_the_name_before_the_end(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def traced_fsync(fd: int) -> None:
        steps.append("sync directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else f"sync {os.fstat(fd).st_size} bytes")
        fsync(fd)

    def traced_replace(self: Path, target: Path) -> Path:
        steps.append(f"replace {target.name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(Path, "replace", traced_replace)
    write_file(file, b"four")
    remove_file(file)
    assert steps == ["sync 4 bytes", "replace file", "sync directory", "sync directory"]


def test_missing_file_can_be_removed(tmp_path: Path) -> None:
    remove_file(tmp_path / "nothing")


def test_only_temporary_files_of_killed_writers_are_removed(file: Path) -> None:
    others = {"file", "file.new", "file.renew", "file.renew.txt", "other.x.new"}
    for name in (*others, "file.x1y2.new"):
        (file.parent / name).touch()
    remove_unfinished(file)
    assert {path.name for path in file.parent.iterdir()} == others


def test_temporary_file_whose_name_looks_like_a_pattern_is_removed(tmp_path: Path) -> None:
    for name in ("[ab].x.new", "a.x.new"):
        (tmp_path / name).touch()
    remove_unfinished(tmp_path / "[ab]")
    assert [path.name for path in tmp_path.iterdir()] == ["a.x.new"]


def test_lock_has_one_holder_and_names_it(tmp_path: Path) -> None:
    lock = FileLock.acquire(tmp_path / "lock")
    with pytest.raises(FileLocked) as refused:
        FileLock.acquire(tmp_path / "lock")
    assert (refused.value.path, refused.value.pid) == (tmp_path / "lock", os.getpid())
    lock.release()
    assert (tmp_path / "lock").read_bytes() == b""
    FileLock.acquire(tmp_path / "lock").release()


def test_lock_of_a_file_is_held_after_the_file_is_closed(file: Path) -> None:
    with file.open("r+b") as opened:
        lock = FileLock.hold(opened, file)
    with file.open("rb") as reader, file.open("rb") as other_reader:
        assert is_locked(reader.fileno())
        lock.release()
        assert not is_locked(reader.fileno())
        assert not is_locked(other_reader.fileno())
    assert file.read_bytes() == b"old"
