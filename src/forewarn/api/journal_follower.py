"""Journal follower: reads new entries of the journal without end, and resumes where it was after a lost connection."""

import threading
from collections.abc import Iterator
from typing import NamedTuple

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import ApiError, RequestRefused, ServiceUnreachable
from forewarn.core.backoff import backoff

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 5.0
"""The pauses, in seconds, between attempts to reconnect."""

POSITION_LOST_CODES = frozenset({"journal-pruned", "position-not-found"})
"""Error codes if the service does not have our position any more. Then the follower continues with new entries."""


class Heartbeat(NamedTuple):
    """The service is reachable and has no new entries."""


class StreamUnavailable(NamedTuple):
    """The service cannot be reached for now."""

    reason: str


class StreamResumed(NamedTuple):
    """The service can be reached again."""


def follow_journal(
    api: ApiClient,
    *,
    after: int | None = None,
    campaign: str | None = None,
    is_known: bool = False,
    closed: threading.Event | None = None,
) -> Iterator[v1.JournalEntry | Heartbeat | StreamUnavailable | StreamResumed]:
    """Yield entries after a position, or from now on, and the state of the connection.

    `closed` ends it, but is checked only between connections: one that is open goes on until it is lost or ends.
    Raises ApiError if the service refuses, or if the first connection fails and the service is not known to exist.
    """
    closed, is_lost, pauses = closed or threading.Event(), False, backoff(FIRST_PAUSE, LONGEST_PAUSE)
    while not closed.is_set():
        try:
            for entry in api.watch(after=after, campaign=campaign):
                if is_lost:
                    yield StreamResumed()
                is_known, is_lost, pauses = True, False, backoff(FIRST_PAUSE, LONGEST_PAUSE)
                after = after if entry is None else entry.position
                yield entry or Heartbeat()
        except ApiError as error:
            if not is_known or not _is_transient(error):
                raise
            if isinstance(error, RequestRefused) and error.code in POSITION_LOST_CODES:
                after = None
            if not is_lost:
                yield StreamUnavailable(str(error))
            is_lost = True
        closed.wait(next(pauses))


def _is_transient(error: ApiError) -> bool:
    """Return whether a retry may help: the service restarts or is overloaded."""
    return isinstance(error, ServiceUnreachable) or (
        isinstance(error, RequestRefused) and (error.status >= 500 or error.code in POSITION_LOST_CODES)
    )
