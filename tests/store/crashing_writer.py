"""A program for the crash test: writes until it is killed, and prints what has been acknowledged.

Each save of a key has the next number of that key. It brings one value, or at every seventh number a deletion, and two
journal entries, from which anyone can tell which number was the last to be saved as a whole.
"""

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path

from forewarn.core.journal import Entry
from forewarn.store.port import JournalQuery, Key, Kind, Store
from forewarn.store.sqlite import SqliteStore
from forewarn.testing.store_contract import NOON, entry, whole_journal

KEYS = [Key(Kind.SCOPE, f"scope-{n}") for n in range(6)]


def value_of(key: Key, number: int) -> bytes | None:
    """Return what a key has after its save with this number."""
    return None if number % 7 == 0 else f"{key} {number} ".encode() + bytes(number * 977 % 9_000)


def entries_of(number: int) -> list[Entry]:
    """Return the entries that the save with this number brings."""
    return [entry(n, at=NOON + timedelta(seconds=number)) for n in (2 * number - 1, 2 * number)]


async def last_number(store: Store, key: Key) -> int:
    """Return the number of the last save of a key, as the journal tells it."""
    return len(await whole_journal(store, JournalQuery(key=key))) // 2


async def write_for_ever(store: Store, key: Key) -> None:
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
