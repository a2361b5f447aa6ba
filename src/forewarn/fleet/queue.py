"""One queue per record: whoever waits is applied in turn to the newest value, and all of them are saved at once.

Within a process this keeps a thousand simultaneous commands on one record linear; between processes
compare-and-swap guards, and a conflict means: load, and decide again.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from forewarn.core.journal import Entry
from forewarn.fleet.errors import NotSaved
from forewarn.fleet.turns import Turns
from forewarn.store.port import Conflict, Key, Kind, Store, StoreError

V = TypeVar("V")
R = TypeVar("R")

WAITING = 10_000
"""How many commands may wait on one record."""

DELETION = 0.01
"""How long to wait, in seconds, for the watch to tell that a record is gone."""

CONFLICTS = 100
"""How often in a row other processes may win before we give up on a batch."""


class Decision(NamedTuple, Generic[V, R]):
    """What a command makes of a record: the new value (None: gone), what the journal says, the answer."""

    value: V | None
    entries: Sequence[Entry]
    result: R


class Waiting(NamedTuple, Generic[V]):
    """A command in the queue and whoever waits for it."""

    command: Callable[[V | None], Decision[V, Any]]
    caller: asyncio.Future[Any]


class Shelf(NamedTuple, Generic[V]):
    """Where records of one kind are kept in memory and how they are written."""

    kind: Kind
    newest: Callable[[str], tuple[V | None, int | None]]
    take: Callable[[str, V | None, int], object]
    encode: Callable[[V], bytes]
    decode: Callable[[bytes], V]


class Queues(Generic[V]):
    """The queues of all records of one kind.

    `basis` gives what decisions rest on besides the value: if it is another object when they are made, they are made
    anew, so that nothing is saved which what holds by then would not allow. `on_saved` is told of every save: the
    value before, the value after, and the entries; `on_idle` of every record for which nothing waits any more.
    """

    def __init__(
        self,
        store: Store,
        tasks: asyncio.TaskGroup,
        shelf: Shelf[V],
        basis: Callable[[], object] = lambda: None,
        on_saved: Callable[[V | None, V | None, Sequence[Entry]], None] = lambda *_: None,
        on_idle: Callable[[str], None] = lambda _: None,
        turns: Turns | None = None,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._shelf = shelf
        self._basis = basis
        self._on_saved = on_saved
        self._on_idle = on_idle
        self._waiting: dict[str, list[Waiting[V]]] = {}
        self._saving: set[asyncio.Future[None]] = set()
        self._turns = turns or Turns()

    @property
    def busy(self) -> int:
        """How many records have commands under way."""
        return len(self._waiting)

    def is_busy(self, id_: str) -> bool:
        """Tell whether commands on a record are under way: an older value of it may yet arrive."""
        return id_ in self._waiting

    async def saved(self) -> None:
        """Wait until what is being saved now is saved: it was decided on what held before."""
        if self._saving:
            await asyncio.wait(tuple(self._saving))

    async def apply(self, id_: str, command: Callable[[V | None], Decision[V, R]]) -> R:
        """Apply a command to the newest value, save, and return its result. Refusals are raised; then nothing changed.

        The command may be called more than once and must not do anything but decide.
        """
        caller: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        queue = self._waiting.get(id_)
        if queue is None:
            queue = self._waiting[id_] = []
            self._tasks.create_task(self._drain(id_), name=f"save {self._shelf.kind.value} {id_}")
        elif len(queue) >= WAITING:
            raise NotSaved(f"{WAITING} requests wait for {id_} already")
        queue.append(Waiting(command, caller))
        return await caller

    async def _drain(self, id_: str) -> None:
        try:
            while batch := self._waiting[id_]:
                self._waiting[id_] = []
                await self._settle(id_, batch)
        finally:
            for _, caller in self._waiting.pop(id_):
                caller.cancel()
            self._on_idle(id_)

    async def _settle(self, id_: str, batch: list[Waiting[V]]) -> None:
        try:
            answers = await self._decide_and_save(id_, batch)
        except NotSaved as error:
            answers = [error] * len(batch)
        except StoreError as error:
            answers = [NotSaved(str(error))] * len(batch)
        except asyncio.CancelledError:
            for _, caller in batch:
                caller.cancel()
            raise
        for (_, caller), answer in zip(batch, answers, strict=True):
            if caller.done():
                continue
            if isinstance(answer, Exception):
                caller.set_exception(answer)
            else:
                caller.set_result(answer)

    async def _decide_and_save(self, id_: str, batch: list[Waiting[V]]) -> list[Any]:
        for _ in range(CONFLICTS):
            basis = self._basis()
            old, revision = self._shelf.newest(id_)
            value, entries, answers = await self._decide(old, batch)
            if self._basis() is not basis:
                continue
            if value is old and not entries:
                return answers
            if value is None and old is None:
                return [answer for one in batch for answer in await self._decide_and_save(id_, [one])]
            try:
                await self._save(id_, value, entries, revision)
            except Conflict:
                await self._reload(id_)
            else:
                self._on_saved(old, value, entries)
                return answers
        raise NotSaved(f"other processes have changed {id_} {CONFLICTS} times in a row")

    async def _decide(self, value: V | None, batch: list[Waiting[V]]) -> tuple[V | None, list[Entry], list[Any]]:
        entries: list[Entry] = []
        answers: list[Any] = []
        for command, _ in batch:
            await self._turns.mine()
            try:
                decision = command(value)
            except Exception as refusal:  # noqa: BLE001 - one command's mistake must not hit those that wait beside it
                answers.append(refusal)
            else:
                value = decision.value
                entries += decision.entries
                answers.append(decision.result)
        return value, entries, answers

    async def _save(self, id_: str, value: V | None, entries: list[Entry], revision: int | None) -> None:
        encoded = None if value is None else self._shelf.encode(value)
        with self._noted():
            saved = await self._store.save(Key(self._shelf.kind, id_), encoded, entries, expected=revision)
            self._shelf.take(id_, value, saved)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        saving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._saving.add(saving)
        try:
            yield
        finally:
            self._saving.discard(saving)
            saving.set_result(None)

    async def _reload(self, id_: str) -> None:
        record = await self._store.load(Key(self._shelf.kind, id_))
        if record is None:
            await asyncio.sleep(DELETION)
        else:
            self._shelf.take(id_, self._shelf.decode(record.value), record.revision)
