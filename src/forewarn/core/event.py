"""An event, its state machine and the table of legal transitions. A transition that is not in the table is refused."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

import msgspec

from forewarn.core.errors import Invalid, InvalidTransition
from forewarn.core.impact import Impact
from forewarn.core.journal import EntryKind
from forewarn.core.text import check_name, check_text, is_guid


class EventType(StrEnum):
    """What happens to the VM, by the protocol's names."""

    FREEZE = "Freeze"
    REBOOT = "Reboot"
    REDEPLOY = "Redeploy"
    PREEMPT = "Preempt"
    TERMINATE = "Terminate"
    SPOT_REBALANCE_RECOMMENDATION = "SpotRebalanceRecommendation"


class Source(StrEnum):
    """Who caused the event: the platform, or the VM's owner."""

    PLATFORM = "Platform"
    USER = "User"


class Cause(StrEnum):
    """Why the event exists. Only maintenance takes turns by update domain and can be held."""

    MAINTENANCE = "maintenance"
    USER = "user"
    FAILURE = "failure"
    EVICTION = "eviction"
    DELETION = "deletion"


class State(StrEnum):
    """States of the event's state machine. Only Scheduled and Started are stored or shown."""

    NONE = "not yet made"
    SCHEDULED = "Scheduled"
    STARTED = "Started"
    GONE = "gone"


class Trigger(StrEnum):
    """Triggers of the state machine."""

    SCHEDULE = "be scheduled"
    START_AT_ONCE = "start at once"
    ANNOUNCE = "be announced"
    APPROVE = "be approved"
    SHRINK = "lose a VM"
    START_APPROVED = "start because it is approved"
    START_DUE = "start because it is due"
    CANCEL = "be canceled"
    COMPLETE = "complete"
    GIVE_UP = "be given up"


class Transition(NamedTuple):
    """A legal transition: the next state, the increment of the incarnation, the kind of the journal entry."""

    to: State
    incarnation: int
    entry_kind: EntryKind


TRANSITIONS: dict[tuple[State, Trigger], Transition] = {
    (State.NONE, Trigger.SCHEDULE): Transition(State.SCHEDULED, 1, EntryKind.SCHEDULED),
    (State.NONE, Trigger.START_AT_ONCE): Transition(State.STARTED, 1, EntryKind.STARTED),
    (State.SCHEDULED, Trigger.ANNOUNCE): Transition(State.SCHEDULED, 1, EntryKind.ANNOUNCED),
    (State.SCHEDULED, Trigger.APPROVE): Transition(State.SCHEDULED, 0, EntryKind.APPROVED),
    (State.SCHEDULED, Trigger.SHRINK): Transition(State.SCHEDULED, 1, EntryKind.SHRUNK),
    (State.SCHEDULED, Trigger.START_APPROVED): Transition(State.STARTED, 1, EntryKind.STARTED),
    (State.SCHEDULED, Trigger.START_DUE): Transition(State.STARTED, 1, EntryKind.STARTED),
    (State.SCHEDULED, Trigger.CANCEL): Transition(State.GONE, 1, EntryKind.CANCELED),
    (State.STARTED, Trigger.COMPLETE): Transition(State.GONE, 1, EntryKind.COMPLETED),
    (State.STARTED, Trigger.GIVE_UP): Transition(State.GONE, 1, EntryKind.FAILED),
}


class Approval(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One VM's approval of an event."""

    vm: str
    at: datetime


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One open event of a scope. Its VMs had the same update domain and host when it was created."""

    id: str
    request: str
    type: EventType
    state: State
    source: Source
    cause: Cause
    vms: tuple[str, ...]
    role_instances: tuple[str, ...] | None = None
    """Which of its VMs are role instances, because some documents name them differently, even after the VM has left.
    None: saved by an older version without this field."""
    update_domain: int
    host: str | None = None
    created_at: datetime = msgspec.field(name="made_at")
    not_before: datetime
    duration: timedelta | None = None
    description: str = ""
    by: str
    why: str = ""
    announced: bool = True
    approvals: tuple[Approval, ...] = ()
    started_at: datetime | None = None
    impacts: tuple[Impact, ...] = ()
    campaign: str = ""
    """The campaign that created it; such an event starts only after the campaign has cleared it."""
    cleared: bool = False

    def __post_init__(self) -> None:
        if not is_guid(self.id) or self.id != self.id.upper():
            raise Invalid(f"event id {self.id!r} is not an upper-case GUID")
        if not self.vms:
            raise Invalid("an event must affect at least one VM")
        if self.state not in (State.SCHEDULED, State.STARTED):
            raise Invalid(f"a stored event must be Scheduled or Started, not {self.state.value}")
        if self.duration is not None and self.duration < timedelta(0):
            raise Invalid("duration must not be negative: omit it if it is not known")
        check_text(self.description, "description")
        check_text(self.why, "reason")
        check_text(self.by, "by")
        if self.campaign:
            check_name(self.campaign, "campaign")

    @property
    def is_planned(self) -> bool:
        """Whether it is planned maintenance, which takes turns by update domain and can be held."""
        return self.cause is Cause.MAINTENANCE

    def impact(self, vm: str) -> Impact | None:
        """Return the impact on that VM; the event must be Started."""
        return next((impact for impact in self.impacts if impact.vm == vm), None)


def find_transition(event: str, state: State, trigger: Trigger) -> Transition:
    """Return the transition from the table; raise InvalidTransition if there is none."""
    found = TRANSITIONS.get((state, trigger))
    if found is None:
        raise InvalidTransition(event, state.value, trigger.value)
    return found
