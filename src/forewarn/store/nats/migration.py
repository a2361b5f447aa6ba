"""Migration from and into a cell."""

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from itertools import groupby
from secrets import token_hex

from msgspec.structs import replace

from forewarn.core.backoff import backoff
from forewarn.settings.nats import NatsSettings
from forewarn.store.migration import (
    MIGRATION,
    PAGE_BYTES,
    PAGE_ITEMS,
    MigrationCursor,
    MigrationPage,
    MigrationState,
    TargetUsed,
    decode_state,
    encode_state,
    is_migrated,
)
from forewarn.store.nats.connection import ApiRefused, NatsConnection, ResponseMissing, ServerUnavailable, cancel_tasks
from forewarn.store.nats.follower import Follower, FollowStart
from forewarn.store.nats.lease import CLAIM_SECONDS, CLOCK, NatsLease
from forewarn.store.nats.member import TTL_SECONDS as MEMBER_SECONDS
from forewarn.store.nats.member import Announcer, MemberRole
from forewarn.store.nats.message import (
    CHANGE,
    FORMAT_HEADER,
    POSITIONS_PER_MESSAGE,
    ROLLUP,
    Message,
    StoredMessage,
    journal_messages,
    read_lines,
    record_message,
)
from forewarn.store.nats.save_queue import FIRST_PAUSE, LONGEST_PAUSE, NOT_SAVED, PATIENCE_SECONDS
from forewarn.store.nats.stream import CELL_KEY, WRONG_SEQUENCE, CellStream, StreamState
from forewarn.store.port import (
    CellInUse,
    Extent,
    JournalRow,
    Record,
    RecordKind,
    SaveUnknown,
    StoreMissing,
    StoreUnavailable,
)

MAX_WAITING = 2_000
"""How many messages may wait to be copied. The stream waits too, while there are as many."""


