"""Host store: the records that one host follows, from disk and from the cell; a host saves nothing itself.

It starts with what is on disk, whether a server answers or not. It then follows the scopes that it is given, and
writes each change to disk before it yields it.

A record never becomes older here. If the servers have an older one, the server of the consumer does not keep up, or
the stream was restored from a backup. Then the newer one stays, until a control node gives the cell a new id.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from json import loads
from pathlib import Path
from time import monotonic
from typing import NoReturn

from forewarn.core.backoff import backoff
from forewarn.core.journal import Entry
from forewarn.settings.nats import NatsSettings
from forewarn.store.nats.command_channel import CommandSender, inbox_of
from forewarn.store.nats.connection import NatsConnection, ResponseMissing, ServerUnavailable, cancel_tasks
from forewarn.store.nats.follower import Follower, FollowStart
from forewarn.store.nats.message import FORMAT, CellSubjects, StoredMessage, check_format, encode_token
from forewarn.store.nats.record_cache import CachedState, RecordCache
from forewarn.store.nats.stream import CELL_KEY, CellStream, StreamState
from forewarn.store.port import (
    NO_GUARDS,
    Deleted,
    Extent,
    Guards,
    JournalQuery,
    JournalRow,
    Record,
    RecordKey,
    RecordKind,
    Retention,
    SaveUnknown,
    StoreClosed,
    StoreError,
    StoreRestored,
    StoreTooNew,
    StoreUnavailable,
    WatchItem,
)
from forewarn.store.watch import SnapshotPage, Watcher

log = logging.getLogger(__name__)

HOLD_KEY = RecordKey(RecordKind.FLEET, "hold")

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
"""The pauses in seconds between attempts to connect."""

SYNC_WRITE_SECONDS = 10.0
"""How often the time at which everything was known is written to disk."""


class HostStore:
    """The records of a host. Create it with `open`, and use it on the event loop that opened it."""

    def __init__(self, settings: NatsSettings, host: str, cache: RecordCache, state: CachedState) -> None:
        self._settings = settings
        self._host = host
        self._subjects = CellSubjects(settings.cell)
        self._cache = cache
        self._cell_id = state.cell_id
        self.newest_format = FORMAT
        self._records = state.records
        self._revisions = {record.key: record.revision for record in state.records}
        self.synced_at = state.synced_at
        """When the records were last known to be the newest ones, by the system's clock; None: never."""
        self._aged_from = monotonic()
        """The monotonic time since which the records have grown older than `_first_age`."""
        self._first_age = timedelta(0) if self.synced_at is None else datetime.now(UTC) - self.synced_at
        self._waiting: dict[RecordKey, Record | Deleted] = {}
        """The newest change of each record that is not on disk yet."""
        self._changed = asyncio.Event()
        self._watcher = Watcher(self._read_page)
        self._scopes: frozenset[str] = frozenset(key.id for key in self._revisions if key.kind is RecordKind.SCOPE)
        self._connection: NatsConnection | None = None
        self._sender: CommandSender | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._following: asyncio.Task[None] | None = None
        self._found: set[RecordKey] | None = None
        """The records that the current snapshot has brought so far; None when it is complete."""
        self._older: set[RecordKey] = set()
        """The records that the servers have in an older state than this host."""
        self._is_switching = False
        """Whether the scopes have changed, and the follower of the new ones has not started."""
        self._is_older = False
        """Whether it was logged that the servers have older records."""
        self._is_closed = False
        self.has_followed = asyncio.Event()
        """Set when all scopes that are to be followed were received."""
        self.on_placed: Callable[[], None] = lambda: None
        """Called when a control node says that the host has VMs of another scope."""

    @classmethod
    async def open(cls, settings: NatsSettings, host: str, directory: Path) -> "HostStore":
        """Open the records on disk, and connect to the cell as soon as a server answers."""
        cache, state = await RecordCache.open(directory)
        store = cls(settings, host, cache, state)
        store._create_task(store._connect(), "connect to NATS")
        store._create_task(store._write(), "write the records of the host")
        return store

    @property
    def cell_id(self) -> str | None:
        """The random id of the cell; None until a host has received it."""
        return self._cell_id

    @property
    def age(self) -> timedelta | None:
        """How old the records may be; None if they were never received. Steps of the system's clock do not change it.

        Only the age of what was on disk at the start is computed with that clock.
        """
        if self.synced_at is None:
            return None
        return max(timedelta(0), self._first_age) + timedelta(seconds=monotonic() - self._aged_from)

    @property
    def is_connected(self) -> bool:
        """Whether a server answers."""
        return self._connection is not None and self._connection.is_connected

    @property
    def disk_problem(self) -> str | None:
        """Why changes cannot be written to disk, and are not yielded; None if they can."""
        return self._cache.problem

    def follow(self, scopes: Iterable[str]) -> None:
        """Follow these scopes from now on, and forget all others."""
        wanted = frozenset(scopes)
        if wanted == self._scopes:
            return
        self._scopes = wanted
        self._is_switching = True
        self.has_followed.clear()
        self._follow_again()

    async def request(self, name: str, body: bytes) -> bytes:
        """Send a command to the control nodes and return the answer.

        Raises StoreUnavailable if it had no effect, and SaveUnknown if it may have had one.
        """
        if self._sender is None:
            raise StoreUnavailable("the control nodes", "no NATS server answers")
        try:
            return await self._sender.request(name, body)
        except ServerUnavailable as error:
            raise StoreUnavailable("the control nodes", str(error)) from error
        except ResponseMissing as error:
            raise SaveUnknown("the control nodes", str(error)) from error

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[WatchItem]]:
        """Yield the records on disk, SnapshotEnd, then changes. A host has one watch."""
        try:
            yield self._watcher
        finally:
            self._watcher.close()

    async def load(self, key: RecordKey) -> Record | None:
        """Refuse: a host reads only what it follows."""
        raise StoreUnavailable(str(key), "a host does not load records")

    async def save(
        self,
        key: RecordKey,
        value: bytes | None,
        entries: Sequence[Entry],
        *,
        expected: int | None,
        guards: Guards = NO_GUARDS,
    ) -> int:
        """Refuse: only control nodes save."""
        del value, entries, expected, guards
        raise StoreUnavailable(str(key), "a host does not save records")

    async def journal(self, query: JournalQuery) -> list[JournalRow]:
        """Refuse: only control nodes read the journal."""
        del query
        raise StoreUnavailable("the journal", "a host does not read it")

    async def extent(self) -> Extent:
        """Refuse: only control nodes read the journal."""
        raise StoreUnavailable("the journal", "a host does not read it")

    async def prune(self, retention: Retention, *, now: datetime) -> int:
        """Remove nothing: only control nodes prune the journal."""
        del retention, now
        return 0

    async def check(self, size: int = 0) -> None:
        """Write to the disk, without effect."""
        del size
        await self._cache.write(())

    async def aclose(self) -> None:
        """Stop following and release everything. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        await asyncio.sleep(0)  # a task that was cancelled before its first turn would warn about its coroutine
        await cancel_tasks(self._tasks)
        self._watcher.fail(StoreClosed())
        await self._cache.aclose()
        if self._connection is not None:
            await self._connection.aclose()

    async def _read_page(self, _: int) -> SnapshotPage:
        records, self._records = self._records, []
        return SnapshotPage(records, as_of=0, next=None)

    async def _connect(self) -> None:
        """Connect, however long that takes, and follow."""
        pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while self._connection is None:
            try:
                self._connection = await NatsConnection.open(self._settings, inbox=inbox_of(encode_token(self._host)))
            except StoreUnavailable as error:
                log.warning("%s; going on with what is on disk", error)
                await asyncio.sleep(next(pauses))
        self._sender = CommandSender(self._connection, self._settings.cell, self._host)
        await self._sender.on_placed(self._on_placed)
        self._follow_again()
        self.on_placed()

    def _on_placed(self) -> None:
        self.on_placed()

    def _follow_again(self) -> None:
        if self._connection is None or self._is_closed:
            return
        before, stream = self._following, CellStream(self._connection, self._settings.cell)
        keys = [CELL_KEY, HOLD_KEY, *(RecordKey(RecordKind.SCOPE, id_) for id_ in sorted(self._scopes))]
        subjects = [self._subjects.of(key) for key in keys]
        follower = Follower(stream, subjects, "follow", self, self._host)

        async def run() -> None:
            if before is not None:
                await cancel_tasks({before})
            await follower.run()

        self._following = self._create_task(run(), "follow the records of the host")

    async def on_start(self, state: StreamState) -> FollowStart:
        """Begin a snapshot of everything that is followed."""
        del state
        self._is_switching = False
        self._found = set()
        self._older.clear()
        return FollowStart(None)

    async def on_message(self, message: StoredMessage, pending: int) -> None:
        """Take a record; those of a snapshot are written and yielded together."""
        key = self._subjects.key_of(message.subject)
        if key == CELL_KEY:
            await self._check_cell(message)
        else:
            change, known = message.to_change(key, self.newest_format), self._revisions.get(key, 0)
            if self._found is not None:
                self._found.add(key)
            if change.revision < known:
                self._older.add(key)
            else:
                self._older.discard(key)
            if change.revision > known:
                self._add(change)
        if self._found is not None and not pending:
            # What the stream no longer has, or the host no longer follows.
            for missing in [known for known in self._revisions if known not in self._found]:
                self._add(Deleted(missing, self._revisions[missing] + 1))
            self._found = None
        if self._found is None:
            self._changed.set()

    async def on_idle(self) -> None:
        """Note that the records are the newest ones, unless the servers have older ones."""
        if self._older and not self._is_older:
            log.warning(
                "the NATS servers have an older state of %s; guests still get the newer one. If the stream was "
                "restored from a backup, and no control node begins new epochs by itself, run `forewarn cluster renew`",
                ", ".join(sorted(map(str, self._older))[:3]),
            )
        self._is_older = bool(self._older)
        if not self._waiting:
            self._note_synced()
            self._changed.set()

    def _add(self, change: Record | Deleted) -> None:
        self._waiting[change.key] = change
        if isinstance(change, Record):
            self._revisions[change.key] = change.revision
        else:
            self._revisions.pop(change.key, None)

    async def _write(self) -> None:
        """Write changes to disk, and yield them afterwards, without end."""
        written_at = 0.0
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._found is not None:
                continue  # the records of a snapshot are written together
            now = asyncio.get_running_loop().time()
            if not self._waiting and now - written_at < SYNC_WRITE_SECONDS:
                continue
            changes = tuple(self._waiting.values())
            await self._write_changes(changes)
            written_at = now
            for change in changes:
                if self._waiting.get(change.key) is change:
                    del self._waiting[change.key]
                self._watcher.offer(change)
            if not self._waiting and self.is_connected:
                self._note_synced()

    async def _write_changes(self, changes: Sequence[Record | Deleted]) -> None:
        """Write changes to disk. While that is not possible, guests get what was there before."""
        had_problem = self.disk_problem is not None
        for pause in backoff(FIRST_PAUSE, LONGEST_PAUSE):
            try:
                await self._cache.write(changes, cell_id=self._cell_id, synced_at=self.synced_at)
                break
            except StoreError as error:
                if not had_problem:
                    log.error("%s; guests get what is on disk until it can be written", error)  # noqa: TRY400 - the message has the reason
                had_problem = True
                await asyncio.sleep(pause)
        if had_problem:
            log.warning("the disk of the host can be written again")

    async def _drop(self, error: StoreRestored) -> NoReturn:
        """Forget everything, because it is from another stream."""
        self._waiting.clear()
        await self._cache.clear()
        raise error

    async def _check_cell(self, message: StoredMessage) -> None:
        """Refuse another cell than before, and a format that this version does not know."""
        content = loads(message.data)
        found = str(content["id"])
        check_format(f"cell {self._subjects.cell}", str(content["format"]), self.newest_format)
        if self._cell_id is not None and found != self._cell_id:
            await self._drop(StoreRestored(self._subjects.stream, f"its id is {found}, not {self._cell_id}"))
        self._cell_id = found

    def _note_synced(self) -> None:
        if self._found is None and not self._is_switching:
            if not self._older:
                self.synced_at = datetime.now(UTC)
                self._aged_from, self._first_age = monotonic(), timedelta(0)
            self.has_followed.set()

    def _create_task(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._run(work), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self, work: Coroutine[None, None, None]) -> None:
        """Run a task. An error of the store ends the watch."""
        try:
            await work
        except StoreTooNew as error:  # guests get what is known, until this host is upgraded
            log.error("%s; going on with what is on disk", error)  # noqa: TRY400 - no stack trace needed
        except StoreError as error:
            log.error("%s", error)  # noqa: TRY400 - no stack trace needed
            self._watcher.fail(error)
