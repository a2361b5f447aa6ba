"""The fleet's main loop: every change of a record goes through it, in this order.

command    A caller queues a command: a function from the newest value of a record to a Decision.
decide     All commands that wait for a record are decided together, one after the other on the same value.
save       The store saves the value and its journal entries in one transaction, if the record and the decision's guards
           are still at the revisions that were read. If not, the loop takes the newest value and decides again.
replica    The saved value becomes the newest one in memory. Only saved values do, so all values in memory are durable.
observers  The observers of the record's kind get the change, in the order of their list. Those of scopes: timers,
           impacts, campaigns, metrics, logs, changes of rosters, long polls of guests (`fleet.service` has the list).
reply      Each caller gets the result of its own command, or the error that refused it. If the disk failed at the end
           of the save, it gets OutcomeUnknown; should the change be saved after all, it comes from the store's watch.

Changes of other processes come from the store's watch and enter at "replica"; the rest is the same. So nothing here
depends on being the only writer, and observers act on saved changes of any process. The journal comes last: its streams
read new rows after each change from the watch, which also has this process's own changes.

Within a process the queue keeps a thousand simultaneous commands on one record linear: they need one save. Between
processes compare-and-swap decides, and the loser decides again. A guard is another record that a decision depends on,
such as the fleet's hold; compare-and-swap on the record itself would not detect that a guard has changed.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from forewarn.core.base_error import CodedError
from forewarn.core.journal import Entry
from forewarn.fleet.errors import OutcomeUnknown, SaveFailed
from forewarn.fleet.event_loop import FairShare
from forewarn.store.port import (
    MAX_GUARDS,
    NO_GUARDS,
    Deleted,
    Guards,
    Reached,
    Record,
    RecordKey,
    RecordKind,
    RevisionConflict,
    SaveUnknown,
    SnapshotEnd,
    Store,
    StoreError,
    WatchItem,
)

log = logging.getLogger(__name__)
V = TypeVar("V")
R = TypeVar("R")

MAX_PENDING = 10_000
"""How many commands may wait on one record."""

DELETION_WAIT = 0.01
"""How long to wait, in seconds, for the watch to report that a record was deleted."""

MAX_CONFLICTS = 100
"""How many times in a row a batch is decided again because of conflicts with other records or processes."""


class Decision(NamedTuple, Generic[V, R]):
    """The result of a command: the new value (None: deleted), the journal entries, the result for the caller.

    `guards` are the other records that it depends on, at the revisions that the command has read.
    """

    value: V | None
    entries: Sequence[Entry]
    result: R
    guards: Guards = NO_GUARDS


class RecordChange(NamedTuple, Generic[V]):
    """A change of a record for its observers: already saved, and in the replica."""

    id: str
    before: V | None
    after: V | None
    entries: Sequence[Entry] | None = None
    """The entries that this process saved with it; None if another process saved it, or if only time has passed."""


Observer: TypeAlias = Callable[[RecordChange[V]], None]
"""A function that acts on a change. It must not raise; longer work runs in a task of its own. The same state may be
observed more than once."""


class RecordValues(Protocol[V]):
    """The newest saved value of every record of one kind, in memory."""

    def newest(self, id_: str) -> tuple[V | None, int | None]:
        """Return a record's value and revision; None and None if it does not exist."""
        ...

    def is_newer(self, id_: str, revision: int) -> bool:
        """Return whether the revision is not known here yet."""
        ...

    def update(self, id_: str, value: V | None, revision: int) -> object:
        """Store a saved value, unless a newer one is known."""
        ...

    def forget(self, id_: str, revision: int) -> None:
        """Remove a record that was deleted at this revision."""
        ...


