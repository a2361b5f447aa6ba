"""An event, the states it can be in, and the table of its legal moves. What is not in the table is refused."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

import msgspec

from forewarn.core.errors import IllegalMove, Invalid
from forewarn.core.journal import Did
from forewarn.core.limits import IMPACT_TEXT_BYTES
from forewarn.core.text import check_name, check_text, is_guid, shortened


class EventType(StrEnum):
    """What happens to the VM. The names are the protocol's."""

    FREEZE = "Freeze"
    REBOOT = "Reboot"
    REDEPLOY = "Redeploy"
    PREEMPT = "Preempt"
    TERMINATE = "Terminate"

    @property
    def takes_away(self) -> bool:
        """Whether the VM leaves the scope when the event is done."""
        return self in (EventType.PREEMPT, EventType.TERMINATE)


class Source(StrEnum):
    """Who wants the event: the platform, or the VM's owner."""

    PLATFORM = "Platform"
    USER = "User"


class Cause(StrEnum):
    """Why the event exists; only maintenance waits for its turn and can be held."""

    MAINTENANCE = "maintenance"
    USER = "user"
    FAILURE = "failure"
    EVICTION = "eviction"
    DELETION = "deletion"


class State(StrEnum):
    """Where an event is in its life. Only Scheduled and Started are ever kept or shown."""

    NONE = "not yet made"
    SCHEDULED = "Scheduled"
    STARTED = "Started"
    GONE = "gone"


class Move(StrEnum):
    """What can happen to an event."""

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


class Step(NamedTuple):
    """The outcome of a legal move: the next state, how far the incarnation goes up, what the journal says."""

    to: State
    incarnation: int
    did: Did


MOVES: dict[tuple[State, Move], Step] = {
    (State.NONE, Move.SCHEDULE): Step(State.SCHEDULED, 1, Did.SCHEDULED),
    (State.NONE, Move.START_AT_ONCE): Step(State.STARTED, 1, Did.STARTED),
    (State.SCHEDULED, Move.ANNOUNCE): Step(State.SCHEDULED, 1, Did.ANNOUNCED),
    (State.SCHEDULED, Move.APPROVE): Step(State.SCHEDULED, 0, Did.APPROVED),
    (State.SCHEDULED, Move.SHRINK): Step(State.SCHEDULED, 1, Did.SHRUNK),
    (State.SCHEDULED, Move.START_APPROVED): Step(State.STARTED, 1, Did.STARTED),
    (State.SCHEDULED, Move.START_DUE): Step(State.STARTED, 1, Did.STARTED),
    (State.SCHEDULED, Move.CANCEL): Step(State.GONE, 1, Did.CANCELED),
    (State.STARTED, Move.COMPLETE): Step(State.GONE, 1, Did.COMPLETED),
    (State.STARTED, Move.GIVE_UP): Step(State.GONE, 1, Did.FAILED),
}


class ImpactState(StrEnum):
    """How far the work on one VM is."""

    PENDING = "pending"
    BEGUN = "begun"
    RETRY = "retry"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    GIVEN_UP = "given-up"
    GONE = "gone"


SETTLED = frozenset({ImpactState.DONE, ImpactState.GIVEN_UP, ImpactState.GONE})
"""Nothing more will happen to such an impact."""

STUCK = frozenset({ImpactState.FAILED, ImpactState.UNKNOWN})
"""Such an impact waits for a person."""


class Impact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The work of one event on one VM."""

    vm: str
    state: ImpactState = ImpactState.PENDING
    attempt: int = 0
    begun_at: datetime | None = None
    retry_at: datetime | None = None
    why: str = ""

    def turned(self, state: ImpactState, *, why: str = "", retry_at: datetime | None = None) -> "Impact":
        """Return the impact in another state; what was said of it before is forgotten."""
        short = shortened(why, IMPACT_TEXT_BYTES)
        return msgspec.structs.replace(self, state=state, why=short, retry_at=retry_at)


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """One VM's word that it is prepared."""

    vm: str
    at: datetime


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One open event of a scope. Its VMs shared update domain and host when it was made."""

    id: str
    request: str
    type: EventType
    state: State
    source: Source
    cause: Cause
    vms: tuple[str, ...]
    role_instances: tuple[str, ...] | None = None
    """Those of its VMs that are role instances: some documents name them otherwise, also when the VM has left. None: an
    older version has saved it, and did not say."""
    update_domain: int
    host: str | None = None
    made_at: datetime
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
    """The campaign that made it; such an event starts only when the campaign has cleared it."""
    cleared: bool = False

    def __post_init__(self) -> None:
        if not is_guid(self.id) or self.id != self.id.upper():
            raise Invalid(f"event id {self.id!r} is not an upper-case GUID")
        if not self.vms:
            raise Invalid("an event affects at least one VM")
        if self.state not in (State.SCHEDULED, State.STARTED):
            raise Invalid(f"an event that is kept is Scheduled or Started, not {self.state.value}")
        if self.duration is not None and self.duration < timedelta(0):
            raise Invalid("duration cannot be negative: leave it out where it is not known")
        check_text(self.description, "description")
        check_text(self.why, "reason")
        check_text(self.by, "by")
        if self.campaign:
            check_name(self.campaign, "campaign")

    @property
    def is_planned(self) -> bool:
        """Whether it waits for its update domain's turn and for an operator's hold."""
        return self.cause is Cause.MAINTENANCE

    def impact(self, vm: str) -> Impact | None:
        """Return the work on that VM, once the event is Started."""
        return next((impact for impact in self.impacts if impact.vm == vm), None)


def step(event: str, state: State, move: Move) -> Step:
    """Look the move up in the table, or refuse it."""
    found = MOVES.get((state, move))
    if found is None:
        raise IllegalMove(event, state.value, move.value)
    return found
