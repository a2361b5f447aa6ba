"""SQLite database file: create it atomically, check it before use, open it for writing or read-only."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from forewarn.files import UNWRITABLE, move, open_file
from forewarn.store.port import StoreCorrupt, StoreError, StoreFailed, StoreFull, StoreTooNew
from forewarn.store.sqlite import wal
from forewarn.store.sqlite.directory import wrap_os_errors
from forewarn.store.sqlite.schema import APPLICATION_ID, SCHEMA_VERSION, migrate, read_version

DATABASE_FILE = "forewarn.db"
SUFFIXES = ("", "-wal", "-shm", "-journal")
"""The endings of the files of a database."""

PRAGMAS = {
    "journal_mode": "WAL",
    "synchronous": "FULL",  # a commit returns when its part of the log is on disk …
    "fullfsync": "ON",  # … on macOS too
    "checkpoint_fullfsync": "ON",
    "wal_autocheckpoint": "1000",  # pages: 4 MiB of log before it is written into the file
    "journal_size_limit": str(8 << 20),
    "cell_size_check": "ON",
    "trusted_schema": "OFF",
}
"""The pragmas of the writing connection."""

BUSY_TIMEOUT = 5.0
"""How long to wait for another program that has the file open, such as a backup."""

UNWRITABLE_CODES = frozenset(
    {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM}
)
"""The errors of SQLite on a disk that cannot be written, but perhaps read."""

_MAGIC = b"SQLite format 3\0"


def prepare_database(path: Path) -> None:
    """Create the file if it is missing; refuse one that cannot be read as a store, without changing it."""
    with wrap_sqlite_errors(path), wrap_os_errors(path):
        if path.exists():
            check_database(path)
            _restrict_permissions(path)
        else:
            _create(path)


def check_database(path: Path) -> None:
    """Refuse a file that cannot be read as a store. It is not changed."""
    with wrap_sqlite_errors(path), wrap_os_errors(path):
        _check_header(path)
        _check_content(path)


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Open the file and migrate it to the newest version."""
    with wrap_os_errors(path):
        wal.rewrite(path)
    with wrap_sqlite_errors(path):
        connection = _connect(path)
        try:
            for name, value in PRAGMAS.items():
                connection.execute(f"PRAGMA {name} = {value}")
            migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open the file read-only, next to its writer."""
    with wrap_sqlite_errors(path):
        return _connect(path, "mode=ro")


def is_unwritable(error: StoreError) -> bool:
    """Return whether an error means that the disk cannot be written now, but perhaps read."""
    match error.__cause__:
        case OSError(errno=number):
            return number in UNWRITABLE
        case sqlite3.Error() as cause:
            return isinstance(error, StoreFull) or getattr(cause, "sqlite_errorcode", 0) & 0xFF in UNWRITABLE_CODES
        case _:
            return False


def is_current(path: Path) -> bool:
    """Return whether a file needs no migration."""
    with wrap_sqlite_errors(path), closing(open_unused(path)) as connection:
        return read_version(connection) == SCHEMA_VERSION


def open_unused(path: Path) -> sqlite3.Connection:
    """Open a file read-only that nothing writes, without creating any file beside it."""
    log = _sibling(path, "-wal")
    with wrap_sqlite_errors(path):
        # Without a log, SQLite would create one just for reading. Nothing else writes, so open it as immutable.
        return _connect(path, "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1")


@contextmanager
def wrap_sqlite_errors(path: Path) -> Iterator[None]:
    """Convert errors of SQLite to store errors."""
    try:
        yield
    except sqlite3.Error as error:
        raise to_store_error(error, path) from error


def to_store_error(error: sqlite3.Error, path: Path) -> StoreError:
    """Return the store error for an error of SQLite."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    # Changing the size of the shared memory file fails only if the disk is full.
    if code in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE}:
        return StoreFull(path)
    if code & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return StoreCorrupt(path, str(error))
    return StoreFailed(path, str(error))


def _connect(path: Path, mode: str = "mode=rw") -> sqlite3.Connection:
    # Each connection is used by one thread at a time, but not always by the thread that opened it.
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}",
        uri=True,
        timeout=BUSY_TIMEOUT,
        isolation_level=None,
        check_same_thread=False,
    )


def _sibling(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _check_header(path: Path) -> None:
    with os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
        head = file.read(len(_MAGIC))
    if not head:
        raise StoreCorrupt(path, "the file is empty")
    if head != _MAGIC:
        raise StoreCorrupt(path, "it is not a database")


def _check_content(path: Path) -> None:
    """Check version and records through a connection that cannot write, not even checkpoint the log."""
    with closing(open_unused(path)) as connection:
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise StoreCorrupt(path, "it was not written by Forewarn")
        if (version := read_version(connection)) > SCHEMA_VERSION:
            raise StoreTooNew(path, version=version, supported=SCHEMA_VERSION)
        # The journal may be large and no rule depends on it: damage in it shows when it is read.
        for table in ("records", "counters"):
            if (found := connection.execute(f"PRAGMA quick_check({table})").fetchone()[0]) != "ok":
                raise StoreCorrupt(path, found)


def _restrict_permissions(path: Path) -> None:
    if path.stat().st_mode & 0o077:
        with suppress(OSError):  # owned by another user, who decides about its mode, or on a read-only disk
            path.chmod(0o600)


def _create(path: Path) -> None:
    """Create the file under another name first, so that a file with the right name is always complete."""
    if _sibling(path, "-wal").exists():
        raise StoreCorrupt(path, f"the file is missing, but its log {path.name}-wal exists")
    temporary = _sibling(path, ".new")
    for suffix in SUFFIXES:
        _sibling(temporary, suffix).unlink(missing_ok=True)
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    open_for_writing(temporary).close()
    move(temporary, path)
