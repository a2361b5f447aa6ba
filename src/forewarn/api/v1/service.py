"""Service types: health, clock and tokens."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec

from forewarn.api.v1.common import Duration, Moment, Request, Response
from forewarn.api.v1.events import JournalEntry
from forewarn.core.access import Role, ScopePattern
from forewarn.core.limits import MAX_SPEED
from forewarn.core.text import Name

__all__ = [
    "AdvanceClock",
    "AdvanceResult",
    "Clock",
    "CreateToken",
    "Health",
    "NewCalendar",
    "NewToken",
    "Principal",
    "Readiness",
    "SetSpeed",
    "Token",
    "TokenPage",
]


class Clock(Response, frozen=True):
    """The service's time. A `manual` clock moves only on request; nothing is due before `next_change_at`.

    `speed`: notices and durations of new events are divided by this; but no notice gets shorter than
    `shortest_notice`, unless it is shorter by itself.
    """

    now: datetime
    manual: bool
    next_change_at: datetime | None
    speed: float = 1.0
    shortest_notice: str = "0s"


class AdvanceResult(Clock, frozen=True, kw_only=True):
    """The service's time after an advance, and the changes of events and campaigns in this time, in order.

    Of many changes it has the first ones; the journal has all.
    """

    changes: Sequence[JournalEntry]


class AdvanceClock(Request, frozen=True):
    """Advance a manual clock by a duration, or to the next change of an event."""

    duration: Duration | None = None
    to_next_change: bool = False


class SetSpeed(Request, frozen=True):
    """Set the speed: notices and durations of new events are divided by it."""

    speed: Annotated[float, msgspec.Meta(gt=0, le=MAX_SPEED)]


class Health(Response, frozen=True):
    """The service is alive."""

    status: str
    version: str


class Readiness(Response, frozen=True):
    """Whether the service is ready, and its problems. A service that is ready may have problems of single VMs."""

    ready: bool
    problems: Sequence[str]
    clock_offset_seconds: float | None = None
    """How far the clock is ahead of the NATS servers; null without such servers."""


class Token(Response, frozen=True):
    """An API token with its role, its scopes (empty: all) and its expiry."""

    id: str
    name: str
    role: Role
    scopes: Sequence[str]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None


class TokenPage(Response, frozen=True):
    """All tokens, oldest first."""

    tokens: Sequence[Token]


class NewToken(Response, frozen=True):
    """A new token. `secret` is shown only here and not stored."""

    token: Token
    secret: str


class CreateToken(Request, frozen=True):
    """Create a token. `scopes` are names, or patterns such as `web-*`; empty means all scopes."""

    name: Name
    role: Role
    scopes: Annotated[Sequence[ScopePattern], msgspec.Meta(max_length=64)] = ()
    expires_at: Moment | None = None


class NewCalendar(Response, frozen=True):
    """The secret address of a calendar: a path of this service. It is shown only here and not stored."""

    path: str


class Principal(Response, frozen=True):
    """The caller, as its token identifies it."""

    name: str
    role: Role
    scopes: Sequence[str]
