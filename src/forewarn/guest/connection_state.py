"""States of a connection and the timeout of each."""

import math
import sys
from datetime import timedelta
from enum import Enum

from forewarn.guest.limits import Limits


class ConnectionState(Enum):
    """State of a connection: what it waits for."""

    IDLE = "a request"
    HEAD = "the rest of the request headers"
    BODY = "the rest of the request body"
    RESPONDING = "our response"
    THROTTLED = "the next second, because the peer exceeded the limit of refusals"
    UNREAD = "the peer to read its responses"
    LINGERING = "the peer to read the refusal"
    CLOSED = "the peer to read its last response"


NO_TIMEOUT = sys.maxsize


def connection_timeouts(limits: Limits) -> dict[ConnectionState, int]:
    """Return the timeout of each state in seconds."""
    timeouts = {
        ConnectionState.THROTTLED: timedelta(0),
        ConnectionState.IDLE: limits.idle_timeout,
        ConnectionState.HEAD: limits.header_timeout,
        ConnectionState.BODY: limits.body_timeout,
        ConnectionState.UNREAD: limits.unread_timeout,
        ConnectionState.LINGERING: limits.linger_timeout,
        ConnectionState.CLOSED: limits.unread_timeout,
    }
    return dict.fromkeys(ConnectionState, NO_TIMEOUT) | {
        phase: math.ceil(time.total_seconds()) for phase, time in timeouts.items()
    }
