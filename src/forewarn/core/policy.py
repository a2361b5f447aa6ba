"""The service's policy, and the context in which a rule is applied: policy, fleet-wide hold, outages."""

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from forewarn.core.duration import at_speed
from forewarn.core.errors import Invalid
from forewarn.core.event import EventType
from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.scope import Hold


class AnnouncePolicy(StrEnum):
    """Whether events are announced in scopes that are not enabled."""

    ALWAYS = "always"
    WHEN_ENABLED = "when-enabled"


def _minimum_notices() -> dict[EventType, timedelta]:
    return {type_: spec.minimum_notice for type_, spec in EVENT_TYPES.items()}


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the rules. The defaults are the production preset."""

    announce: AnnouncePolicy = AnnouncePolicy.WHEN_ENABLED
    minimum_notice: dict[EventType, timedelta] = msgspec.field(default_factory=_minimum_notices)
    enforce_notice: bool = True
    idle_after: timedelta | None = timedelta(hours=24)
    user_operations: int = 10
    speed: float = 1.0
    allows_unreleased: bool = False
    """Whether events can have types that are not generally available on Azure."""
    shortest_notice: timedelta = timedelta(0)
    """The speed makes no notice shorter than this; a notice that is shorter by itself stays as it is."""

    def __post_init__(self) -> None:
        if missing := [kind.value for kind in EventType if kind not in self.minimum_notice]:
            raise Invalid(f"minimum_notice has no value for {', '.join(missing)}")
        if not self.speed > 0:
            raise Invalid(f"speed must be greater than 0, got {self.speed}")
        if self.user_operations < 1:
            raise Invalid("user_operations must be at least 1")

    def faster_notice(self, notice: timedelta) -> timedelta:
        """Return the notice at the service's speed."""
        return max(at_speed(notice, self.speed), min(notice, self.shortest_notice))

    def announces(self, *, enabled: bool) -> bool:
        """Return whether the document shows new events of a scope that is enabled, or is not."""
        return enabled or self.announce is AnnouncePolicy.ALWAYS


EMULATOR = Policy(announce=AnnouncePolicy.ALWAYS, enforce_notice=False, idle_after=None)
"""Always announces, never disables a scope, accepts any notice."""

PRODUCTION = Policy()


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which the service was down; it does not count towards a scope's idle timeout."""

    began_at: datetime
    ended_at: datetime


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about the process of a host."""

    silent_since: datetime | None = None
    """When it was last heard from, if that is too long ago."""
    is_unheard: bool = False
    """Whether this process has not heard from it at all."""

    @property
    def is_silent(self) -> bool:
        """Whether it cannot be relied on now."""
        return self.is_unheard or self.silent_since is not None


class RuleContext(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a rule needs besides the scope and the time."""

    policy: Policy = PRODUCTION
    hold: Hold | None = None
    outages: tuple[Outage, ...] = ()
    hosts: dict[str, HostState] | None = None
    """The hosts whose processes are known; None outside a cluster, where one process has all VMs."""
    starts_due: bool = True
    """Whether due events start. In a cluster only the holder of the clock lease starts them, by its own clock."""
