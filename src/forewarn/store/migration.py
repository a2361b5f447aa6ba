"""Migration of a store's content into another store: what both sides must do, and the comparison of their content.

Values and journal entries are copied as they are, so ids, incarnations, epochs and the order of the journal stay. The
target has the record `MIGRATION` until everything is copied and compared: no service starts on it meanwhile, and an
interrupted migration continues from there.
"""

import hashlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from forewarn.store.port import Extent, JournalRow, Record, RecordKey, RecordKind, StoreError

MIGRATION = RecordKey(RecordKind.FLEET, "migration")
"""The record with the progress of an unfinished migration."""

POLICY = RecordKey(RecordKind.FLEET, "policy")
"""The policy that all processes of a cell apply. A fleet in a data directory takes it from its settings."""

PAGE_ITEMS, PAGE_BYTES = 500, 1 << 20
"""How much one page has at most; a single large record may exceed the bytes."""

JOURNAL = "journal"
_MODULUS = 1 << 256


class MigrationUnfinished(StoreError):
    """The store has the content of another one only in part."""

    template = "{store} has only a part of {source}: repeat `forewarn migrate`, which continues where it was stopped"
    store: str
    source: str


class SourceChanged(StoreError):
    """The source has changed since the migration began."""

    template = (
        "{source} has changed since the migration began, so {target} has parts of both states: stop everything that "
        "uses {source}, then use --restart"
    )
    source: str
    target: str


class TargetUsed(StoreError):
    """The target has content that no migration has written."""

    template = "{target} is not empty ({reason}), and nothing in it is replaced: choose another target"
    target: str
    reason: str


class ContentDiffers(StoreError):
    """The copy is not what the source contains."""

    template = "{target} differs from {source} in {kinds}: use --restart; the source is unchanged"
    source: str
    target: str
    kinds: str


class MigrationCursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a source was read; only the source itself can interpret the numbers."""

    journal: int = 0
    records: int = 0


class MigrationState(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the record `MIGRATION`."""

    source: str
    source_state: str
    """A text that differs once the source has changed."""
    cursor: MigrationCursor = MigrationCursor()
    change: str = ""
    """A random id of the last step."""


encode_state = msgspec.json.Encoder().encode
decode_state = msgspec.json.Decoder(MigrationState).decode


class MigrationPage(NamedTuple):
    """A part of a store's content, and where the next part begins."""

    rows: Sequence[JournalRow]
    records: Sequence[Record]
    cursor: MigrationCursor


class MigrationSource(Protocol):
    """A store that no process changes meanwhile, and that is not changed here."""

    name: str

    async def read_state(self) -> str:
        """Return a text that differs once the content has changed."""
        ...

    async def extent(self) -> Extent:
        """Return the extent of the journal."""
        ...

    async def size(self) -> int:
        """Return how many records and journal rows there are, roughly."""
        ...

    def pages(self, after: MigrationCursor) -> AsyncGenerator[MigrationPage, None]:
        """Yield the journal in its order, and every record, from a cursor on."""
        ...


class MigrationTarget(Protocol):
    """A store that only this migration changes."""

    name: str

    async def begin(self, state: MigrationState, extent: Extent) -> MigrationState:
        """Create the store for a journal of this extent; return the state, or that of an unfinished migration.

        Raises TargetUsed if the store has other content.
        """
        ...

    async def write(self, page: MigrationPage) -> None:
        """Save a page and its cursor, exactly once even if the process is killed and the page is repeated."""
        ...

    async def clear(self) -> None:
        """Remove everything that an unfinished migration has written; raise TargetUsed if there is anything else."""
        ...

    def pages(self) -> AsyncGenerator[MigrationPage, None]:
        """Yield everything that was written."""
        ...

    async def finish(self) -> None:
        """Remove the record `MIGRATION`, so that services accept the store."""
        ...


class KindSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How many records of a kind there are, or rows of the journal, and their checksum."""

    kind: str
    count: int
    checksum: str


class ContentSummary:
    """Counts and checksums of a store's content. That of the journal depends on the order of its rows."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._sums: dict[str, int] = {}
        self._journal = hashlib.sha256()

    def add(self, page: MigrationPage) -> None:
        """Take a page into account."""
        for row in page.rows:
            self._counts[JOURNAL] = self._counts.get(JOURNAL, 0) + 1
            self._journal.update(_digest(str(row.key).encode(), msgspec.json.encode(row.entry)))
        for record in page.records:
            kind = record.key.kind.value
            self._counts[kind] = self._counts.get(kind, 0) + 1
            value = int.from_bytes(_digest(record.key.id.encode(), record.value))
            # Stores return records in different orders, so their digests are added.
            self._sums[kind] = (self._sums.get(kind, 0) + value) % _MODULUS

    def kinds(self) -> tuple[KindSummary, ...]:
        """Return one summary for each kind that occurs."""
        checksums: Mapping[str, str] = {kind: f"{value:064x}" for kind, value in self._sums.items()} | {
            JOURNAL: self._journal.hexdigest()
        }
        return tuple(
            KindSummary(kind=kind, count=count, checksum=checksums[kind])
            for kind, count in sorted(self._counts.items())
        )


def is_migrated(key: RecordKey) -> bool:
    """Return whether a record belongs to the fleet, and not to the store that it is in."""
    return key.kind is not RecordKind.LEASE and key not in (MIGRATION, POLICY)


def _digest(*parts: bytes) -> bytes:
    """Return a digest of texts, of each with its length."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8) + part)
    return digest.digest()
