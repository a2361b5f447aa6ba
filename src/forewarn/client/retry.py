"""Retries: exponential backoff with jitter, the retry window of each error, the rate-limited log of errors."""

from collections.abc import Callable
from typing import TypeAlias

from forewarn.client.errors import ClientError, Unavailable
from forewarn.core.backoff import pause_after

RETRY_FOR = 30.0
"""For how many seconds a question is asked again, unless the user says how long."""
RETRY_GONE_FOR = 70.0
"""For how many while the service says 410: so long may an update of it take."""

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 5.0
"""The backoff doubles from the first to the longest. It must not last through the 30 s notice of an eviction."""
LONGEST_RETRY_AFTER = 70.0
"""The service may ask for a longer pause than ours (Retry-After), up to this one."""


def retry_pause(error: ClientError, failures: int, jitter: float) -> float:
    """Return how long to wait after so many failures in a row.

    `jitter`, from 0 to 1, spreads the pauses: not all VMs are to come back in the same moment.
    """
    longest = pause_after(failures, FIRST_PAUSE, LONGEST_PAUSE)
    retry_after = error.retry_after if isinstance(error, Unavailable) else None
    if retry_after is not None:
        return min(retry_after, LONGEST_RETRY_AFTER) + longest * jitter / 2
    return longest * (1 + jitter) / 2


def retry_window(error: ClientError, retry_for: float | None) -> float:
    """Return for how many seconds a question is worth asking that brings this error; not at all if it will not pass."""
    if not error.is_passing:
        return 0.0
    if retry_for is not None:
        return retry_for
    return RETRY_GONE_FOR if isinstance(error, Unavailable) and error.status == 410 else RETRY_FOR


LOGGER = "forewarn.client"

OnTrouble: TypeAlias = Callable[[ClientError, float], None]
"""Is told why it is tried again, and after how many seconds."""


QUIET_FOR = 600.0
"""For how many seconds the same warning is not repeated: a VM without a service would fill its log with it."""


class RetryLog:
    """Warns in the log of this library; what it has said lately, it says for those who debug alone."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last_message = ""
        self._last_logged_at = 0.0

    def __call__(self, error: ClientError, pause: float) -> None:
        # Most programs never see trouble: the import can wait until there is some.
        import logging

        level = logging.WARNING if self._is_new(str(error)) else logging.DEBUG
        logging.getLogger(LOGGER).log(level, "%s (asking again in %.1f s)", error, pause)

    def _is_new(self, message: str) -> bool:
        now = self._monotonic()
        if message == self._last_message and now < self._last_logged_at + QUIET_FOR:
            return False
        self._last_message, self._last_logged_at = message, now
        return True
