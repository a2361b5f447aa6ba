"""What becomes of troubles that are only passing: by default, a warning in the log."""

from collections.abc import Callable
from typing import TypeAlias

from forewarn.client.errors import ClientError

LOGGER = "forewarn.client"

OnTrouble: TypeAlias = Callable[[ClientError, float], None]
"""Is told why it is tried again, and after how many seconds."""


def log_trouble(error: ClientError, pause: float) -> None:
    """Warn in the log of this library."""
    # Most programs never see trouble: the import can wait until there is some.
    import logging

    logging.getLogger(LOGGER).warning("%s (asking again in %.1f s)", error, pause)
