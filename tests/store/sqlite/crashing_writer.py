"""A program for the crash test: writes until it is killed, and prints what has been acknowledged.

Each save of a key has the next number of that key. It brings one value, or at every seventh number a deletion, and two
journal entries, from which anyone can tell which number was the last to be saved as a whole.
"""

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from forewarn.core.journal import Entry, EntryKind
from forewarn.store.port import JournalQuery, RecordKey, RecordKind, Store
from forewarn.store.sqlite.store import SqliteStore

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
KEYS = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(6)]


def value_of(key: RecordKey, number: int) -> bytes | None:
    """Return what a key has after its save with this number."""
    return None if number % 7 == 0 else f"{key} {number} ".encode() + bytes(number * 977 % 9_000)


def entries_of(number: int) -> list[Entry]:
    """Return the entries that the save with this number brings."""
    at = NOON + timedelta(seconds=number)
    return [Entry(n=n, at=at, kind=EntryKind.SCHEDULED, by="operator") for n in (2 * number - 1, 2 * number)]


async def last_number(store: Store, key: RecordKey) -> int:
    """Return the number of the last save of a key, as the journal tells it."""
    last = after = 0
    while rows := await store.journal(JournalQuery(key=key, after=after)):
        last, after = rows[-1].entry.n // 2, rows[-1].position
    return last


async def write_for_ever(store: Store, key: RecordKey) -> None:
    number = await last_number(store, key)
    record = await store.load(key)
    revision = record.revision if record else None
    while True:
        number += 1
        value = value_of(key, number)
        revision = await store.save(key, value, entries_of(number), expected=revision)
        os.write(sys.stdout.fileno(), f"{key.id} {number}\n".encode())
        if value is None:
            revision = None


async def main(directory: Path) -> None:
    store = await SqliteStore.open(directory)
    await asyncio.gather(*(write_for_ever(store, key) for key in KEYS))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
