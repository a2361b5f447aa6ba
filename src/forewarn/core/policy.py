"""The service's policy, and the context in which a rule is applied: policy, fleet-wide hold, outages."""

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from forewarn.core.errors import Invalid
from forewarn.core.event import EventType
from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.scope import Hold


class AnnouncePolicy(StrEnum):
    """Whether events are announced to scopes that have never asked, or not for a day."""

    ALWAYS = "always"
    WHEN_ENABLED = "when-enabled"


def _minimum_notices() -> dict[EventType, timedelta]:
    return {type_: spec.minimum_notice for type_, spec in EVENT_TYPES.items()}


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The choices of whoever runs the service. The defaults are the production preset."""

    announce: AnnouncePolicy = AnnouncePolicy.WHEN_ENABLED
    minimum_notice: dict[EventType, timedelta] = msgspec.field(default_factory=_minimum_notices)
    enforce_notice: bool = True
    idle_after: timedelta | None = timedelta(hours=24)
    user_operations: int = 10
    speed: float = 1.0

    def __post_init__(self) -> None:
        if missing := [kind.value for kind in EventType if kind not in self.minimum_notice]:
            raise Invalid(f"minimum_notice says nothing for {', '.join(missing)}")
        if not self.speed > 0:
            raise Invalid(f"speed is a number above 0, not {self.speed}")
        if self.user_operations < 1:
            raise Invalid("user_operations is at least 1")


EMULATOR = Policy(announce=AnnouncePolicy.ALWAYS, enforce_notice=False, idle_after=None)
"""Always announces, never switches off, takes any notice."""

PRODUCTION = Policy()


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """A time during which the service was down: no scope could ask, so it counts for none as silence."""

    began_at: datetime
    ended_at: datetime


class RuleContext(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a rule needs to know besides the scope and the time."""

    policy: Policy = PRODUCTION
    hold: Hold | None = None
    outages: tuple[Outage, ...] = ()
