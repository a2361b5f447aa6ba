"""Duties: what one process does for the whole fleet or for a host, and another process can take over.

The duties start due events, run campaigns, carry out impacts and prune the journal. Serving guests and operators is
not a duty: every process does that. A duty acts only on saved state, never on its own memory, so it can be stopped in
one process and started in another.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Protocol

from forewarn.fleet.main_loop import MainLoop
from forewarn.store.port import NO_GUARDS, Guards


def no_guards() -> Guards:
    """Return no guards: no other process can have the duty."""
    return NO_GUARDS


class Duty(Protocol):
    """Work that only one process should do at a time."""

    async def start(self) -> None:
        """Start the duty and continue from the saved state; no effect if it is already started."""
        ...

    def halt(self) -> None:
        """Cancel all tasks and begin nothing more, at once, for example because the service stops."""
        ...

    async def stop(self) -> None:
        """Stop the duty; no effect if it is not started. On return none of its tasks is running."""
        ...


class DutyWork:
    """The tasks of a duty. A task that fails stops the service; a cancelled one does not."""

    def __init__(self, main_loop: MainLoop) -> None:
        self._main_loop = main_loop
        self._tasks: set[asyncio.Task[None]] = set()

    def create(
        self, work: Coroutine[object, object, None], *, name: str, on_done: Callable[[], None] | None = None
    ) -> asyncio.Task[None]:
        """Start a task. `on_done` is called at its end, whatever the result."""
        task = self._main_loop.tasks.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(partial(self._finish, on_done))
        return task

    @property
    def is_busy(self) -> bool:
        """Whether a task is running."""
        return bool(self._tasks)

    def halt(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        """Cancel all tasks, and wait until they have ended and none of their saves is pending."""
        self.halt()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
        await self._main_loop.drain()

    def _finish(self, on_done: Callable[[], None] | None, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if on_done is not None:
            on_done()
