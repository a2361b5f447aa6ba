"""Read from the journal of a stopped service when its events started."""

from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import uvloop

from forewarn.core.journal import EntryKind
from forewarn.store.port import JournalQuery
from forewarn.store.sqlite.store import SqliteStore


class Start(NamedTuple):
    """An event that started at its NotBefore, and how many seconds late the start was decided."""

    at: datetime
    late: float


def starts(data: Path) -> list[Start]:
    """Read the starts of all events that were due."""
    return uvloop.run(_starts(data))


async def _starts(data: Path) -> list[Start]:
    store = await SqliteStore.open(data)
    try:
        found: list[Start] = []
        position = 0
        while rows := await store.journal(JournalQuery(after=position, limit=1_000)):
            entries = (row.entry for row in rows)
            found += [
                Start(entry.at, read_late(entry.facts["late"])) for entry in entries if entry.kind is EntryKind.STARTED
            ]
            position = rows[-1].position
        return found
    finally:
        await store.aclose()


def read_late(fact: str) -> float:
    """Read the journal's `late`: seconds with an s."""
    return float(fact.removesuffix("s"))
