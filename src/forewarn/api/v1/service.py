"""Service types: health, clock and tokens."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec

from forewarn.api.v1.common import Duration, Moment, Request, Response
from forewarn.api.v1.events import JournalEntry
from forewarn.core.access import Role
from forewarn.core.text import Name

__all__ = [
    "AdvanceClock",
    "AdvanceResult",
    "Clock",
    "CreateToken",
    "Health",
    "NewToken",
    "Principal",
    "Readiness",
    "Token",
    "TokenPage",
]


class Clock(Response, frozen=True):
    """The service's time. `manual`: it moves only when told to; then before `next_change_at` nothing happens by itself.

    `speed`: notices and durations are divided by this when an event is made.
    """

    now: datetime
    manual: bool
    next_change_at: datetime | None
    speed: float = 1.0


class AdvanceResult(Clock, frozen=True, kw_only=True):
    """The service's time after a manual clock was moved, and how events and campaigns have changed on the way.

    They are in order. Of many changes it has the first ones; the journal has all.
    """

    changes: Sequence[JournalEntry]


class AdvanceClock(Request, frozen=True):
    """Move a manual clock: by a duration, or to the next change of an event."""

    duration: Duration | None = None
    to_next_change: bool = False


class Health(Response, frozen=True):
    """The service is there."""

    status: str
    version: str


class Readiness(Response, frozen=True):
    """Whether the service can do its work; if not, why."""

    ready: bool
    problems: Sequence[str]


class Token(Response, frozen=True):
    """Somebody who may ask: what for, in which scopes (none are all), and until when."""

    id: str
    name: str
    role: Role
    scopes: Sequence[str]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None


class TokenPage(Response, frozen=True):
    """All tokens, the oldest first."""

    tokens: Sequence[Token]


class NewToken(Response, frozen=True):
    """A token that was just made. `secret` is shown this once, and kept nowhere."""

    token: Token
    secret: str


class CreateToken(Request, frozen=True):
    """Make a token. `scopes` are names, or patterns such as `web-*`; none are all scopes."""

    name: Name
    role: Role
    scopes: Annotated[Sequence[Name], msgspec.Meta(max_length=64)] = ()
    expires_at: Moment | None = None


class Principal(Response, frozen=True):
    """Who is asking."""

    name: str
    role: Role
    scopes: Sequence[str]
