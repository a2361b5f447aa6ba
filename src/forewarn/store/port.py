"""The store port: records with compare-and-swap, a watch, and the journal.

The contract suite in `tests/store/contract.py` tests every guarantee.

StoreError
├── RevisionConflict  the record is not at the expected revision
│   └── GuardConflict  a guard of the save is not at its expected revision
├── RecordTooLarge    the encoded value exceeds the limit
├── StoreInUse        another process owns the data directory
├── StoreTooNew       the data was written by a newer Forewarn
├── StoreCorrupt      the data cannot be read as a store
├── StoreFull         the disk is full; nothing was saved
├── StoreFailed       the operating system refused another operation
├── StoreUnavailable  the servers of the store do not answer, or refuse an operation; nothing was saved
├── StoreMissing      the servers of the store have no cell of this name
├── CellInUse         another process may change the store, and this one may not
├── StoreRestored     the store was restored from a backup, or created again, while this process used it
│   └── StoreReverted  it has the same id, and ends before what this process has read
├── SaveUnknown       a save ended without an answer, and may or may not have happened
└── StoreClosed       the store has been closed
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec

from forewarn.core.base_error import BaseError
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.limits import MAX_RECORD_BYTES

PRUNE_BATCH = 500
"""How many journal rows one call of `prune` removes at most; a small number, so that saves do not wait for it."""


MAX_GUARDS = 16
"""How many guards one save may have."""

MAX_NUMBER = (1 << 63) - 1
"""The highest revision and journal position: the largest integer that SQLite stores."""


class RecordKind(StrEnum):
    """The kinds of records."""

    SCOPE = "scope"
    FLEET = "fleet"
    CAMPAIGN = "campaign"
    TOKEN = "token"
    LEASE = "lease"
    HOST = "host"
    SEEN = "seen"


class RecordKey(NamedTuple):
    """The name of a record."""

    kind: RecordKind
    id: str

    def __str__(self) -> str:
        return f"{self.kind.value}/{self.id}"


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record as stored: the encoded value and its revision."""

    key: RecordKey
    value: bytes
    revision: int


class Deleted(msgspec.Struct, frozen=True):
    """A deleted record; the revision is higher than any that the record had."""

    key: RecordKey
    revision: int


class SnapshotEnd(msgspec.Struct, frozen=True):
    """All records that existed when the watch started have been yielded."""


class Reached(msgspec.Struct, frozen=True):
    """Every change up to this revision has been yielded, of all records and by all processes."""

    revision: int


WatchItem = Record | Deleted | SnapshotEnd | Reached

Guards = Mapping[RecordKey, int | None]
"""Other records that a decision depends on, each with the revision at which it must still be; None: the record must
not exist."""

NO_GUARDS: Guards = MappingProxyType({})


class JournalRow(msgspec.Struct, frozen=True):
    """An entry, the key of its record, and its store-wide position."""

    position: int
    key: RecordKey
    entry: Entry


class JournalQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows to return, in order of position: those that match every given field.

    `event` is compared exactly. `vm` needs `key`, and matches rows that name this VM, in any case, and rows of that
    record that name no VM, because they apply to all. An empty `kinds` matches every kind. `request` matches rows with
    that idempotency key in their facts.
    `since` is inclusive, `until` exclusive. `after` and `before` are positions and exclusive: pass the position of a
    page's last row as `after` to get the next page, or as `before` if the newest rows come first.
    """

    key: RecordKey | None = None
    event: str | None = None
    vm: str | None = None
    kinds: tuple[EntryKind, ...] = ()
    by: str | None = None
    request: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    after: int = 0
    before: int | None = None
    newest_first: bool = False
    limit: int = 1_000

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= 10_000:
            raise ValueError(f"limit must be 1 to 10000, got {self.limit}")
        if self.vm is not None and self.key is None:
            raise ValueError(f"VM {self.vm} needs the key of its record: VM names are unique only within a record")
        for moment in (self.since, self.until):
            if moment is not None and moment.utcoffset() is None:
                raise ValueError(f"since and until need a time zone, got {moment.isoformat()}")
        for position in (self.after, self.before or 0):
            if not 0 <= position <= MAX_NUMBER:
                raise ValueError(f"invalid journal position {position}: it must be 0 to {MAX_NUMBER}")


class Extent(NamedTuple):
    """The range of the journal. It has every row after `pruned`; rows up to `pruned` may have been removed."""

    pruned: int
    """The highest position that was ever removed; 0 if none was."""
    last: int
    """The highest position that was ever assigned; 0 if none was."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the journal is kept; None means no limit."""

    age: timedelta | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        if self.age is not None and self.age < timedelta(0):
            raise ValueError(f"age must not be negative, got {self.age}")
        if self.rows is not None and self.rows < 0:
            raise ValueError(f"rows must not be negative, got {self.rows}")


