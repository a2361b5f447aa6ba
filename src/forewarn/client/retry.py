"""Retries: exponential backoff with jitter, the retry window of each error, the rate-limited log of errors."""

from collections.abc import Callable
from typing import TypeAlias

from forewarn.client.errors import ClientError, Unavailable
from forewarn.core.backoff import pause_after

RETRY_FOR = 30.0
"""For how many seconds a request is retried by default."""
RETRY_GONE_FOR = 70.0
"""The same while the service answers 410, which it does while it is being updated."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 5.0
"""The backoff doubles from the first to the longest pause. It must be short against the 30 s notice of an eviction."""
LONGEST_RETRY_AFTER = 70.0
"""The longest pause that the service can request with Retry-After."""


def retry_pause(error: ClientError, failures: int, jitter: float) -> float:
    """Return how long to wait after this many failures in a row.

    `jitter`, from 0 to 1, spreads the retries of many VMs over time.
    """
    longest = pause_after(failures, FIRST_PAUSE, LONGEST_PAUSE)
    retry_after = error.retry_after if isinstance(error, Unavailable) else None
    if retry_after is not None:
        return min(retry_after, LONGEST_RETRY_AFTER) + longest * jitter / 2
    return longest * (1 + jitter) / 2


def retry_window(error: ClientError, retry_for: float | None) -> float:
    """Return for how many seconds to retry after this error; 0 if it is not transient."""
    if not error.is_passing:
        return 0.0
    if retry_for is not None:
        return retry_for
    return RETRY_GONE_FOR if isinstance(error, Unavailable) and error.status == 410 else RETRY_FOR


LOGGER = "forewarn.client"

OnTrouble: TypeAlias = Callable[[ClientError, float], None]
"""Called before each retry, with the error and the pause in seconds."""


QUIET_FOR = 600.0
"""For how many seconds the same warning is not repeated, so that an outage does not fill the log."""


def log_message(message: str) -> None:
    """Log a message for the user of the library."""
    # Imported late: most programs never log anything here.
    import logging

    logging.getLogger(LOGGER).info(message)


class RetryLog:
    """Logs a warning before a retry; a repetition within `QUIET_FOR` is logged at debug level."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last_message = ""
        self._last_logged_at = 0.0

    def __call__(self, error: ClientError, pause: float) -> None:
        import logging

        level = logging.WARNING if self._is_new(str(error)) else logging.DEBUG
        logging.getLogger(LOGGER).log(level, "%s (retrying in %.1f s)", error, pause)

    def _is_new(self, message: str) -> bool:
        now = self._monotonic()
        if message == self._last_message and now < self._last_logged_at + QUIET_FOR:
            return False
        self._last_message, self._last_logged_at = message, now
        return True
