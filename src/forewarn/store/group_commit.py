"""Group commit: while one transaction is under way, all saves that are asked for gather for the next one.

A disk makes one large write durable in hardly more time than a small one: under load this is what makes a durable
store fast. Everything here runs on the store's event loop, only the transaction itself runs in the writer's thread.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

from forewarn.store.port import Deleted, Record, StoreError
from forewarn.store.writing import Outcome, Save

BATCH_SAVES = 1_000
BATCH_BYTES = 16 << 20


class _Waiting(NamedTuple):
    save: Save
    answer: asyncio.Future[int]


class GroupCommit:
    """Takes saves one by one, commits them together, and answers each with its own revision or error."""

    def __init__(
        self,
        thread: Executor,
        commit: Callable[[Sequence[Save]], list[Outcome]],
        publish: Callable[[Record | Deleted], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = thread
        self._commit = commit
        self._publish = publish
        self._waiting: deque[_Waiting] = deque()
        self._idle = asyncio.Event()
        self._idle.set()

    async def save(self, save: Save) -> int:
        """Return the new revision once the save is durable. Cancelling this does not take the save back."""
        answer: asyncio.Future[int] = self._loop.create_future()
        self._waiting.append(_Waiting(save, answer))
        if self._idle.is_set():
            self._idle.clear()
            self._loop.call_soon(self._begin)  # not at once: whoever else is ready to save now joins in
        return await answer

    async def drain(self) -> None:
        """Wait until every save has its answer."""
        await self._idle.wait()

    def _begin(self) -> None:
        batch = self._take_batch()
        if not batch:
            self._idle.set()
            return
        committing = self._loop.run_in_executor(self._thread, self._commit, [waiting.save for waiting in batch])
        committing.add_done_callback(partial(self._finish, batch))

    def _take_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        while self._waiting and len(batch) < BATCH_SAVES and size < BATCH_BYTES:
            batch.append(self._waiting.popleft())
            size += len(batch[-1].save.value or b"")
        return batch

    def _finish(self, batch: list[_Waiting], committing: asyncio.Future[list[Outcome]]) -> None:
        if unforeseen := committing.exception():
            for waiting in batch:
                _refuse(waiting, unforeseen)
        else:
            # First those who saved, then those who watch: whoever does both knows the value before it is told again.
            for waiting, outcome in zip(batch, committing.result(), strict=True):
                _answer(waiting, outcome)
            for outcome in committing.result():
                if not isinstance(outcome, StoreError):
                    self._publish(outcome)
        self._loop.call_soon(self._begin)  # after those who were just answered: they may have more to save


def _answer(waiting: _Waiting, outcome: Outcome) -> None:
    if isinstance(outcome, StoreError):
        _refuse(waiting, outcome)
    elif not waiting.answer.done():
        waiting.answer.set_result(outcome.revision)


def _refuse(waiting: _Waiting, error: BaseException) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(error)