class StoreError(BaseError):
    """A store operation failed."""


class RevisionConflict(StoreError):
    """The record is not at the revision that the caller expected; nothing was saved."""

    template = "{key} {actual_text}, expected that it {expected_text}: load it and decide again"
    key: RecordKey
    expected: int | None
    actual: int | None

    @property
    def actual_text(self) -> str:
        """The actual revision of the record, as a text."""
        return _revision_text(self.actual)

    @property
    def expected_text(self) -> str:
        """The expected revision of the record, as a text."""
        return _revision_text(self.expected)


class GuardConflict(RevisionConflict):
    """A guard of the save is not at its expected revision; nothing was saved."""


class RecordTooLarge(StoreError):
    """The encoded value exceeds the limit of every store."""

    template = "{key} would have {size} bytes, but at most {limit} are allowed: split it into smaller records"
    key: RecordKey
    size: int
    limit: int = MAX_RECORD_BYTES


class StoreInUse(StoreError):
    """Another process owns the data directory."""

    template = "{directory} is in use by {owner}: stop it, or choose another data directory"
    directory: Path
    pid: int | None

    @property
    def owner(self) -> str:
        """The process that owns the directory."""
        return "another process" if self.pid is None else f"process {self.pid}"


class StoreTooNew(StoreError):
    """The data was written by a newer Forewarn than this one."""

    template = (
        "{path} has schema version {version}, but this Forewarn reads up to {supported}: "
        "install the newer Forewarn again, or choose another data directory; nothing was changed"
    )
    path: Path | str
    version: int
    supported: int


class StoreCorrupt(StoreError):
    """The data cannot be read as a store."""

    template = "{path} is damaged ({reason}): move it away and restore a backup; nothing was changed"
    path: Path | str
    reason: str


class StoreFull(StoreError):
    """The disk is full; nothing was saved."""

    template = "no space left for {path}: free some on its disk, then try again; nothing was saved"
    path: Path


class StoreFailed(StoreError):
    """The operating system refused an operation that the store needs."""

    template = "cannot use {path} ({reason}): check its disk, owner and permissions, then try again"
    path: Path
    reason: str


class StoreUnavailable(StoreError):
    """The servers of the store do not answer, or refuse an operation that the store needs."""

    template = "cannot use {stream} ({reason}): check the NATS servers, then try again; nothing was saved"
    stream: str
    reason: str


class StoreMissing(StoreError):
    """The servers of the store have no cell of this name."""

    template = (
        "the NATS servers {servers} have no cell {cell}: create it with `forewarn cluster init`, but if it existed "
        "before, restore it instead, without `init` first"
    )
    servers: tuple[str, ...]
    cell: str


class CellInUse(StoreError):
    """Another process may change the store, and this one may not."""

    template = "cell {cell} is in use by {owner}: stop it first; one service at a time can change a cell"
    cell: str
    owner: str


class StoreRestored(StoreError):
    """The store was restored from a backup, or created again, while this process used it."""

    template = "{stream} is not the one that this process has read ({reason}): start the service again"
    stream: str
    reason: str


class StoreReverted(StoreRestored):
    """The store has the same id, and is in an older state than the one that this process has read.

    At its next start, the process begins new epochs: guests may have seen documents that the store does not know.
    """


class SaveUnknown(StoreError):
    """A save ended without an answer. It may or may not have happened."""

    template = "it is not known whether the change was saved to {path} ({reason}): repeat it"
    path: Path | str
    reason: str


class StoreClosed(StoreError):
    """The store has been closed."""

    template = "the store has been closed: open it again"


def _revision_text(revision: int | None) -> str:
    return "does not exist" if revision is None else f"is at revision {revision}"


