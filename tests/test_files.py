"""A file is replaced completely and durably or not at all; a lock has one holder at a time."""

import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest

from forewarn import files
from forewarn.files import (
    FileLock,
    FileLocked,
    UnsafeDirectory,
    check_directory,
    check_room,
    is_locked,
    move,
    open_file,
    prepare_directory,
    read_file,
    remove_file,
    remove_unfinished,
    replace_file,
    rewrite_file,
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


def test_moved_file_replaces_another_and_both_directories_are_synced(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync_directory", synced.append)
    target = tmp_path / "directory" / "other"
    target.parent.mkdir()
    target.write_bytes(b"replaced")
    move(file, target)
    assert (file.exists(), target.read_bytes(), synced) == (False, b"old", [target.parent, tmp_path])
    move(target, target.with_name("third"))
    assert synced[2:] == [target.parent]


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


def test_rewritten_file_has_the_same_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"", b"short", bytes(range(256)) * 10_000):
        path.write_bytes(content)
        rewrite_file(path)
        assert path.read_bytes() == content


def test_symbolic_link_is_neither_read_nor_written(tmp_path: Path, file: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    for use in (read_file, FileLock.acquire, lambda path: open_file(path, os.O_WRONLY | os.O_TRUNC)):
        with pytest.raises(OSError, match="is a symbolic link, which is not followed here"):
            use(link)
    assert file.read_bytes() == b"old"


def test_file_above_its_limit_is_refused(file: Path) -> None:
    assert read_file(file, 3) == b"old"
    with pytest.raises(ValueError, match="larger than 2 bytes"):
        read_file(file, 2)


def test_missing_directories_are_created_private_and_an_empty_one_is_made_so(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert prepare_directory(tmp_path / "a/b") is None
    finally:
        os.umask(before)
    assert [mode_of(tmp_path / "a"), mode_of(tmp_path / "a/b")] == [0o700, 0o700]
    (tmp_path / "a/b").chmod(0o777)
    assert prepare_directory(tmp_path / "a/b") is None
    assert mode_of(tmp_path / "a/b") == 0o700


@pytest.mark.process
def test_directory_that_everyone_can_write_is_refused_with_the_command(tmp_path: Path, file: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UnsafeDirectory) as refused:
        prepare_directory(tmp_path)
    message = f"{tmp_path} is writable by every user: run `chmod o-w {tmp_path}`, or choose another directory"
    assert str(refused.value) == message
    assert subprocess.run(["chmod", "o-w", str(tmp_path)], check=True, timeout=60).returncode == 0
    assert prepare_directory(tmp_path) == (
        f"{tmp_path} is writable by its group, whose members could replace its files: run `chmod g-w {tmp_path}`"
    )
    tmp_path.chmod(0o755)
    assert prepare_directory(tmp_path) is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_directory_of_another_user_is_refused_with_the_command(tmp_path: Path, file: Path) -> None:
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(UnsafeDirectory) as refused:
        check_directory(tmp_path)
    message = f"{tmp_path} belongs to 12345: run `chown root {tmp_path}`, or choose another directory"
    assert str(refused.value) == message
    tmp_path.chmod(0o702)
    with pytest.raises(UnsafeDirectory, match=f"run `chown root {tmp_path} && chmod o-w {tmp_path}`"):
        check_directory(tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_directory_of_root_may_be_used_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a volume of a container that its group can write."""
    tmp_path.chmod(0o770)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "is writable by its group" in (check_directory(tmp_path) or "")


def test_link_is_refused_in_a_directory_of_a_listed_name(tmp_path: Path, file: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal/link").symlink_to(file)
    check_directory(tmp_path, ["other"])
    with pytest.raises(UnsafeDirectory, match=f"{tmp_path}/journal/link is a symbolic link.*run `rm {tmp_path}"):
        check_directory(tmp_path, ["journal"])


def test_room_is_checked_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "room"
    path.write_bytes(b"left by a killed process")
    check_room(path, 3_000_000)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="No such file"):
        check_room(tmp_path / "missing" / "room", 1)


def test_read_only_lock_file_is_locked_without_a_process_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"")
    open_file = os.open

    def refuse_writing(target: Path, flags: int, *mode: int) -> int:
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, "Read-only file system")
        return open_file(target, flags, *mode)

    monkeypatch.setattr(os, "open", refuse_writing)
    with pytest.raises(OSError, match="Read-only"):
        FileLock.acquire(path)
    lock = FileLock.acquire(path, may_be_read_only=True)
    with pytest.raises(FileLocked):
        FileLock.acquire(path, may_be_read_only=True)
    lock.release()
    FileLock.acquire(path, may_be_read_only=True).release()
    assert path.read_bytes() == b""
