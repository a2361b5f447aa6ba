"""How long to wait before asking again, and for how long to go on asking."""

from forewarn.client.errors import ClientError, Unavailable

RETRY_FOR = 30.0
"""For how many seconds a question is asked again, unless the user says how long."""
RETRY_GONE_FOR = 70.0
"""For how many while the service says 410: so long may an update of it take."""

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 5.0
"""Pauses double from the first to the longest. An eviction is announced 30 s ahead: nobody may sleep through that."""
LONGEST_ASKED_PAUSE = 70.0
"""The service may ask for a longer pause than ours (Retry-After), up to this one."""


def pause_after(error: ClientError, failures: int, chance: float) -> float:
    """Return how long to wait after so many failures in a row.

    `chance`, from 0 to 1, spreads the pauses: not all VMs are to come back in the same moment.
    """
    longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, 16))
    asked = error.retry_after if isinstance(error, Unavailable) else None
    if asked is not None:
        return min(asked, LONGEST_ASKED_PAUSE) + longest * chance / 2
    return longest * (1 + chance) / 2


def patience_with(error: ClientError, retry_for: float | None) -> float:
    """Return for how many seconds a question is worth asking that brings this error; not at all if it will not pass."""
    if not error.is_passing:
        return 0.0
    if retry_for is not None:
        return retry_for
    return RETRY_GONE_FOR if isinstance(error, Unavailable) and error.status == 410 else RETRY_FOR
