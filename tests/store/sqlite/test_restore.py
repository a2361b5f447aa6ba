"""The exchange of a database: complete, or repeated by the next owner of the directory."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from forewarn.store.port import RecordKey, RecordKind
from forewarn.store.sqlite.database import DATABASE_FILE
from forewarn.store.sqlite.restore import (
    READY_PREFIX,
    REPLACED_PREFIX,
    STAGING_DIRECTORY,
    commit_restore,
    create_staging,
    finish_restore,
)
from forewarn.store.sqlite.store import SqliteStore

NOW = datetime(2030, 1, 7, 10, 30, tzinfo=UTC)
STAMP = "20300107T103000Z"
LOG = f"{DATABASE_FILE}-wal"
KEY = RecordKey(RecordKind.SCOPE, "web")


def content(directory: Path) -> dict[str, str]:
    return {
        str(file.relative_to(directory)): file.read_text() for file in sorted(directory.rglob("*")) if file.is_file()
    }


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in (DATABASE_FILE, LOG, "preset", "token"):
        (tmp_path / name).write_text("old")
    return tmp_path


def stage(directory: Path) -> None:
    staging = create_staging(directory)
    for name in (DATABASE_FILE, "preset"):
        (staging / name).write_text("new")


EXCHANGED = {
    DATABASE_FILE: "new",
    "preset": "new",
    "token": "old",
    f"{REPLACED_PREFIX}{STAMP}/{DATABASE_FILE}": "old",
    f"{REPLACED_PREFIX}{STAMP}/{LOG}": "old",
    f"{REPLACED_PREFIX}{STAMP}/preset": "old",
}


def test_old_files_are_kept_and_no_log_stays_beside_the_new_database(directory: Path) -> None:
    stage(directory)
    assert commit_restore(directory, now=NOW) == directory / f"{REPLACED_PREFIX}{STAMP}"
    assert content(directory) == EXCHANGED


def test_restore_into_an_empty_directory_replaces_nothing(tmp_path: Path) -> None:
    stage(tmp_path)
    assert commit_restore(tmp_path, now=NOW) is None
    assert content(tmp_path) == {DATABASE_FILE: "new", "preset": "new"}


def test_second_restore_in_the_same_second_keeps_both(directory: Path) -> None:
    for number in (1, 2):
        stage(directory)
        commit_restore(directory, now=NOW)
        assert len(list(directory.glob(f"{REPLACED_PREFIX}*"))) == number


@pytest.mark.parametrize("done", [(), (DATABASE_FILE,), (DATABASE_FILE, LOG)], ids=["nothing", "file", "file and log"])
def test_interrupted_exchange_is_completed(directory: Path, done: tuple[str, ...]) -> None:
    stage(directory)
    (directory / STAGING_DIRECTORY).rename(directory / f"{READY_PREFIX}{STAMP}")
    (directory / f"{REPLACED_PREFIX}{STAMP}").mkdir()
    for name in done:
        (directory / name).rename(directory / f"{REPLACED_PREFIX}{STAMP}" / name)
    finish_restore(directory)
    finish_restore(directory)
    assert content(directory) == EXCHANGED


def test_unfinished_preparation_is_removed(directory: Path) -> None:
    before = content(directory)
    stage(directory)
    finish_restore(directory)
    assert content(directory) == before


async def test_opening_a_store_completes_an_interrupted_restore(tmp_path: Path) -> None:
    for name, value in (("data", b"old"), ("other", b"new")):
        store = await SqliteStore.open(tmp_path / name)
        await store.save(KEY, value, [], expected=None)
        await store.aclose()
    staging = create_staging(tmp_path / "data")
    (tmp_path / "other" / DATABASE_FILE).rename(staging / DATABASE_FILE)
    staging.rename(tmp_path / "data" / f"{READY_PREFIX}{STAMP}")
    store = await SqliteStore.open(tmp_path / "data")
    record = await store.load(KEY)
    await store.aclose()
    assert record is not None
    assert record.value == b"new"
