"""What becomes of troubles that are only passing: by default, a warning in the log."""

from collections.abc import Callable
from typing import TypeAlias

from forewarn.client.errors import ClientError

LOGGER = "forewarn.client"

OnTrouble: TypeAlias = Callable[[ClientError, float], None]
"""Is told why it is tried again, and after how many seconds."""


QUIET_FOR = 600.0
"""For how many seconds the same warning is not repeated: a VM without a service would fill its log with it."""


class TroubleLog:
    """Warns in the log of this library; what it has said lately, it says for those who debug alone."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._said = ""
        self._said_at = 0.0

    def __call__(self, error: ClientError, pause: float) -> None:
        # Most programs never see trouble: the import can wait until there is some.
        import logging

        level = logging.WARNING if self._is_news(str(error)) else logging.DEBUG
        logging.getLogger(LOGGER).log(level, "%s (asking again in %.1f s)", error, pause)

    def _is_news(self, message: str) -> bool:
        now = self._monotonic()
        if message == self._said and now < self._said_at + QUIET_FOR:
            return False
        self._said, self._said_at = message, now
        return True
