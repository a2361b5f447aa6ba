"""The stored data of commit 450409b, decoded and encoded by the functions that the service and the agent use."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from forewarn.agent.handlers.saved_state import SavedState
from forewarn.agent.workflow.store import decode_workflow, encode_workflow
from forewarn.api.local_service import LocalService
from forewarn.core.campaign import record
from forewarn.fleet import fleet_state, hold_record, scopes, tokens
from forewarn.process import ProcessNote
from forewarn.store.port import JournalQuery
from forewarn.store.sqlite.schema import migrate
from forewarn.store.sqlite.store import SqliteStore
from forewarn.store.sqlite.writer import encode_entries
from tests.stored.rendering import rendered

STORED = Path(__file__).parent / "450409b"
EXPECTED = STORED / "expected"

CODECS: dict[str, tuple[Callable[[bytes], Any], Callable[[Any], bytes]]] = {
    "scope": (scopes._decode, scopes.encode),
    "fleet/ledger": (fleet_state.decode, fleet_state.encode),
    "fleet/hold": (hold_record.decode, hold_record.encode),
    "campaign": (record.decode, record.encode),
    "token": (tokens._decode, tokens._encode),
}


class Stored(NamedTuple):
    """A stored value: its name, its bytes, and how it is decoded and encoded."""

    name: str
    content: bytes
    value: Any
    encoded: bytes

    def rendered(self) -> Any:
        """Render what was decoded; a workflow is not stored itself, only its parts."""
        return rendered(self.value, named=not self.name.startswith("agents/") or "/handlers/" in self.name)


def copy(directory: Path, data: Path = STORED / "data") -> Path:
    """Copy a data directory for a test, private as the service makes it."""
    target = directory / "data"
    shutil.copytree(data, target)
    for path in (target, *target.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return target


def read_all(stored: Path) -> Iterator[Stored]:
    """Give every stored value but the journal: records as the store has them once it has opened the data."""
    with (
        closing(sqlite3.connect(f"file:{stored / 'data/forewarn.db'}?mode=ro&immutable=1", uri=True)) as database,
        closing(sqlite3.connect(":memory:", isolation_level=None)) as opened,
    ):
        database.backup(opened)
        migrate(opened)
        rows = opened.execute("SELECT kind, id, value FROM records ORDER BY kind, id").fetchall()
    for kind, id_, content in rows:
        decode, encode = CODECS.get(f"{kind}/{id_}") or CODECS[kind]
        yield Stored(f"{kind}/{id_}", content, value := decode(content), encode(value))
    for path in sorted(stored.rglob("*.note")):
        yield _struct(stored, path, ProcessNote)
    for path in sorted(stored.glob("agents/*/state/handlers/*.json")):
        yield _struct(stored, path, SavedState)
    for path in sorted(stored.glob("agents/*/state/journal/*.json")):
        workflow = decode_workflow(path.read_bytes())
        yield Stored(str(path.relative_to(stored)), path.read_bytes(), workflow, encode_workflow(workflow))
    content = (stored / "service.json").read_bytes()
    running = msgspec.json.decode(content, type=LocalService)
    encoded = msgspec.json.format(msgspec.json.encode(running)) + b"\n"
    yield Stored("service.json", content, running, encoded)


def _struct(stored: Path, path: Path, type_: type[msgspec.Struct]) -> Stored:
    value = msgspec.json.decode(path.read_bytes(), type=type_)
    return Stored(str(path.relative_to(stored)), path.read_bytes(), value, msgspec.json.encode(value))


async def read_journal(data: Path) -> list[Any]:
    """Return the journal as the store reads it, rendered."""
    store = await SqliteStore.open(data)
    try:
        rows = await store.journal(JournalQuery(limit=10_000))
    finally:
        await store.aclose()
    return [
        {"position": row.position, "key": [row.key.kind.value, row.key.id], "entry": rendered(row.entry)}
        for row in rows
    ]


async def written_journal(data: Path) -> list[tuple[Any, ...]]:
    """Return the journal as the store would write it again."""
    store = await SqliteStore.open(data)
    try:
        rows = await store.journal(JournalQuery(limit=10_000))
    finally:
        await store.aclose()
    return [tuple(encode_entries([row.entry])[0]) for row in rows]
