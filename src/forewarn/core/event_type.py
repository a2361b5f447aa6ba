"""All facts of each event type, in one table. A missing row or fact fails at import."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import StrEnum

import msgspec

from forewarn.core.api_version import UNRELEASED_VERSION, ApiVersion
from forewarn.core.event import Cause, Event, EventType, Source


class Effect(StrEnum):
    """What the event does to the VM."""

    PAUSE = "the VM is paused, and memory is kept"
    RESTART = "the VM restarts, and memory is lost"
    MOVE = "the VM moves to another host, and memory and ephemeral disks are lost"
    REMOVE = "the VM leaves its scope"
    NONE = "nothing: the VM can be evicted soon"


class EventTypeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one event type."""

    type: EventType
    effect: Effect
    minimum_notice: timedelta
    """PROTOCOL §6."""
    causes: Mapping[Source, Cause]
    """Which sources may request it, and the cause that the event then has."""
    descriptions: Mapping[Cause, str]
    """The event's `Description` by cause. A hardware failure is not requested by a source, so it occurs only here."""
    since: ApiVersion
    """The first api-version that has the type; documents of older versions omit its events."""
    default_duration: timedelta
    """How long it takes on the simulated platform by default (settings: `simulated.*`)."""
    announced_duration: timedelta | None
    """What the document says if the duration of an event is not known; None if it says that it is not known."""
    simulates_duration: bool
    """Whether the event's own duration, if it has one, is how long it takes on the simulated platform."""
    predicted_description: str | None
    """The description if a failure is predicted; None if no event of this type is scheduled for that reason."""

    def __post_init__(self) -> None:
        if missing := set(self.causes.values()) - set(self.descriptions):
            raise LookupError(f"event type {self.type.value} has no description for {', '.join(sorted(missing))}")

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources that may request it."""
        return tuple(self.causes)

    def is_visible(self, version: str) -> bool:
        """Return whether documents of this api-version have the type."""
        return version >= self.since

    @property
    def is_released(self) -> bool:
        """Whether the type is generally available on Azure."""
        return self.since < UNRELEASED_VERSION

    @property
    def has_terminate_notice(self) -> bool:
        """Whether the terminate notice of the VM or its scope takes precedence over the minimum notice."""
        return Cause.DELETION in self.descriptions

    @property
    def needs_low_priority(self) -> bool:
        """Whether only VMs of low priority can have such events."""
        return Cause.EVICTION in self.descriptions

    @property
    def removes_vm(self) -> bool:
        """Whether the VM leaves the scope when the event has completed."""
        return self.effect is Effect.REMOVE

    @property
    def moves_vm(self) -> bool:
        """Whether the VM is on another host when the event has completed."""
        return self.effect is Effect.MOVE


def create_table(specs: Iterable[EventTypeSpec]) -> dict[EventType, EventTypeSpec]:
    """Return the rows by type, in the order of the enum. Each type must have exactly one."""
    rows = list(specs)
    table = {spec.type: spec for spec in rows}
    if missing := [type_.value for type_ in EventType if type_ not in table]:
        raise LookupError(f"no row for event type {', '.join(missing)}")
    if len(table) < len(rows):
        raise LookupError("an event type has two rows")
    return {type_: table[type_] for type_ in EventType}


EVENT_TYPES = create_table(
    (
        EventTypeSpec(
            type=EventType.FREEZE,
            effect=Effect.PAUSE,
            minimum_notice=timedelta(minutes=15),
            causes={Source.PLATFORM: Cause.MAINTENANCE},
            descriptions={Cause.MAINTENANCE: "The VM is paused for a moment while its host is maintained."},
            since=ApiVersion.V2017_03_01,
            default_duration=timedelta(seconds=5),
            announced_duration=timedelta(seconds=5),
            simulates_duration=True,
            predicted_description=None,
        ),
        EventTypeSpec(
            type=EventType.REBOOT,
            effect=Effect.RESTART,
            minimum_notice=timedelta(minutes=15),
            causes={Source.PLATFORM: Cause.MAINTENANCE, Source.USER: Cause.USER},
            descriptions={
                Cause.MAINTENANCE: "The VM restarts because its host is maintained.",
                Cause.USER: "A user asked for a restart of the VM.",
                Cause.FAILURE: "Emergency repair: the VM restarts after a failure of its host.",
            },
            since=ApiVersion.V2017_03_01,
            default_duration=timedelta(seconds=60),
            announced_duration=None,
            simulates_duration=False,
            predicted_description=None,
        ),
        EventTypeSpec(
            type=EventType.REDEPLOY,
            effect=Effect.MOVE,
            minimum_notice=timedelta(minutes=10),
            causes={Source.PLATFORM: Cause.MAINTENANCE, Source.USER: Cause.USER},
            descriptions={
                Cause.MAINTENANCE: "The VM moves to another host because its own is maintained.",
                Cause.USER: "A user asked for the VM to be redeployed.",
                Cause.FAILURE: "Emergency repair: the VM moves because its host has failed.",
            },
            since=ApiVersion.V2017_03_01,
            default_duration=timedelta(seconds=120),
            announced_duration=None,
            simulates_duration=False,
            predicted_description="The VM moves to another host because its own is expected to fail.",
        ),
        EventTypeSpec(
            type=EventType.PREEMPT,
            effect=Effect.REMOVE,
            minimum_notice=timedelta(seconds=30),
            causes={Source.PLATFORM: Cause.EVICTION},
            descriptions={Cause.EVICTION: "The low-priority VM is taken away because its capacity is needed."},
            since=ApiVersion.V2017_11_01,
            default_duration=timedelta(seconds=10),
            announced_duration=None,
            simulates_duration=False,
            predicted_description=None,
        ),
        EventTypeSpec(
            type=EventType.TERMINATE,
            effect=Effect.REMOVE,
            minimum_notice=timedelta(minutes=5),
            causes={Source.PLATFORM: Cause.DELETION, Source.USER: Cause.DELETION},
            descriptions={Cause.DELETION: "The VM is going to be deleted."},
            since=ApiVersion.V2019_01_01,
            default_duration=timedelta(seconds=10),
            announced_duration=None,
            simulates_duration=False,
            predicted_description=None,
        ),
        EventTypeSpec(
            type=EventType.SPOT_REBALANCE_RECOMMENDATION,
            effect=Effect.NONE,
            minimum_notice=timedelta(seconds=30),
            causes={Source.PLATFORM: Cause.EVICTION},
            descriptions={Cause.EVICTION: "The low-priority VM is likely to be taken away: move its work elsewhere."},
            since=UNRELEASED_VERSION,
            default_duration=timedelta(seconds=10),
            announced_duration=timedelta(0),
            simulates_duration=False,
            predicted_description=None,
        ),
    )
)


def announced_duration(event: Event) -> timedelta | None:
    """Return the duration that VMs see; None if it is not known."""
    return EVENT_TYPES[event.type].announced_duration if event.duration is None else event.duration


def types_with_cause(cause: Cause) -> tuple[EventType, ...]:
    """Return the types whose events can have this cause."""
    return tuple(type_ for type_, spec in EVENT_TYPES.items() if cause in spec.descriptions)


RELEASED_TYPES = tuple(type_ for type_, spec in EVENT_TYPES.items() if spec.is_released)
"""Types that are generally available on Azure."""

UNRELEASED_TYPES = tuple(type_ for type_, spec in EVENT_TYPES.items() if not spec.is_released)
"""Types that exist only with the setting `guest.unreleased_version`."""

MAINTENANCE_TYPES = types_with_cause(Cause.MAINTENANCE)
"""Planned maintenance: takes turns by update domain, can be held by an operator, and is what campaigns create."""

USER_TYPES = types_with_cause(Cause.USER)
"""Types that a user can request, and that a scope can therefore approve in advance."""

FAILURE_TYPES = types_with_cause(Cause.FAILURE)
"""Types that a hardware failure can have."""

DEFAULT_FAILURE_TYPE = EventType.REDEPLOY
"""The type of a hardware failure, unless the caller names another one."""

PREDICTED_FAILURE_TYPE = next(type_ for type_, spec in EVENT_TYPES.items() if spec.predicted_description is not None)
"""The type of an event that prevents a predicted failure."""


def check_names(what: str, names: Iterable[str], types: Iterable[EventType]) -> None:
    """Fail if something that is declared for each of these types has other names. For use at import."""
    declared, expected = list(names), [type_.name for type_ in types]
    if declared != expected:
        raise LookupError(f"{what} has {', '.join(declared)}, but the event types are {', '.join(expected)}")


class CampaignType(StrEnum):
    """The types of planned maintenance: `MAINTENANCE_TYPES` as a separate enum."""

    FREEZE = EventType.FREEZE.value
    REBOOT = EventType.REBOOT.value
    REDEPLOY = EventType.REDEPLOY.value


check_names("CampaignType", CampaignType.__members__, MAINTENANCE_TYPES)


class AutoApproved(StrEnum):
    """The types of events that a scope can approve in advance: `USER_TYPES` as a separate enum."""

    REBOOT = EventType.REBOOT.value
    REDEPLOY = EventType.REDEPLOY.value


check_names("AutoApproved", AutoApproved.__members__, USER_TYPES)