class CellAccess:
    """A cell that this process has claimed, so that no service changes it."""

    def __init__(self, stream: CellStream, member: str) -> None:
        self.stream = stream
        self._member = member
        self.name = f"cell {stream.subjects.cell} at {', '.join(stream.connection.servers)}"
        self._lease: NatsLease | None = None
        self._announcer: Announcer | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, settings: NatsSettings, member: str) -> "CellAccess":
        """Connect to the servers. A claim of the same member, whose process has ended, is taken over at once."""
        return cls(CellStream(await NatsConnection.open(settings), settings.cell), member)

    async def claim(self) -> None:
        """Claim the cell; raise CellInUse if a service goes on using it, or a command changes it."""
        if self._announcer is None:
            await self.stream.read_state()
            announcer = Announcer(self.stream, self._member, token_hex(12), MemberRole.MIGRATION)
            await announcer.start(patience=MEMBER_SECONDS + 3.0)
            self._announcer = announcer
            self._create_task(announcer.run(), "announce the migration")
        lease = NatsLease(self.stream, CLOCK, self._member, self._create_task)
        lease.patience = CLAIM_SECONDS
        await self.stream.read_state()  # a claim alone would not tell that the cell is missing
        await lease.claim()
        self._lease = lease

    def _create_task(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        return task

    async def check(self) -> None:
        """Claim the cell again if the claim could not be renewed in time; raise CellInUse if another process has it.

        Whether anything was changed meanwhile is noticed later, by the marker of the target or the state of the source.
        """
        if self._lease is None:
            raise StoreUnavailable(self.name, "this process has not claimed it")
        if not self._lease.is_valid:
            if self._lease.taken_by is not None:
                raise CellInUse(self.stream.subjects.cell, self._lease.taken_by)
            await self._lease.claim()

    async def newest(self) -> int:
        """Return the sequence of the newest message that belongs to the fleet."""
        subjects = self.stream.subjects
        kinds = (kind for kind in RecordKind if kind is not RecordKind.LEASE)
        names = [subjects.journal, *(f"$KV.{subjects.cell}.{kind.value}.>" for kind in kinds)]
        found = [await self.stream.read_last(name) for name in names]
        return max(message.sequence for message in found if message is not None)

    async def pages(self, after: MigrationCursor) -> AsyncGenerator[MigrationPage, None]:
        """Yield the journal and the records in the order of their sequences."""
        stream, last = self.stream, await self.newest()
        if after.records >= last:
            return
        feed = _MessageFeed(after.records)
        subjects = (stream.subjects.journal, stream.subjects.records)
        follower = asyncio.get_running_loop().create_task(Follower(stream, subjects, "migrate", feed).run())
        try:
            is_last = False
            while not is_last:
                messages: list[StoredMessage] = []
                size = 0
                while not is_last and len(messages) < PAGE_ITEMS and size < PAGE_BYTES:
                    messages.append(await self._next(feed, follower))
                    size += len(messages[-1].data)
                    is_last = messages[-1].sequence >= last
                yield self._page(messages)
        finally:
            await cancel_tasks({follower})

    async def release(self) -> None:
        """Let a service use the cell."""
        await cancel_tasks(self._tasks)
        self._tasks.clear()
        if self._lease is not None:
            await self._lease.release()
            self._lease = None
        if self._announcer is not None:
            await self._announcer.release()
            self._announcer = None

    async def aclose(self) -> None:
        """Release the cell and close the connection."""
        await self.release()
        await self.stream.connection.aclose()

    async def _next(self, feed: "_MessageFeed", follower: asyncio.Task[None]) -> StoredMessage:
        waiting = asyncio.ensure_future(feed.messages.get())
        await asyncio.wait({waiting, follower}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            follower.result()  # raises the error with which it has ended
        return waiting.result()

    def _page(self, messages: Sequence[StoredMessage]) -> MigrationPage:
        rows: list[JournalRow] = []
        records: list[Record] = []
        for message in messages:
            if message.subject == self.stream.subjects.journal:
                key, entries = read_lines(message)
                first = message.sequence * POSITIONS_PER_MESSAGE
                rows += (JournalRow(first + number, key, entry) for number, entry in enumerate(entries))
                continue
            key = self.stream.subjects.key_of(message.subject)
            change = message.to_change(key)
            if isinstance(change, Record) and key != CELL_KEY and is_migrated(key):
                records.append(change)
        last = messages[-1].sequence
        return MigrationPage(rows, records, MigrationCursor(last, last))


class _MessageFeed:
    """The messages of a follower, in a queue."""

    def __init__(self, received: int) -> None:
        self.messages: asyncio.Queue[StoredMessage] = asyncio.Queue(MAX_WAITING)
        self._received = received

    async def on_start(self, _state: StreamState) -> FollowStart:
        """Continue after the last message that was received."""
        return FollowStart(self._received + 1)

    async def on_message(self, message: StoredMessage, pending: int) -> None:
        """Take a message."""
        del pending
        await self.messages.put(message)
        self._received = message.sequence

    async def on_idle(self) -> None:
        """Do nothing: every message up to the last one comes."""


class NatsSource:
    """A cell that no service uses."""

    def __init__(self, cell: CellAccess) -> None:
        self._cell = cell
        self.name = cell.name

    async def read_state(self) -> str:
        """Return the id of the cell and its newest sequence."""
        await self._cell.check()
        return f"{(await self._cell.stream.read_state()).cell_id}/{await self._cell.newest()}"

    async def extent(self) -> Extent:
        """Return the extent of the journal."""
        stream = self._cell.stream
        pruned = await stream.read_last(stream.subjects.pruned)
        end = 0 if pruned is None else int(json.loads(pruned.data)["pruned"])
        newest = await stream.read_last(stream.subjects.journal)
        if newest is None:
            return Extent(end, end)
        return Extent(end, newest.sequence * POSITIONS_PER_MESSAGE + len(read_lines(newest)[1]) - 1)

    async def size(self) -> int:
        """Return how many messages there are; some have several journal rows."""
        return int((await self._cell.stream.read_state()).details["state"]["messages"])

    def pages(self, after: MigrationCursor) -> AsyncGenerator[MigrationPage, None]:
        """Yield everything, in the order of the stream."""
        return self._cell.pages(after)


class NatsTarget:
    """A cell that does not exist yet, or that of an unfinished migration."""

    def __init__(self, cell: CellAccess, replicas: int) -> None:
        self._cell = cell
        self._stream = cell.stream
        self._replicas = replicas
        self.name = cell.name
        self._state: MigrationState | None = None
        self._revision = 0
        """The sequence of the marker."""

    async def begin(self, state: MigrationState, extent: Extent) -> MigrationState:
        """Create the cell. The positions of its journal are higher than all of the source: none is used twice."""
        first = extent.last // POSITIONS_PER_MESSAGE + 2 if extent.last else 1
        await self._stream.create(self._replicas, token_hex(12), first_sequence=first)
        await self._cell.claim()
        found = await self._read_marker()
        if found is None:
            await self._check_empty(first)
            await self._send(state, self._renumber(first) if first > 1 else [])
            return state
        self._state = found
        return found

    async def write(self, page: MigrationPage) -> None:
        """Save a page and its cursor in one batch."""
        assert self._state is not None  # noqa: S101 - `begin` comes first
        change = token_hex(12)
        state = replace(self._state, cursor=page.cursor, change=change)
        await self._send(state, [*self._lines(page.rows, change), *self._records(page.records, change)])

    async def clear(self) -> None:
        """Remove the stream of an unfinished migration."""
        try:
            await self._cell.claim()
        except StoreMissing:
            return
        if await self._read_marker() is None:
            raise TargetUsed(self.name, "what it has is not an unfinished migration")
        await self._cell.release()
        await self._stream.connection.call(f"STREAM.DELETE.{self._stream.name}")
        self._revision = 0

    def pages(self) -> AsyncGenerator[MigrationPage, None]:
        """Yield everything that was written."""
        return self._cell.pages(MigrationCursor())

    async def finish(self) -> None:
        """Remove the marker."""
        await self._send(None, [])

    async def _check_empty(self, first: int) -> None:
        state = await self._stream.read_state()
        newest = await self._cell.newest()
        cell = await self._stream.read_last(self._stream.subjects.of(CELL_KEY))
        hint = f"if no fleet uses it, remove it with `nats stream rm {self._stream.name}`"
        if cell is None or newest != cell.sequence:
            raise TargetUsed(self.name, f"it has {state.details['state']['messages']} messages; {hint}")
        if int(state.details["config"].get("first_seq", 1) or 1) < first:
            reason = "it was created by `forewarn cluster init`, but a migration creates its cell"
            raise TargetUsed(self.name, f"{reason}; {hint}")

    def _renumber(self, first: int) -> list[Message]:
        """Return the note that all positions before the cell's first one are gone, for readers that continue there."""
        value = json.dumps({"before": first, "pruned": first * POSITIONS_PER_MESSAGE - 1}).encode()
        return [Message(self._stream.subjects.pruned, value, {**ROLLUP, FORMAT_HEADER: str(self._stream.format)})]

    def _lines(self, rows: Sequence[JournalRow], change: str) -> Iterator[Message]:
        """Yield journal messages; rows that follow each other and are of one record share one."""
        for key, group in groupby(rows, key=lambda row: row.key):
            yield from journal_messages(
                self._stream.subjects.journal,
                key,
                [row.entry for row in group],
                change=change,
                format_=self._stream.format,
            )

    def _records(self, records: Sequence[Record], change: str) -> Iterator[Message]:
        for record in records:
            subject = self._stream.subjects.of(record.key)
            yield record_message(
                subject, record.value, change=change, expected=0, lines_distance=0, format_=self._stream.format
            )

    async def _send(self, state: MigrationState | None, messages: list[Message]) -> None:
        """Send messages together with the next state, which may exist only once; repeat it until it is saved."""
        change = token_hex(12) if state is None else state.change
        marker = record_message(
            self._stream.subjects.of(MIGRATION),
            None if state is None else encode_state(state),
            change=change,
            expected=self._revision,
            lines_distance=0,
            format_=self._stream.format,
        )
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            await self._cell.check()
            try:
                self._revision = await self._stream.publish_batch([*messages, marker])
                break
            except ApiRefused as error:
                if error.code == WRONG_SEQUENCE:
                    newest = await self._stream.read_last(marker.subject)
                    if newest is None or newest.headers.get(CHANGE) != change:
                        raise TargetUsed(self.name, "another process has changed it") from error
                    self._revision = newest.sequence
                    break
                if error.code not in NOT_SAVED:
                    raise
                reason = str(error)
            except (ResponseMissing, ServerUnavailable) as error:
                reason = str(error)
            if asyncio.get_running_loop().time() > deadline:
                raise SaveUnknown(self.name, reason)
            await asyncio.sleep(next(pauses))
        self._state = state

    async def _read_marker(self) -> MigrationState | None:
        message = await self._stream.read_last(self._stream.subjects.of(MIGRATION))
        if message is None or message.is_marker:
            return None
        self._revision = message.sequence
        return decode_state(message.data)
