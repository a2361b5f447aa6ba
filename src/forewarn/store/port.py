"""The store port: records with compare-and-swap, a watch, and the journal.

The contract suite in `tests/store/contract.py` tests every guarantee.

StoreError
├── RevisionConflict  the record is not at the expected revision
│   └── GuardConflict  another record, on which the save rests, is not
├── RecordTooLarge    the encoded value exceeds the limit
├── StoreInUse        another process owns the data directory
├── StoreTooNew       the data was written by a newer Forewarn
├── StoreCorrupt      the data cannot be read as a store
├── StoreFull         the disk is full; nothing was saved
├── StoreFailed       the operating system refused another operation
└── StoreClosed       the store has been closed
"""

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
"""How many journal rows one call of `prune` removes at most: so few that nobody waits for it."""


MAX_GUARDS = 16
"""How many other records one save may rest on."""


class RecordKind(StrEnum):
    """The kinds of records."""

    SCOPE = "scope"
    FLEET = "fleet"
    CAMPAIGN = "campaign"
    TOKEN = "token"
    LEASE = "lease"


class RecordKey(NamedTuple):
    """The name of a record."""

    kind: RecordKind
    id: str

    def __str__(self) -> str:
        return f"{self.kind.value}/{self.id}"


class Record(msgspec.Struct, frozen=True):
    """A record as it is kept: the encoded value and the revision it has."""

    key: RecordKey
    value: bytes
    revision: int


class Deleted(msgspec.Struct, frozen=True):
    """A record is gone; its revision is higher than any it had."""

    key: RecordKey
    revision: int


class SnapshotEnd(msgspec.Struct, frozen=True):
    """Everything that existed when the watch began has been given."""


WatchItem = Record | Deleted | SnapshotEnd

Guards = Mapping[RecordKey, int | None]
"""The records that a save rests on besides its own, each at the revision at which it must still be; None: the record
must not exist."""

NO_GUARDS: Guards = MappingProxyType({})


class JournalRow(msgspec.Struct, frozen=True):
    """An entry, where it belongs, and its store-wide position."""

    position: int
    key: RecordKey
    entry: Entry


class JournalQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows to give, in order of position: those that every given field allows.

    `event` is compared as it is written. `vm` needs `key`, and means what concerns this VM: rows that name it, in any
    case, and rows of that record which name no VM, because they hold for all. An empty `kinds` allows every kind.
    `request` is the key of the request of which a row says that it was its work.
    `since` is included, `until` is not; neither are `after` and `before`, which are positions: the last row of one
    page is where the next one goes on, with `after`, or with `before` where the newest come first.
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
            raise ValueError(f"limit must be 1 to 10000, not {self.limit}")
        if self.vm is not None and self.key is None:
            raise ValueError(f"VM {self.vm} needs the key of its record: names are unique within one only")
        for moment in (self.since, self.until):
            if moment is not None and moment.utcoffset() is None:
                raise ValueError(f"a time range needs times with a time zone, not {moment.isoformat()}")
        for position in (self.after, self.before or 0):
            if not 0 <= position < 1 << 63:
                raise ValueError(f"{position} cannot be a position")


class Extent(NamedTuple):
    """How far the journal reaches. Every row after `pruned` is there; what is not after it may be gone."""

    pruned: int
    """The highest position that was ever removed; 0 where none was."""
    last: int
    """The highest position that was ever given; 0 where none was."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the journal is kept; None means no bound."""

    age: timedelta | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        if self.age is not None and self.age < timedelta(0):
            raise ValueError(f"age must not be negative, not {self.age}")
        if self.rows is not None and self.rows < 0:
            raise ValueError(f"rows must not be negative, not {self.rows}")


class StoreError(BaseError):
    """A store could not do what was asked."""


class RevisionConflict(StoreError):
    """The record is not at the revision that the caller expected; nothing was saved."""

    template = "{key} {actual_text}, expected that it {expected_text}: load it and decide again"
    key: RecordKey
    expected: int | None
    actual: int | None

    @property
    def actual_text(self) -> str:
        """At which revision the record is."""
        return _revision_text(self.actual)

    @property
    def expected_text(self) -> str:
        """At which revision the caller expected the record to be."""
        return _revision_text(self.expected)


