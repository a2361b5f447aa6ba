"""Tasks that end with their owner."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class _Over(Exception):
    """The context has ended in order."""


@asynccontextmanager
async def tasks_until_exit() -> AsyncIterator[asyncio.TaskGroup]:
    """Give a task group that is cancelled, not awaited, at the end; the body's own error stays what it is."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
            raise _Over
    except BaseExceptionGroup as group:
        _, errors = group.split(_Over)
        if errors is not None:
            raise (errors.exceptions[0] if len(errors.exceptions) == 1 else errors) from None
