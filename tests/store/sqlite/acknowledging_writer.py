"""A program to be traced: saves, and writes an acknowledgement to its standard output after each save.

Arguments: directory, how many saves, `one-by-one` or `at-once`, and the value of SQLite's `synchronous` setting.
"""

import asyncio
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from forewarn.core.journal import Entry, EntryKind
from forewarn.store.port import RecordKey, RecordKind, Store
from forewarn.store.sqlite import database
from forewarn.store.sqlite.store import SqliteStore

ENTRY = Entry(n=1, at=datetime(2026, 3, 1, 12, 0, tzinfo=UTC), kind=EntryKind.SCHEDULED, by="operator")


def value_of(number: int) -> str:
    """Return a value that can be recognised in the log."""
    return f"<save {number}>"


def acknowledgement_of(number: int) -> str:
    """Return the line that acknowledges a save."""
    return f"<acknowledged {number}>"


async def save(store: Store, number: int) -> None:
    key = RecordKey(RecordKind.SCOPE, f"scope-{number}")
    await store.save(key, value_of(number).encode(), [ENTRY], expected=None)
    os.write(sys.stdout.fileno(), f"{acknowledgement_of(number)}\n".encode())


async def main(directory: Path, count: int, order: str, synchronous: str) -> None:
    database.PRAGMAS["synchronous"] = synchronous
    store = await SqliteStore.open(directory)
    if order == "at-once":
        await asyncio.gather(*(save(store, number) for number in range(count)))
    else:
        for number in range(count):
            await save(store, number)
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]))