class GuardConflict(RevisionConflict):
    """A record that a save names as its guard is not at the expected revision; nothing was saved."""


class RecordTooLarge(StoreError):
    """The encoded value is over the limit of every store."""

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
    path: Path
    version: int
    supported: int


class StoreCorrupt(StoreError):
    """The data cannot be read as a store."""

    template = "{path} is damaged ({reason}): move it away and restore a backup; nothing was changed"
    path: Path
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


class StoreClosed(StoreError):
    """The store has been closed."""

    template = "the store has been closed: open it again"


def _revision_text(revision: int | None) -> str:
    return "does not exist" if revision is None else f"is at revision {revision}"


class Store(Protocol):
    """Records by key with compare-and-swap, and the journal that is saved with them."""

    async def load(self, key: RecordKey) -> Record | None:
        """Return the newest saved value, or None where there is no such record."""
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

        `value` None deletes the record; `expected` None means that it must not exist. Revisions are opaque,
        grow per key and are never reused, not even after deletion. Raises RevisionConflict where the record is not at
        `expected`, and GuardConflict, which names the guard, where one of `guards` is not at its revision: then
        nothing was saved. Guards are compared in the same step in which the record is saved, and are not changed.
        If several revisions have changed, any one of them is named. A cancelled save may or may not have happened.
        Raises what `check_save` raises, before anything else is looked at.
        """
        ...

    def watch(self) -> AbstractAsyncContextManager[AsyncIterator[WatchItem]]:
        """Give the newest value of each key, SnapshotEnd, then changes.

        Superseded changes may be skipped, the newest always arrives; deletions arrive with their revision;
        there is no order between keys. A watcher that does not read costs at most one pending change per key.
        An older revision of a key is never given after a newer one, and nothing is given before it is durable.
        Waiting for the next item may be cancelled without losing one. When the store closes, what is pending
        is still given, then StoreClosed is raised.
        """
        ...

    async def journal(self, query: JournalQuery) -> list[JournalRow]:
        """Return journal rows in order of position, or the newest first, at most `query.limit`.

        Positions count up by one with every row that is saved, in the order of saving, and are never reused.
        Where all rows up to a position can be read, none of them will appear later.
        """
        ...

    async def extent(self) -> Extent:
        """Return how far the journal reaches."""
        ...

    async def prune(self, retention: Retention, *, now: datetime) -> int:
        """Remove one small batch of journal rows beyond the retention; return how many. Zero: nothing is left to do."""
        ...

    async def check(self) -> None:
        """Write something that changes nothing, durably; raise what a save would raise where that is not possible."""
        ...

    async def aclose(self) -> None:
        """Finish what was accepted and release everything. A second call does nothing."""
        ...


def check_save(
    key: RecordKey,
    value: bytes | None,
    entries: Sequence[Entry],
    *,
    expected: int | None,
    guards: Guards = NO_GUARDS,
) -> None:
    """Refuse what no store may keep: every store asks this before it saves."""
    if value is None and expected is None:
        raise ValueError(f"{key} cannot be deleted: a deletion must say which revision it deletes")
    if key in guards:
        raise ValueError(f"{key} cannot guard its own save: name its revision as `expected`")
    if len(guards) > MAX_GUARDS:
        raise ValueError(f"a save of {key} names {len(guards)} guards; at most {MAX_GUARDS} are allowed")
    _check_revision(key, expected)
    for guard, revision in guards.items():
        _check_revision(guard, revision)
    if value is not None and len(value) > MAX_RECORD_BYTES:
        raise RecordTooLarge(key, len(value))
    for entry in entries:
        if entry.at.utcoffset() is None:
            raise ValueError(f"entry {entry.n} of {key} needs a time with a time zone, not {entry.at.isoformat()}")


def _check_revision(key: RecordKey, revision: int | None) -> None:
    if revision is not None and not 0 <= revision < 1 << 63:
        raise ValueError(f"{revision} cannot be a revision of {key}")
    try:
        key.id.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{key!r} has an id that is not text") from error
