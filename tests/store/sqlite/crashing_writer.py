"""A program for the crash test: writes until it is killed, and prints what has been acknowledged.

Each save of a key has the next number of that key. It brings one value, or at every seventh number a deletion, and two
journal entries, from which anyone can tell which number was the last to be saved as a whole. Half of the keys are
guarded by the first one: their entries tell at which of its numbers. A key whose save has an unknown outcome is left
alone from then on. The program ends with an error if the store goes on refusing a save.
"""

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from forewarn.core.journal import Entry, EntryKind
from forewarn.store.port import GuardConflict, JournalQuery, RecordKey, RecordKind, SaveUnknown, Store, StoreFailed
from forewarn.store.sqlite.store import SqliteStore

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
KEYS = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(6)]
GUARD, GUARDED = KEYS[0], KEYS[3:]

MAX_REFUSALS = 5_000
"""How often in a row a save may be refused: a disk that fails at every tenth call can refuse hundreds."""


def value_of(key: RecordKey, number: int) -> bytes | None:
    """Return what a key has after its save with this number."""
    return None if number % 7 == 0 else f"{key} {number} ".encode() + bytes(number * 977 % 9_000)


def entries_of(number: int, guard: int = 0) -> list[Entry]:
    """Return the entries that the save with this number brings; `guard` is the number of the guard it rests on."""
    at, why = NOON + timedelta(seconds=number), str(guard) if guard else ""
    return [Entry(n=n, at=at, kind=EntryKind.SCHEDULED, by="operator", why=why) for n in (2 * number - 1, 2 * number)]


async def last_number(store: Store, key: RecordKey) -> int:
    """Return the number of the last save of a key, as the journal tells it."""
    last = after = 0
    while rows := await store.journal(JournalQuery(key=key, after=after)):
        last, after = rows[-1].entry.n // 2, rows[-1].position
    return last


class _Newest(NamedTuple):
    """The number of a key's last save, and the revision it gave."""

    number: int
    revision: int | None


async def write_for_ever(store: Store, key: RecordKey, newest: dict[RecordKey, _Newest]) -> None:
    refusals = 0
    while True:
        number, revision = newest[key].number + 1, newest[key].revision
        value = value_of(key, number)
        guard = newest[GUARD] if key in GUARDED else None
        try:
            revision = await store.save(
                key,
                value,
                entries_of(number, guard.number if guard else 0),
                expected=revision,
                guards={GUARD: guard.revision} if guard else {},
            )
        except GuardConflict:
            continue
        except SaveUnknown:
            return
        except StoreFailed:  # nothing was saved, so the same number can be saved again
            refusals += 1
            if refusals > MAX_REFUSALS:
                raise
            continue
        refusals = 0
        os.write(sys.stdout.fileno(), f"{key.id} {number}\n".encode())
        newest[key] = _Newest(number, None if value is None else revision)


async def main(directory: Path) -> None:
    store = await SqliteStore.open(directory)
    newest: dict[RecordKey, _Newest] = {}
    for key in KEYS:
        record = await store.load(key)
        newest[key] = _Newest(await last_number(store, key), record.revision if record else None)
    await asyncio.gather(*(write_for_ever(store, key, newest) for key in KEYS))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
