"""Retries: repeats what has to be saved until the store can save it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from forewarn.core.backoff import backoff
from forewarn.fleet.errors import SAVE_ERRORS

log = logging.getLogger(__name__)
R = TypeVar("R")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""The pause between attempts, in seconds of real time."""


async def repeat_until_saved(
    what: str, operation: Callable[[], Awaitable[R]], errors: tuple[type[Exception], ...] = SAVE_ERRORS
) -> R:
    """Repeat the operation, with exponential backoff, while it raises one of these errors, and return its result.

    `what` is the verb and object of the log line: could not `what`.
    """
    pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
    while True:
        try:
            return await operation()
        except errors as error:
            pause = next(pauses)
            log.warning("could not %s: %s; retrying in %.1f s", what, error, pause)
            await asyncio.sleep(pause)
