"""Record queues: commands on one record are applied in order to its newest value and saved as one batch.

Within a process this keeps a thousand simultaneous commands on one record linear; between processes compare-and-swap
protects, and after a conflict the batch is loaded and decided again.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from forewarn.core.journal import Entry
from forewarn.fleet.errors import SaveFailed
from forewarn.fleet.event_loop import FairShare
from forewarn.store.port import RecordKey, RecordKind, RevisionConflict, Store, StoreError

V = TypeVar("V")
R = TypeVar("R")

MAX_PENDING = 10_000
"""How many commands may wait on one record."""

DELETION_WAIT = 0.01
"""How long to wait, in seconds, for the watch to tell that a record is gone."""

MAX_CONFLICTS = 100
"""How often in a row other processes may win before we give up on a batch."""


class Decision(NamedTuple, Generic[V, R]):
    """What a command makes of a record: the new value (None: gone), what the journal says, the answer."""

    value: V | None
    entries: Sequence[Entry]
    result: R


class PendingCommand(NamedTuple, Generic[V]):
    """A command in the queue, and the future of its result."""

    command: Callable[[V | None], Decision[V, Any]]
    caller: asyncio.Future[Any]


class RecordCodec(NamedTuple, Generic[V]):
    """How records of one kind are encoded and decoded, and where their newest values are in memory."""

    kind: RecordKind
    newest: Callable[[str], tuple[V | None, int | None]]
    update: Callable[[str, V | None, int], object]
    encode: Callable[[V], bytes]
    decode: Callable[[bytes], V]


class RecordQueues(Generic[V]):
    """The queues of all records of one kind.

    `basis` gives what decisions rest on besides the value: if it is another object when they are made, they are made
    anew, so that nothing is saved which what holds by then would not allow. `on_saved` is told of every save: the
    value before, the value after, and the entries; `on_idle` of every record for which nothing waits any more.
    """

    def __init__(
        self,
        store: Store,
        tasks: asyncio.TaskGroup,
        codec: RecordCodec[V],
        basis: Callable[[], object] = lambda: None,
        on_saved: Callable[[V | None, V | None, Sequence[Entry]], None] = lambda *_: None,
        on_idle: Callable[[str], None] = lambda _: None,
        fair_share: FairShare | None = None,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._codec = codec
        self._basis = basis
        self._on_saved = on_saved
        self._on_idle = on_idle
        self._pending: dict[str, list[PendingCommand[V]]] = {}
        self._saving: set[asyncio.Future[None]] = set()
        self._fair_share = fair_share or FairShare()

    @property
    def busy(self) -> int:
        """How many records have commands under way."""
        return len(self._pending)

    def is_busy(self, id_: str) -> bool:
        """Tell whether commands on a record are under way: an older value of it may yet arrive."""
        return id_ in self._pending

    async def wait_saved(self) -> None:
        """Wait until what is being saved now is saved: it was decided on what held before."""
        if self._saving:
            await asyncio.wait(tuple(self._saving))

    async def apply(self, id_: str, command: Callable[[V | None], Decision[V, R]]) -> R:
        """Apply a command to the newest value, save, and return its result. Refusals are raised; then nothing changed.

        The command may be called more than once and must not do anything but decide.
        """
        caller: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        queue = self._pending.get(id_)
        if queue is None:
            queue = self._pending[id_] = []
            self._tasks.create_task(self._drain(id_), name=f"save {self._codec.kind.value} {id_}")
        elif len(queue) >= MAX_PENDING:
            raise SaveFailed(f"{MAX_PENDING} requests wait for {id_} already")
        queue.append(PendingCommand(command, caller))
        return await caller

    async def _drain(self, id_: str) -> None:
        try:
            while batch := self._pending[id_]:
                self._pending[id_] = []
                await self._process_batch(id_, batch)
        finally:
            for _, caller in self._pending.pop(id_):
                caller.cancel()
            self._on_idle(id_)

    async def _process_batch(self, id_: str, batch: list[PendingCommand[V]]) -> None:
        try:
            results = await self._decide_and_save(id_, batch)
        except SaveFailed as error:
            results = [error] * len(batch)
        except StoreError as error:
            results = [SaveFailed(str(error))] * len(batch)
        except asyncio.CancelledError:
            for _, caller in batch:
                caller.cancel()
            raise
        for (_, caller), result in zip(batch, results, strict=True):
            if caller.done():
                continue
            if isinstance(result, Exception):
                caller.set_exception(result)
            else:
                caller.set_result(result)

    async def _decide_and_save(self, id_: str, batch: list[PendingCommand[V]]) -> list[Any]:
        for _ in range(MAX_CONFLICTS):
            basis = self._basis()
            old, revision = self._codec.newest(id_)
            value, entries, results = await self._decide(old, batch)
            if self._basis() is not basis:
                continue
            if value is old and not entries:
                return results
            if value is None and old is None:
                return [result for one in batch for result in await self._decide_and_save(id_, [one])]
            try:
                await self._save(id_, value, entries, revision)
            except RevisionConflict:
                await self._reload(id_)
            else:
                self._on_saved(old, value, entries)
                return results
        raise SaveFailed(f"other processes have changed {id_} {MAX_CONFLICTS} times in a row")

    async def _decide(self, value: V | None, batch: list[PendingCommand[V]]) -> tuple[V | None, list[Entry], list[Any]]:
        entries: list[Entry] = []
        results: list[Any] = []
        for command, _ in batch:
            await self._fair_share.wait_turn()
            try:
                decision = command(value)
            except Exception as refusal:  # noqa: BLE001 - one command's mistake must not hit those that wait beside it
                results.append(refusal)
            else:
                value = decision.value
                entries += decision.entries
                results.append(decision.result)
        return value, entries, results

    async def _save(self, id_: str, value: V | None, entries: list[Entry], revision: int | None) -> None:
        encoded = None if value is None else self._codec.encode(value)
        with self._track_save():
            saved = await self._store.save(RecordKey(self._codec.kind, id_), encoded, entries, expected=revision)
            self._codec.update(id_, value, saved)

    @contextmanager
    def _track_save(self) -> Iterator[None]:
        saving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._saving.add(saving)
        try:
            yield
        finally:
            self._saving.discard(saving)
            saving.set_result(None)

    async def _reload(self, id_: str) -> None:
        record = await self._store.load(RecordKey(self._codec.kind, id_))
        if record is None:
            await asyncio.sleep(DELETION_WAIT)
        else:
            self._codec.update(id_, self._codec.decode(record.value), record.revision)
