"""What a connection can wait for, and for how long it may."""

import math
import sys
from datetime import timedelta
from enum import Enum

from forewarn.guest.limits import Limits


class Phase(Enum):
    """What a connection waits for."""

    IDLE = "a request"
    HEAD = "the rest of a request's head"
    BODY = "the rest of a request's body"
    ANSWERING = "our own answer"
    RESTRAINED = "the next second, because the peer has asked far too often in this one"
    UNREAD = "the peer, to read its answers"
    LINGERING = "the peer, to read why it was refused"
    CLOSED = "the peer, to read its last answer"


FOR_EVER = sys.maxsize


def patience(limits: Limits) -> dict[Phase, int]:
    """Return for how many seconds a connection may stay in each phase."""
    times = {
        Phase.RESTRAINED: timedelta(0),
        Phase.IDLE: limits.idle_timeout,
        Phase.HEAD: limits.header_timeout,
        Phase.BODY: limits.body_timeout,
        Phase.UNREAD: limits.unread_timeout,
        Phase.LINGERING: limits.linger_timeout,
        Phase.CLOSED: limits.unread_timeout,
    }
    return dict.fromkeys(Phase, FOR_EVER) | {phase: math.ceil(time.total_seconds()) for phase, time in times.items()}
