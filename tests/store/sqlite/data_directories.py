"""Data directories for tests: filled ones, and what must not change when one is refused."""

import asyncio
from hashlib import sha256
from pathlib import Path
from stat import S_IMODE

from forewarn.store.port import (
    RecordKey,
    RecordKind,
)
from forewarn.store.sqlite.directory import LOCK_FILE
from forewarn.store.sqlite.store import SqliteStore
from forewarn.store.sqlite.writer import Writer
from tests.store.contract import entries


def mode_of(path: Path) -> int:
    return S_IMODE(path.stat().st_mode)


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def fingerprints(directory: Path) -> dict[str, str]:
    """Return what must not change when a store is refused: every file but the lock and SQLite's scratch memory."""
    return {
        path.name: sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.iterdir())
        if path.name != LOCK_FILE and path.suffix != ".db-shm"
    }


async def fill(directory: Path, records: int = 200) -> None:
    store = await SqliteStore.open(directory)
    keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(records)]
    await asyncio.gather(*(store.save(key, bytes(100), entries(1), expected=None) for key in keys))
    await store.aclose()


def writer_of(store: SqliteStore) -> Writer:
    """Return the writer of a store that can be written."""
    assert isinstance(store._database.writer, Writer)
    return store._database.writer