class RecordTable(Generic[V]):
    """The newest values of records that need no index; scopes are in `Replica`."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[V | None, int]] = {}

    def newest(self, id_: str) -> tuple[V | None, int | None]:
        """Return a record's value and revision; None and None if it does not exist."""
        value, revision = self._values.get(id_, (None, 0))
        return (None, None) if value is None else (value, revision)

    def ids(self) -> Iterator[str]:
        """Return the id of every record."""
        return (id_ for id_, (value, _) in self._values.items() if value is not None)

    def values(self) -> Iterator[V]:
        """Return every value."""
        return (value for value, _ in self._values.values() if value is not None)

    def is_newer(self, id_: str, revision: int) -> bool:
        """Return whether the revision is not known here yet."""
        return revision > self._values.get(id_, (None, 0))[1]

    def update(self, id_: str, value: V | None, revision: int) -> None:
        """Store a saved value, unless a newer one is known."""
        if self.is_newer(id_, revision):
            self._values[id_] = (value, revision)

    def forget(self, id_: str, revision: int) -> None:
        """Remove a record that was deleted at this revision."""
        value, known = self._values.get(id_, (None, 0))
        if value is None and known <= revision:
            self._values.pop(id_, None)


class RecordCodec(NamedTuple, Generic[V]):
    """How records of one kind are encoded and decoded. With an `id`, it applies to that record only."""

    kind: RecordKind
    encode: Callable[[V], bytes]
    decode: Callable[[bytes], V]
    id: str | None = None
    reuse: Callable[[V, V], V] = lambda _, after: after
    """Return the newer value with the equal parts of the older one that observers compare by identity."""


class PendingCommand(NamedTuple, Generic[V]):
    """A command in the queue, and the future of its result."""

    command: Callable[[V | None], Decision[V, Any]]
    caller: asyncio.Future[Any]


class _Decided(NamedTuple, Generic[V]):
    """The combined result of the commands of a batch."""

    value: V | None
    entries: list[Entry]
    results: list[Any]
    guards: dict[RecordKey, int | None]


class MainLoop:
    """The loops of all kinds of records over one store.

    `on_followed` is called after each change from the watch, because the journal may have grown.
    """

    def __init__(self, store: Store, tasks: asyncio.TaskGroup, *, on_followed: Callable[[], None]) -> None:
        self.store = store
        self.tasks = tasks
        self._on_followed = on_followed
        self._loops: dict[RecordKey | RecordKind, RecordLoop[Any]] = {}
        self.reached = 0
        """The revision up to which the replica has the changes of all processes."""
        self.newest = 0
        """The newest revision that the replica has of any record."""
        self.is_filled = False
        """Whether everything that the store had at the start is loaded: later changes happen while this runs."""
        self._waiting_for: dict[asyncio.Future[None], int] = {}

    def add(
        self,
        codec: RecordCodec[V],
        values: RecordValues[V],
        observers: Sequence[Observer[V]] = (),
        *,
        fair_share: FairShare | None = None,
    ) -> "RecordLoop[V]":
        """Add the records of one kind, or a single record with its own type, before the loop is filled."""
        loop = RecordLoop(self, codec, values, list(observers), fair_share or FairShare())
        self._loops[codec.kind if codec.id is None else RecordKey(codec.kind, codec.id)] = loop
        return loop

    @property
    def busy(self) -> int:
        """How many records have commands in progress."""
        return sum(loop.busy for loop in self._loops.values())

    @property
    def waiting(self) -> int:
        """Always 0: nothing here waits for the clock."""
        return 0

    async def fill(self, changes: AsyncIterator[WatchItem]) -> None:
        """Load everything from the store."""
        async for change in changes:
            if isinstance(change, SnapshotEnd):
                self.is_filled = True
                return
            self.take_in(change)

    async def wait_reached(self, revision: int) -> None:
        """Return when the replica has every change up to a revision of any record."""
        if self.reached < revision:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting_for[waiting] = revision
            try:
                await waiting
            finally:
                del self._waiting_for[waiting]

    async def follow(self, changes: AsyncIterator[WatchItem]) -> None:
        """Apply every change from now on; most are our own and already known. Does not return."""
        async for change in changes:
            if not isinstance(change, SnapshotEnd):
                self.take_in(change)
            if not isinstance(change, Reached):
                self._on_followed()

    async def drain(self) -> None:
        """Return when every queued command has its reply. Parts that were stopped save nothing after that."""
        await asyncio.gather(*(loop.drain() for loop in self._loops.values()))

    async def refresh(self, conflict: RevisionConflict) -> None:
        """Load the newest value of a record that was not as expected, unless a newer one is known."""
        loop = self._find(conflict.key)
        if loop is None:
            raise ValueError(f"{conflict.key} cannot be a guard, because its changes are not followed")
        if loop.revision_of(conflict.key.id) != conflict.expected:
            return
        if not await loop.load(conflict.key.id):
            await asyncio.sleep(DELETION_WAIT)  # the watch brings the revision of the deletion

    def saves_of(self, guards: Guards) -> list[asyncio.Future[None]]:
        """Return the saves of guards that are in progress here: decide after them, and they cause no conflict.

        Otherwise most actions of a campaign with many steps would conflict with its own record.
        """
        loops = ((self._find(key), key.id) for key in guards)
        return [loop.saves[id_] for loop, id_ in loops if loop is not None and id_ in loop.saves]

    def take_in(self, change: Record | Deleted | Reached) -> None:
        """Apply a change from the store, unless it is already known."""
        self.newest = max(self.newest, change.revision)
        if isinstance(change, Reached):
            self.reached = max(self.reached, change.revision)
            for waiting, revision in self._waiting_for.items():
                if revision <= self.reached and not waiting.done():
                    waiting.set_result(None)
        elif (loop := self._find(change.key)) is not None:
            loop.take_in(change)

    def _find(self, key: RecordKey) -> "RecordLoop[Any] | None":
        return self._loops.get(key) or self._loops.get(key.kind)


