"""NATS store: records and journal in the stream of a cell, which several processes may share."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

from forewarn.core.journal import Entry
from forewarn.files import prepare_directory
from forewarn.settings.nats import NatsSettings
from forewarn.store.nats.command_channel import CommandHandler, CommandServer
from forewarn.store.nats.connection import NatsConnection, NatsError, cancel_tasks
from forewarn.store.nats.follower import Follower
from forewarn.store.nats.journal_index import JournalIndex, index_names, note_reverted, read_reverted
from forewarn.store.nats.lease import CLAIM_SECONDS, CLOCK, NatsLease
from forewarn.store.nats.member import Announcer, MemberRole, Observations
from forewarn.store.nats.message import StoredMessage
from forewarn.store.nats.save_queue import Saved, SaveQueue
from forewarn.store.nats.stream import CELL_KEY, CellStream, check_version
from forewarn.store.nats.watch import RecordWatch
from forewarn.store.port import (
    NO_GUARDS,
    Extent,
    Guards,
    JournalQuery,
    JournalRow,
    Record,
    RecordKey,
    Retention,
    StoreClosed,
    StoreError,
    StoreFailed,
    StoreRestored,
    StoreReverted,
    WatchItem,
    check_save,
)

log = logging.getLogger(__name__)
T = TypeVar("T")


class NatsStore:
    """Records and journal in NATS. Create it with `open`, and use it on the event loop that opened it."""

    def __init__(self, stream: CellStream, index: JournalIndex, cell_id: str, directory: Path) -> None:
        self._stream = stream
        self._directory = directory
        self.reverted: str | None = None
        """Why new epochs must begin before anything else: the stream is older than what was read of it."""
        self._index = index
        self._cell_id = cell_id
        self._watches: set[RecordWatch] = set()
        self._leases: list[NatsLease] = []
        self._announcers: list[Announcer] = []
        self._owner: NatsLease | None = None
        """The lease without which nothing may be saved."""
        self._queue = SaveQueue(stream, is_allowed=self._may_save, on_saved=self._on_saved)
        self._error: StoreError | None = None
        self._closing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        subjects = stream.subjects
        self._create_task(
            Follower(stream, (subjects.journal, subjects.pruned), "index", index).run(), "follow the journal"
        )
        self._create_task(index.write(), "write the journal index")

    @classmethod
    async def open(cls, settings: NatsSettings, directory: Path) -> "NatsStore":
        """Connect to a cell that exists; the directory contains the index of the journal."""
        connection = await NatsConnection.open(settings)
        stream = CellStream(connection, settings.cell)
        try:
            check_version(connection.version)
            state = await _read(stream, stream.read_state())
            try:
                if warning := await asyncio.to_thread(prepare_directory, directory, index_names(directory)):
                    log.warning("%s", warning)
            except OSError as error:
                raise StoreFailed(directory, error.strerror or str(error)) from error
            index = await _read(stream, JournalIndex.open(stream, directory, state))
            reverted = await asyncio.to_thread(read_reverted, directory, state.cell_id)
        except BaseException:
            await connection.aclose()
            raise
        store = cls(stream, index, state.cell_id, directory)
        store.reverted = reverted
        return store

    async def renew(self) -> None:
        """Give the cell a new id, after new epochs have begun. This store can then only be closed."""
        await _read(self._stream, self._stream.renew_id(self._cell_id))

    def lease(self, name: str, member: str) -> NatsLease:
        """Return a lease of the cell for this process, which it does not hold yet. It ends with the store."""
        lease = NatsLease(self._stream, name, member, self._create_task)
        self._leases.append(lease)
        return lease

    async def announce(self, member: str, role: MemberRole) -> Announcer:
        """Announce this process to the others; raise CellInUse if the cell is being migrated."""
        announcer = Announcer(self._stream, member, token_hex(12), role)
        await _read(self._stream, announcer.start(patience=0))
        self._announcers.append(announcer)
        self._create_task(announcer.run(), "announce this process")
        return announcer

    def observe_members(self, observe: Callable[[], Observations]) -> None:
        """Announce what this function returns, too."""
        for announcer in self._announcers:
            announcer.observe = observe

    async def claim(self, member: str, *, patience: float = CLAIM_SECONDS) -> NatsLease:
        """Become the only process that changes the cell, and return its lease. Nothing is saved without it.

        Raises CellInUse if another process goes on, now or in a later claim of the lease. A lease of the same member
        is taken over at once.
        """
        lease = self._owner = self.lease(CLOCK, member)
        lease.patience = patience
        await _read(self._stream, lease.claim())
        return lease

    def create_command_server(self, receiver: CommandHandler) -> CommandServer:
        """Return the part that answers the commands of hosts in this cell; it is not started."""
        return CommandServer(self._stream.connection, self._stream.subjects.cell, receiver)

    @property
    def cell_id(self) -> str:
        """The random id of the cell."""
        return self._cell_id

    async def load(self, key: RecordKey) -> Record | None:
        """Return the newest saved value, or None if the record does not exist."""
        self._check_open()
        message = await _read(self._stream, self._stream.read_last(self._stream.subjects.of(key)))
        if message is None:
            return None
        self._on_seen(message)
        change = message.to_change(key, self._stream.newest_format)
        return change if isinstance(change, Record) else None

    async def save(
        self,
        key: RecordKey,
        value: bytes | None,
        entries: Sequence[Entry],
        *,
        expected: int | None,
        guards: Guards = NO_GUARDS,
    ) -> int:
        """Save value and entries in one step and return the new revision, once a majority of the servers has them."""
        check_save(key, value, entries, expected=expected, guards=guards)
        if key == CELL_KEY or CELL_KEY in guards:
            raise ValueError(f"{CELL_KEY} belongs to the store")
        self._check_open()
        return await self._queue.save(key, value, entries, expected, guards)

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[WatchItem]]:
        """Yield the newest value of each key, SnapshotEnd, then changes."""
        self._check_open()
        watch = RecordWatch(self._stream, self._cell_id, on_seen=self._on_seen)
        self._watches.add(watch)
        following = self._create_task(
            Follower(self._stream, (self._stream.subjects.records,), "watch", watch).run(), "follow the records"
        )
        try:
            yield watch.watcher
        finally:
            self._watches.discard(watch)
            watch.watcher.close()
            await cancel_tasks({following})

    async def journal(self, query: JournalQuery) -> list[JournalRow]:
        """Return journal rows in order of position, or the newest first, at most `query.limit`."""
        self._check_open()
        return await self._index.journal(query)

    async def extent(self) -> Extent:
        """Return the extent of the journal."""
        self._check_open()
        return await self._index.extent()

    async def prune(self, retention: Retention, *, now: datetime) -> int:
        """Remove one small batch of journal rows beyond the retention; return the number of removed rows."""
        self._check_open()
        return await _read(self._stream, self._index.prune(retention, now))

    async def check(self, size: int = 0) -> None:
        """Make a durable test write without effect."""
        self._check_open()
        await _read(self._stream, self._stream.test_write(size))

    async def aclose(self) -> None:
        """Finish accepted saves and release everything. A second call does nothing."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._queue.drain()
        for watch in self._watches:
            watch.fail(StoreClosed())
        await self._index.fail(StoreClosed())
        await cancel_tasks(self._tasks)
        for lease in self._leases:
            await lease.release()
        for announcer in self._announcers:
            await announcer.release()
        await self._index.aclose()
        await self._stream.connection.aclose()

    def _may_save(self) -> bool:
        return self._owner is None or self._owner.is_valid

    def _on_saved(self, saved: Saved) -> None:
        self._index.expect(saved.last_lines)
        for watch in self._watches:
            watch.offer_saved(saved.change)

    def _on_seen(self, message: StoredMessage) -> None:
        self._index.expect(message.last_lines)

    def _create_task(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._run(work), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # Python warns of work that was cancelled before it began
        return task

    async def _run(self, work: Coroutine[None, None, None]) -> None:
        """Run a task without end. An error of it is an error of the store."""
        try:
            await work
        except StoreError as error:
            await self._fail(error)
        except Exception as error:
            log.exception("cannot follow %s", self._stream.name)
            await self._fail(StoreRestored(self._stream.name, repr(error)))

    async def _fail(self, error: StoreError) -> None:
        """Refuse everything from now on, because what this process has read is not what the stream contains."""
        if self._error is None:
            log.error("%s", error)
            self._error = error
            if isinstance(error, StoreReverted):
                try:
                    await asyncio.to_thread(note_reverted, self._directory, self._cell_id, error.reason)
                except StoreFailed as failure:  # the index still shows it at the next start
                    log.error("%s", failure)  # noqa: TRY400 - no stack trace needed
        for watch in self._watches:
            watch.fail(error)
        await self._index.fail(error)

    def _check_open(self) -> None:
        if self._closing is not None:
            raise StoreClosed
        if self._error is not None:
            raise self._error


async def _read(stream: CellStream, operation: Coroutine[None, None, T]) -> T:
    """Await an operation that changes no record; raise StoreUnavailable if the servers do not carry it out."""
    try:
        return await operation
    except NatsError as error:
        raise stream.unavailable(error) from error
