"""The log as a file: what recovery would find after the last commit, and what makes it durable."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from forewarn.store.sqlite.database import DATABASE_FILE
from forewarn.store.sqlite.wal import has_uncommitted_end, index_path, log_path, rewrite


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE pages (content BLOB)")
        yield connection


def fail_at_commit(connection: sqlite3.Connection, directory: Path, copy: Path) -> Path:
    """Return a copy with a log that has one transaction more than SQLite regards as committed."""
    copy.mkdir()
    shutil.copy(index_path(directory / DATABASE_FILE), copy)
    connection.execute("INSERT INTO pages VALUES (zeroblob(10000))")
    shutil.copy(log_path(directory / DATABASE_FILE), copy)
    return copy / DATABASE_FILE


@pytest.mark.parametrize("commits", [0, 1, 5])
def test_transaction_after_the_last_commit_is_found(
    connection: sqlite3.Connection, tmp_path: Path, commits: int
) -> None:
    for _ in range(commits):
        connection.execute("INSERT INTO pages VALUES (zeroblob(5000))")
    assert not has_uncommitted_end(tmp_path / DATABASE_FILE)
    assert has_uncommitted_end(fail_at_commit(connection, tmp_path, tmp_path / "copy"))


def test_first_transaction_of_a_restarted_log_is_found(connection: sqlite3.Connection, tmp_path: Path) -> None:
    connection.execute("INSERT INTO pages VALUES (zeroblob(50000))")
    connection.execute("PRAGMA wal_checkpoint(RESTART)")
    database = fail_at_commit(connection, tmp_path, tmp_path / "copy")
    with index_path(database).open("r+b") as index:  # SQLite restarts the index before it writes
        index.seek(16)
        index.write(bytes(4))
    assert has_uncommitted_end(database)
    assert not has_uncommitted_end(tmp_path / DATABASE_FILE)


def test_transaction_that_is_not_complete_is_not_found(connection: sqlite3.Connection, tmp_path: Path) -> None:
    """Recovery ignores it, too."""
    database = fail_at_commit(connection, tmp_path, tmp_path / "copy")
    complete = log_path(database).read_bytes()
    for wrong in (complete[:-1], complete[:-4096], complete[:-5000] + b"?" + complete[-4999:], complete[:20]):
        log_path(database).write_bytes(wrong)
        assert not has_uncommitted_end(database), len(wrong)


def test_log_that_cannot_be_read_may_have_any_end(tmp_path: Path) -> None:
    assert has_uncommitted_end(tmp_path / DATABASE_FILE)


def test_rewriting_changes_nothing(connection: sqlite3.Connection, tmp_path: Path) -> None:
    rewrite(tmp_path / "other.db")
    connection.execute("INSERT INTO pages VALUES (zeroblob(3000000))")
    before = log_path(tmp_path / DATABASE_FILE).read_bytes()
    rewrite(tmp_path / DATABASE_FILE)
    assert log_path(tmp_path / DATABASE_FILE).read_bytes() == before