class RecordLoop(Generic[V]):
    """The main loop for the records of one kind. Created by `MainLoop.add`."""

    def __init__(
        self,
        main_loop: MainLoop,
        codec: RecordCodec[V],
        values: RecordValues[V],
        observers: list[Observer[V]],
        fair_share: FairShare,
    ) -> None:
        self.observers = observers
        """In the order in which they get a change."""
        self._main_loop = main_loop
        self._codec = codec
        self._values = values
        self._fair_share = fair_share
        self._pending: dict[str, list[PendingCommand[V]]] = {}
        self.saves: dict[str, asyncio.Future[None]] = {}
        """The saves that the store has not confirmed yet."""
        self._gone: dict[str, int] = {}
        """The records that the store reports as deleted, with the revisions of the deletions."""
        self._loads: dict[str, int] = {}
        """How many loads of each record are in progress."""

    @property
    def busy(self) -> int:
        """How many records have commands in progress."""
        return len(self._pending)

    def newest(self, id_: str) -> tuple[V | None, int | None]:
        """Return a record's newest value and its revision; None and None if it does not exist."""
        return self._values.newest(id_)

    def revision_of(self, id_: str) -> int | None:
        """Return the newest revision of a record; None if it does not exist."""
        return self._values.newest(id_)[1]

    async def catch_up(self, id_: str, revision: int | None = None) -> None:
        """Load the newest value of a record, unless the revision is known here."""
        known = self.revision_of(id_)
        if revision is not None and not self._values.is_newer(id_, revision):
            return
        try:
            await self._main_loop.refresh(RevisionConflict(self.key(id_), expected=known, actual=revision))
        except StoreError as error:
            raise SaveFailed(str(error)) from error

    async def load(self, id_: str) -> bool:
        """Load the newest value of a record, unless a newer one is known; return whether the record exists."""
        self._loads[id_] = self._loads.get(id_, 0) + 1
        try:
            record = await self._main_loop.store.load(self.key(id_))
            if record is not None:
                self._main_loop.take_in(record)
            return record is not None
        finally:
            self._loads[id_] -= 1
            if not self._loads[id_]:
                del self._loads[id_]
                self._forget_if_gone(id_)

    def key(self, id_: str) -> RecordKey:
        """Return the key of a record."""
        return RecordKey(self._codec.kind, id_)

    def guards(self, id_: str) -> Guards:
        """Return a record with its newest revision, as the guard of a decision that has read it."""
        return {self.key(id_): self.revision_of(id_)}

    async def apply(self, id_: str, command: Callable[[V | None], Decision[V, R]]) -> R:
        """Apply a command to the newest value, save, and return its result. Refusals are raised; then nothing changed.

        The command may be called more than once and must have no side effects.
        """
        return await self.submit(id_, command)

    def submit(self, id_: str, command: Callable[[V | None], Decision[V, R]]) -> asyncio.Future[R]:
        """Queue a command as `apply` does, and return the future of its result."""
        if len(self._pending.get(id_, ())) >= MAX_PENDING:
            refused: asyncio.Future[R] = asyncio.get_running_loop().create_future()
            refused.set_exception(SaveFailed(f"{id_} already has {MAX_PENDING} pending requests"))
            return refused
        return self._enqueue(id_, command)

    async def drain(self) -> None:
        """Return when every queued command has its reply."""
        waits = [self._enqueue(id_, lambda value: Decision(value, (), None)) for id_ in self._pending]
        await asyncio.gather(*waits, return_exceptions=True)

    def _enqueue(self, id_: str, command: Callable[[V | None], Decision[V, R]]) -> asyncio.Future[R]:
        caller: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        pending = PendingCommand(command, caller)
        if id_ in self._pending:
            self._pending[id_].append(pending)
        else:
            self._pending[id_] = [pending]
            self._fair_share.start(partial(self._start, id_))
        return caller

    def _start(self, id_: str) -> None:
        work = self._run(id_)
        try:
            task = self._main_loop.tasks.create_task(work, name=f"save {self._codec.kind.value} {id_}")
        except RuntimeError:  # the service has stopped
            work.close()
            self._cancel_callers(id_)
        else:
            task.add_done_callback(partial(self._cancel_left, id_))

    def take_in(self, change: Record | Deleted) -> None:
        """Apply a change from the store, unless it is already known."""
        id_ = change.key.id
        if self._values.is_newer(id_, change.revision):
            before, _ = self._values.newest(id_)
            after = self._codec.decode(change.value) if isinstance(change, Record) else None
            if before is not None and after is not None:
                after = self._codec.reuse(before, after)
            self._values.update(id_, after, change.revision)
            self.notify(RecordChange(id_, before, after))
        if isinstance(change, Deleted):
            self._gone[id_] = change.revision
            self._forget_if_gone(id_)

    def notify(self, change: RecordChange[V]) -> None:
        """Pass a change to the observers, in order; also one in which only time has passed."""
        for observer in self.observers:
            observer(change)

    async def _run(self, id_: str) -> None:
        """Process batches until the record has no queued commands."""
        has_turn = True
        while batch := self._pending[id_]:
            self._pending[id_] = []
            await self._process(id_, batch, has_turn=has_turn)
            has_turn = False
        del self._pending[id_]
        self._forget_if_gone(id_)

    def _cancel_left(self, id_: str, task: asyncio.Task[None]) -> None:
        """Cancel the callers that wait, if the task has ended before they had a reply: then the service stops."""
        if task.cancelled() or task.exception() is not None:
            self._cancel_callers(id_)

    def _cancel_callers(self, id_: str) -> None:
        for _, caller in self._pending.pop(id_):
            caller.cancel()

    async def _process(self, id_: str, batch: list[PendingCommand[V]], *, has_turn: bool) -> None:
        """Decide and save a batch, in as few saves as possible, and reply to the callers after each save.

        With `has_turn` the first command is decided at once: the task was started at its turn.
        """
        while batch:
            try:
                results = await self._decide_and_save(id_, batch, has_turn=has_turn)
            except SaveFailed as error:
                results = [error] * len(batch)
            except SaveUnknown as error:
                results = [OutcomeUnknown(error.reason)] * len(batch)
            except StoreError as error:
                results = [SaveFailed(str(error))] * len(batch)
            except BaseException:  # cancelled, or a bug in an observer: the service stops
                for _, caller in batch:
                    caller.cancel()
                raise
            _reply(batch, results)
            batch, has_turn = batch[len(results) :], False

    async def _decide_and_save(self, id_: str, batch: list[PendingCommand[V]], *, has_turn: bool) -> list[Any]:
        """Save the decisions of the first commands of the batch, as many as fit into one save; return their results."""
        has_waited = False
        for _ in range(MAX_CONFLICTS):
            before, revision = self._values.newest(id_)
            decided = await self._decide(before, batch, has_turn=has_turn)
            has_turn = False
            if decided is None:
                continue
            if decided.value is before and not decided.entries:
                return decided.results
            if decided.value is None and before is None and len(batch) > 1:
                batch = batch[:1]  # created and deleted: the journal has both only if they are saved separately
                continue
            if not has_waited and (saves := self._main_loop.saves_of(decided.guards)):
                has_waited = True
                await asyncio.wait(saves)
                continue
            saved = await self._try_save(id_, decided, revision)
            if saved is None:
                continue
            self._values.update(id_, decided.value, saved)
            self._main_loop.newest = max(self._main_loop.newest, saved)
            newest, revision = self._values.newest(id_)
            after = decided.value if revision == saved else newest  # the watch may have been faster than this reply
            self.notify(RecordChange(id_, before, after, decided.entries))
            return decided.results
        raise SaveFailed(f"{id_} could not be saved because of {MAX_CONFLICTS} conflicts in a row")

    async def _decide(self, value: V | None, batch: list[PendingCommand[V]], *, has_turn: bool) -> _Decided[V] | None:
        """Apply the commands of a batch in order, up to the maximum number of guards of a save.

        Return None if a guard has changed in the meantime; then decide again.
        """
        entries: list[Entry] = []
        results: list[Any] = []
        guards: dict[RecordKey, int | None] = {}
        for command, _ in batch:
            if not has_turn:
                await self._fair_share.wait_turn()
            has_turn = False
            try:
                decision = command(value)
            except CodedError as refusal:
                # Its stack has this frame, whose results have the error: a cycle, which only GC could free.
                results.append(refusal.with_traceback(None))
                continue
            except Exception as error:  # noqa: BLE001 - a bug in one command must not affect other queued commands
                results.append(error)
                continue
            if decision.guards:
                if any(guards.get(guard, revision) != revision for guard, revision in decision.guards.items()):
                    return None
                more = {**guards, **decision.guards}
                if results and len(more) > MAX_GUARDS:
                    break
                guards = more
            value = decision.value
            entries += decision.entries
            results.append(decision.result)
        return _Decided(value, entries, results, guards)

    async def _try_save(self, id_: str, decided: _Decided[V], revision: int | None) -> int | None:
        """Save and return the new revision; None after a conflict, when the newest value has been loaded."""
        try:
            try:
                return await self._save(id_, decided, revision)
            except RevisionConflict as conflict:
                await self._main_loop.refresh(conflict)
                return None
        except StoreError:
            raise
        except Exception as error:
            # A value that cannot be encoded, or an invalid guard, must not stop the service.
            log.exception("could not save %s", self.key(id_))
            raise SaveFailed(f"{self.key(id_)} could not be saved: {error!r}") from error

    async def _save(self, id_: str, decided: _Decided[V], revision: int | None) -> int:
        value = None if decided.value is None else self._codec.encode(decided.value)
        done = self.saves[id_] = asyncio.get_running_loop().create_future()
        try:
            return await self._main_loop.store.save(
                self.key(id_), value, decided.entries, expected=revision, guards=decided.guards
            )
        finally:
            del self.saves[id_]
            done.set_result(None)

    def _forget_if_gone(self, id_: str) -> None:
        """Forget a deleted record when nothing older can arrive any more: from the watch, a load or a command."""
        if id_ in self._gone and id_ not in self._pending and id_ not in self._loads:
            self._values.forget(id_, self._gone.pop(id_))


def _reply(batch: list[PendingCommand[V]], results: list[Any]) -> None:
    """Set the results of the first callers of a batch."""
    for (_, caller), result in zip(batch, results, strict=False):
        if caller.done():
            continue
        if isinstance(result, Exception):
            caller.set_exception(result)
        else:
            caller.set_result(result)
