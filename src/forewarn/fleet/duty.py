"""Duties: what one process does for the whole fleet or for a host, and another one may take over.

The scheduler starts due events, campaigns run, impacts are carried out, the journal is pruned. Answering guests and
operators needs no duty: every process does that. A duty acts on what is saved, never on what it did itself before: so
it can be stopped in one process and started in another.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Protocol

from forewarn.fleet.main_loop import MainLoop


class Duty(Protocol):
    """Something that only one process should do at a time."""

    async def start(self) -> None:
        """Take the duty, and go on with what is saved; without effect where it is held."""
        ...

    def halt(self) -> None:
        """Begin nothing more, at once: the service ends. What is under way is cancelled with it."""
        ...

    async def stop(self) -> None:
        """Give the duty back; without effect where it is not held. On return nothing of it is under way."""
        ...


class DutyWork:
    """The tasks of a duty. A task that fails ends the service; one that is cancelled does not."""

    def __init__(self, main_loop: MainLoop) -> None:
        self._main_loop = main_loop
        self._tasks: set[asyncio.Task[None]] = set()

    def create(
        self, work: Coroutine[object, object, None], *, name: str, on_done: Callable[[], None] | None = None
    ) -> asyncio.Task[None]:
        """Start a task. `on_done` is called at its end, whatever that is."""
        task = self._main_loop.tasks.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(partial(self._finish, on_done))
        return task

    @property
    def is_busy(self) -> bool:
        """Whether a task is under way."""
        return bool(self._tasks)

    async def cancel(self) -> None:
        """Cancel all tasks, and wait until they have ended and nothing of theirs is being saved."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._main_loop.drain()

    def _finish(self, on_done: Callable[[], None] | None, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if on_done is not None:
            on_done()
