"""Group commit: saves that arrive while a transaction runs are batched into the next one.

A disk makes one large write durable in hardly more time than a small one, so batching makes durable saves fast under
load. Everything here runs on the store's event loop; only the transaction itself runs in the writer thread.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

from forewarn.core.backoff import backoff
from forewarn.store.port import Deleted, Record, SaveUnknown, StoreError
from forewarn.store.sqlite.writer import Save, SaveResult

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""The pauses, in seconds, between attempts to find out what became of saves."""

BATCH_SAVES = 1_000
BATCH_BYTES = 4 << 20

RESULTS_AT_ONCE = 16
"""How many savers get their results in one iteration of the event loop: each then updates memory and notifies others,
and a batch of hundreds would keep everything else waiting."""


class _PendingSave(NamedTuple):
    save: Save
    result: asyncio.Future[int]


class GroupCommit:
    """Accepts saves one by one, commits them together, and returns to each its own revision or error."""

    def __init__(
        self,
        thread: Executor,
        commit: Callable[[Sequence[Save]], list[SaveResult]],
        settle: Callable[[], list[SaveResult]],
        publish: Callable[[Record | Deleted], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = thread
        self._commit = commit
        self._settle = settle
        self._settling: asyncio.Task[None] | None = None
        self._publish = publish
        self._pending: deque[_PendingSave] = deque()
        self._idle = asyncio.Event()
        self._idle.set()

    async def save(self, save: Save) -> int:
        """Return the new revision once the save is durable. Cancelling the call does not undo the save."""
        result: asyncio.Future[int] = self._loop.create_future()
        self._pending.append(_PendingSave(save, result))
        if self._idle.is_set():
            self._idle.clear()
            self._loop.call_soon(self._start_batch)  # not at once: other tasks that are ready to save join the batch
        return await result

    async def drain(self) -> None:
        """Wait until every save has its result. What became of saves whose outcome is unknown stays open."""
        await self._idle.wait()
        if self._settling is not None:
            self._settling.cancel()
            await asyncio.wait({self._settling})

    def _start_batch(self) -> None:
        batch = self._take_batch()
        if not batch:
            self._idle.set()
            return
        commit = self._loop.run_in_executor(self._thread, self._commit, [waiting.save for waiting in batch])
        commit.add_done_callback(partial(self._finish, batch))

    def _take_batch(self) -> list[_PendingSave]:
        batch: list[_PendingSave] = []
        size = 0
        while self._pending and len(batch) < BATCH_SAVES and size < BATCH_BYTES:
            batch.append(self._pending.popleft())
            size += len(batch[-1].save.value or b"")
        return batch

    def _finish(self, batch: list[_PendingSave], commit: asyncio.Future[list[SaveResult]]) -> None:
        if unexpected := commit.exception():
            for waiting in batch:
                _fail(waiting, unexpected)
            self._loop.call_soon(self._start_batch)
        else:
            if any(isinstance(outcome, SaveUnknown) for outcome in commit.result()):
                self._settling = self._loop.create_task(self._settle_later(), name="settle the log")
            self._resolve_some(batch, commit.result())

    def _resolve_some(self, batch: list[_PendingSave], outcomes: list[SaveResult]) -> None:
        """Return some results and publish them, then the others in later iterations of the event loop."""
        some, others = outcomes[:RESULTS_AT_ONCE], outcomes[RESULTS_AT_ONCE:]
        # Savers first, then watchers: a task that does both knows its value before the watch yields it.
        for waiting, outcome in zip(batch, some, strict=False):
            _resolve(waiting, outcome)
        self._publish_saved(some)
        if others:
            self._loop.call_soon(self._resolve_some, batch[RESULTS_AT_ONCE:], others)
        else:
            self._loop.call_soon(self._start_batch)  # after the callers that just got results: they may save more

    def _publish_saved(self, outcomes: Sequence[SaveResult]) -> None:
        for outcome in outcomes:
            if not isinstance(outcome, StoreError):
                self._publish(outcome)

    async def _settle_later(self) -> None:
        """Retry until it is known what became of the saves; until then the writer refuses others."""
        for pause in backoff(FIRST_PAUSE, LONGEST_PAUSE):
            await asyncio.sleep(pause)
            try:
                outcomes = await self._loop.run_in_executor(self._thread, self._settle)
            except StoreError as error:
                log.warning("it is not known whether the last changes were saved, no change is accepted: %s", error)
                continue
            saved = sum(not isinstance(outcome, StoreError) for outcome in outcomes)
            log.warning(
                "changes are accepted again; of the changes whose outcome was unknown, %d were saved and %d were not",
                saved,
                len(outcomes) - saved,
            )
            self._publish_saved(outcomes)
            return


def _resolve(pending: _PendingSave, outcome: SaveResult) -> None:
    if isinstance(outcome, StoreError):
        _fail(pending, outcome)
    elif not pending.result.done():
        pending.result.set_result(outcome.revision)


def _fail(pending: _PendingSave, error: BaseException) -> None:
    if not pending.result.done():
        pending.result.set_exception(error)