class Lease(Protocol):
    """A right that one process has at a time, in a store that several share. It tells only who lives.

    A process that was suspended may rely on it for a moment too long, so everything that is saved under a lease is
    guarded by the record with its term.
    """

    @property
    def name(self) -> str:
        """The name of the lease."""
        ...

    @property
    def holder(self) -> str:
        """The name of this process, for people."""
        ...

    @property
    def process(self) -> str:
        """The random id of this process."""
        ...

    @property
    def lost(self) -> asyncio.Event:
        """Set while this process does not hold the lease."""
        ...

    @property
    def is_valid(self) -> bool:
        """Whether this process can rely on the lease now."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether another process takes over when this one releases the lease."""
        ...

    async def claim(self) -> None:
        """Wait until this process holds the lease, and renew it from then on; no effect if it holds it."""
        ...

    async def release(self) -> None:
        """Let another process take over at once."""
        ...


class Store(Protocol):
    """Records by key with compare-and-swap, and the journal that is saved with them."""

    @property
    def cell_id(self) -> str | None:
        """The random id of the content, if several processes share it; None if this one is alone."""
        ...

    async def load(self, key: RecordKey) -> Record | None:
        """Return the newest saved value, or None if the record does not exist."""
        ...

    async def save(
        self,
        key: RecordKey,
        value: bytes | None,
        entries: Sequence[Entry],
        *,
        expected: int | None,
        guards: Guards = NO_GUARDS,
    ) -> int:
        """Save value and entries in one step and return the new revision, once both are durable.

        `value` None deletes the record; `expected` None means that it must not exist. Revisions are opaque, increase
        over all records and are never reused, even after deletion. Raises RevisionConflict if the record is not at
        `expected`, and GuardConflict, which names the guard, if a guard is not at its revision; then nothing was saved.
        Guards are compared in the same transaction in which the record is saved, and are not changed. If several
        revisions have changed, the error names any one of them. A cancelled save may or may not have happened, and so
        may one that raises SaveUnknown: if it has, the watch yields it later. After any other error nothing was saved,
        and no crash changes that. Raises the errors of `check_save` before anything else is checked.
        """
        ...

    def watch(self) -> AbstractAsyncContextManager[AsyncIterator[WatchItem]]:
        """Yield the newest value of each key, SnapshotEnd, then changes, and how far they have reached.

        Superseded changes may be skipped, but the newest always arrives; deletions arrive with their revision; there is
        no order between keys, except by Reached. A watcher that does not read has at most one pending change per key.
        An older revision of a key never follows a newer one, and only durable changes are yielded. Waiting for the
        next item may be cancelled without losing an item. When the store closes, pending items are still yielded, then
        StoreClosed is raised.
        """
        ...

    async def journal(self, query: JournalQuery) -> list[JournalRow]:
        """Return journal rows in order of position, or the newest first, at most `query.limit`.

        Positions increase with every saved row, in the order of saving, and are never reused. They need not count by
        one: only `extent` shows whether rows were removed. Once a row can be read, no row with a lower position will
        appear later.
        """
        ...

    async def extent(self) -> Extent:
        """Return the extent of the journal."""
        ...

    async def prune(self, retention: Retention, *, now: datetime) -> int:
        """Remove one small batch of journal rows beyond the retention; return how many. 0 means that none is left."""
        ...

    async def check(self, size: int = 0) -> None:
        """Make a durable test write without effect; raise the error that a save of this size would raise."""
        ...

    async def aclose(self) -> None:
        """Finish accepted saves and release everything. A second call does nothing."""
        ...


def check_save(
    key: RecordKey,
    value: bytes | None,
    entries: Sequence[Entry],
    *,
    expected: int | None,
    guards: Guards = NO_GUARDS,
) -> None:
    """Refuse a save that no store may accept; every store calls this before it saves."""
    if value is None and expected is None:
        raise ValueError(f"{key} cannot be deleted without `expected`: pass the revision to delete")
    if key in guards:
        raise ValueError(f"{key} cannot guard its own save: pass its revision as `expected`")
    if len(guards) > MAX_GUARDS:
        raise ValueError(f"a save of {key} names {len(guards)} guards; at most {MAX_GUARDS} are allowed")
    _check_revision(key, expected)
    for guard, revision in guards.items():
        _check_revision(guard, revision)
    if value is not None and len(value) > MAX_RECORD_BYTES:
        raise RecordTooLarge(key, len(value))
    for entry in entries:
        if entry.at.utcoffset() is None:
            raise ValueError(f"entry {entry.n} of {key} needs a time with a time zone, got {entry.at.isoformat()}")


def _check_revision(key: RecordKey, revision: int | None) -> None:
    if revision is not None and not 0 <= revision <= MAX_NUMBER:
        raise ValueError(f"invalid revision {revision} of {key}: it must be 0 to {MAX_NUMBER}")
    try:
        key.id.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the id of {key!r} is not valid Unicode") from error
