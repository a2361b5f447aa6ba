"""Backup of a data directory: while its service runs, whole or not at all."""

import os
from pathlib import Path

import pytest

from forewarn.clock import SystemClock
from forewarn.compose.backup import BackupExists, DatabaseNotFound, WrongOwner, back_up, check_owner
from forewarn.files import UnsafeDirectory
from forewarn.store.port import RecordKind, StoreFailed
from forewarn.store.sqlite.backup import DatabaseContent, check_backup
from tests.compose.service_data import create_data, new_scope, open_fleet


def back_up_quietly(directory: Path, file: Path, *, replace: bool = False) -> DatabaseContent:
    return back_up(directory, file, replace=replace, now=SystemClock().now(), on_progress=lambda *_: None)


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_backup_of_a_running_service_has_all_that_it_has_saved(tmp_path: Path) -> None:
    await create_data(tmp_path / "data", "web")
    (tmp_path / "data/preset").write_text("production\n")
    async with open_fleet(tmp_path / "data") as fleet:
        await fleet.inventory.add_scope(new_scope("db"), by="test")
        content = back_up_quietly(tmp_path / "data", tmp_path / "backup.db")
        await fleet.inventory.add_scope(new_scope("late"), by="test")
    assert (content.count(RecordKind.SCOPE), content.journal_rows) == (2, 2)
    origin = check_backup(tmp_path / "backup.db")
    assert origin is not None
    assert origin.preset == "production"
    assert (tmp_path / "backup.db").stat().st_mode & 0o777 == 0o600
    assert names_in(tmp_path) == ["backup.db", "data"], "no other file is left"


async def test_backup_does_not_overwrite_a_file_unless_asked(tmp_path: Path) -> None:
    await create_data(tmp_path / "data", "web")
    (tmp_path / "backup.db").write_text("yesterday")
    with pytest.raises(BackupExists):
        back_up_quietly(tmp_path / "data", tmp_path / "backup.db")
    assert (tmp_path / "backup.db").read_text() == "yesterday"
    back_up_quietly(tmp_path / "data", tmp_path / "backup.db", replace=True)
    assert check_backup(tmp_path / "backup.db") is not None


@pytest.mark.parametrize("name", ["forewarn.db", "forewarn.db-wal", "preset"])
async def test_symbolic_link_in_the_directory_is_refused_and_not_read(tmp_path: Path, name: str) -> None:
    """Root makes backups, too: of a directory in which another user may have left a link."""
    await create_data(tmp_path / "data", "web")
    (tmp_path / "data/preset").write_text("production\n")
    place = tmp_path / "data" / name
    place.touch()
    place.rename(tmp_path / "target")
    place.symlink_to(tmp_path / "target")
    with pytest.raises(UnsafeDirectory, match="is a symbolic link"):
        back_up_quietly(tmp_path / "data", tmp_path / "backup.db")
    assert names_in(tmp_path) == ["data", "target"]


async def test_failed_backup_leaves_the_former_one(tmp_path: Path) -> None:
    await create_data(tmp_path / "data", "web")
    (tmp_path / "backup.db").write_text("yesterday")

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(StoreFailed):
        back_up(tmp_path / "data", tmp_path / "backup.db", replace=True, now=SystemClock().now(), on_progress=fail)
    assert (tmp_path / "backup.db").read_text() == "yesterday"
    assert names_in(tmp_path) == ["backup.db", "data"]


def test_directory_without_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatabaseNotFound, match=str(tmp_path)):
        back_up_quietly(tmp_path, tmp_path / "backup.db")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_directory_of_another_user_is_refused_by_name(tmp_path: Path) -> None:
    check_owner(tmp_path / "missing")
    check_owner(tmp_path)
    os.chown(tmp_path, 1, 1)
    with pytest.raises(WrongOwner, match="daemon"):
        check_owner(tmp_path)
    os.chown(tmp_path, 54_321, 1)
    with pytest.raises(WrongOwner, match="user 54321"):
        check_owner(tmp_path)
