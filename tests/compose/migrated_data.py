"""Content for migrations: several kinds of records, a journal in which they alternate, some of it pruned."""

from pathlib import Path
from typing import NamedTuple

from forewarn.core.journal import Entry
from forewarn.settings.nats import NatsSettings
from forewarn.store.nats.store import NatsStore
from forewarn.store.port import Extent, JournalQuery, Record, RecordKey, RecordKind, Retention, SnapshotEnd, Store
from forewarn.store.sqlite.store import SqliteStore
from tests.store.contract import NOON, WEB, entries

KEYS = (
    WEB,
    RecordKey(RecordKind.SCOPE, "größer.als > *"),
    RecordKey(RecordKind.FLEET, "hold"),
    RecordKey(RecordKind.CAMPAIGN, "kernel"),
    RecordKey(RecordKind.TOKEN, "t-1"),
)


class StoreContent(NamedTuple):
    """Everything that a migration copies."""

    records: dict[RecordKey, bytes]
    journal: list[tuple[RecordKey, Entry]]
    positions: list[int]
    extent: Extent


async def fill_store(store: Store, rounds: int = 4) -> None:
    """Save every record several times, and remove the first rows of the journal."""
    revisions: dict[RecordKey, int] = {}
    for number in range(rounds):
        for key in KEYS:
            value = f"{key} {number} {'x' * 100}".encode()
            lines = entries(number % 3 + 1, first=number * 10 + 1)
            revisions[key] = await store.save(key, value, lines, expected=revisions.get(key))
    gone = RecordKey(RecordKind.SCOPE, "gone")
    revision = await store.save(gone, b"gone", entries(1), expected=None)
    await store.save(gone, None, entries(1, first=2), expected=revision)
    await store.prune(Retention(rows=rounds * len(KEYS)), now=NOON)


async def read_content(store: Store) -> StoreContent:
    """Read everything."""
    records: dict[RecordKey, bytes] = {}
    async with store.watch() as items:
        async for item in items:
            if isinstance(item, SnapshotEnd):
                break
            assert isinstance(item, Record)
            records[item.key] = item.value
    rows = await store.journal(JournalQuery(limit=10_000))
    return StoreContent(
        {key: value for key, value in records.items() if key.kind is not RecordKind.LEASE},
        [(row.key, row.entry) for row in rows],
        [row.position for row in rows],
        await store.extent(),
    )


async def fill_directory(directory: Path, rounds: int = 4) -> StoreContent:
    """Create a data directory with content."""
    store = await SqliteStore.open(directory)
    try:
        await fill_store(store, rounds)
        return await read_content(store)
    finally:
        await store.aclose()


async def read_directory(directory: Path) -> StoreContent:
    """Read a data directory."""
    store = await SqliteStore.open(directory)
    try:
        return await read_content(store)
    finally:
        await store.aclose()


async def read_cell(settings: NatsSettings, directory: Path) -> StoreContent:
    """Read a cell; the directory gets the index of its journal."""
    store = await NatsStore.open(settings, directory)
    try:
        return await read_content(store)
    finally:
        await store.aclose()
