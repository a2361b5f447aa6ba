"""Event types: events, the operations that create them, holds and the journal."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from forewarn.api.v1.common import Duration, Hold, Moment, Reason, Request, Response, VmName
from forewarn.core.event import Cause, EventType, Source
from forewarn.core.event_type import DEFAULT_FAILURE_TYPE
from forewarn.core.explain import BlockerCode
from forewarn.core.impact import STUCK, ImpactState
from forewarn.core.journal import EntryKind
from forewarn.core.scope import EventOutcome
from forewarn.core.text import Name, Text
from forewarn.core.vm import Domain

__all__ = [
    "VMS_PER_REQUEST",
    "Approval",
    "ApproveEvent",
    "Blocker",
    "CancelEvent",
    "CreateHold",
    "CreatedEvent",
    "Event",
    "EventDetail",
    "EventPage",
    "Evict",
    "Fail",
    "Holds",
    "Impact",
    "JournalEntry",
    "JournalPage",
    "Operate",
    "PredictFailure",
    "ReleaseHold",
    "ResolveImpact",
    "Restart",
    "RetryImpact",
    "ScheduleEvents",
    "ScheduleResponse",
]

VMS_PER_REQUEST = 1_000

Vms = Annotated[Sequence[VmName], msgspec.Meta(max_length=VMS_PER_REQUEST)]


class Approval(Response, frozen=True):
    """A VM's approval of an event."""

    vm: str
    approved_at: datetime


class Impact(Response, frozen=True):
    """The state of the work on one VM."""

    vm: str
    state: ImpactState
    attempt: int
    begun_at: datetime | None
    retry_at: datetime | None
    reason: str


class Blocker(Response, frozen=True):
    """One reason why an event waits. `text` is a message for users.

    `until` is the time at which the reason ends by itself, if it is known. `event` is the event that must end first (of
    several the stuck one, else the first), `hold` the hold that stops the event. `vms` are VMs of the event whose work
    is stuck, that must approve because all must, or whose host is missing, unknown or silent.
    """

    code: BlockerCode
    text: str
    until: datetime | None = None
    event: str | None = None
    hold: Hold | None = None
    vms: Sequence[str] = ()


class Event(Response, frozen=True):
    """An open event. `blockers` has what it waits for, `explanation` the same in sentences, `hold` its scope's hold.

    `is_stuck` is true if the event needs an operator: its work has failed or has an unknown outcome, or it waits for
    such an event, for the release of a hold, or for a campaign that must be resumed.

    `campaign` is the id of the campaign that created the event, if any; the event starts only when the campaign clears
    it.
    """

    id: str
    scope: str
    type: EventType
    status: Literal["Scheduled", "Started"]
    source: Source
    cause: Cause
    vms: Sequence[str]
    update_domain: int
    host: str | None
    created_at: datetime
    not_before: datetime
    started_at: datetime | None
    duration: str | None
    description: str
    created_by: str
    reason: str
    announced: bool
    approvals: Sequence[Approval]
    impacts: Sequence[Impact]
    explanation: Sequence[str]
    blockers: Sequence[Blocker] = ()
    is_stuck: bool = False
    hold: Hold | None = None
    campaign: str | None = None

    @property
    def stuck_vms(self) -> Sequence[str]:
        """The VMs whose work failed or has an unknown outcome: an operator can retry or resolve it."""
        return [impact.vm for impact in self.impacts if impact.state in STUCK]


class EventPage(Response, frozen=True):
    """A page of open events, by scope and in the order of their creation.

    `next` is the parameter `after` of the next page, `fleet_hold` the hold of the whole fleet.
    """

    events: Sequence[Event]
    next: str | None
    fleet_hold: Hold | None = None


class JournalEntry(Response, frozen=True):
    """An entry of the journal. `position` orders all of them; `record_kind` and `record_id` name its record."""

    position: int
    record_kind: str
    record_id: str
    at: datetime
    action: EntryKind
    actor: str
    reason: str
    event: str | None
    vms: Sequence[str]
    incarnation: int | None
    facts: dict[str, str]


class JournalPage(Response, frozen=True):
    """A page of journal entries in the requested order. `next` is the parameter `after` of the next page."""

    entries: Sequence[JournalEntry]
    next: str | None


class EventDetail(Response, frozen=True):
    """An event in detail: `event` is set while it is open, `outcome` and `ended_at` after its end.

    `journal` has its entries, of very many the newest.
    """

    id: str
    scope: str
    type: EventType | None
    vms: Sequence[str]
    event: Event | None
    outcome: EventOutcome | None
    ended_at: datetime | None
    journal: Sequence[JournalEntry]


class ScheduleEvents(Request, frozen=True):
    """Schedule events: one per scope, update domain and host. `notice` counts from now; it excludes `not_before`.

    Specify VMs, a host, a scope, or a scope with an update domain.
    A VM is specified as `scope/name`, or by its bare name if that is unambiguous.

    `now` starts without notice; a scope whose VMs poll for events keeps its minimum notice. `unannounced` consents to
    events that VMs will not hear of; without it they are refused (`not-announced`).
    """

    type: EventType
    vms: Vms = ()
    host: Name | None = None
    scope: Name | None = None
    update_domain: Domain | None = None
    notice: Duration | None = None
    not_before: Moment | None = None
    duration: Duration | None = None
    description: Text = ""
    source: Source = Source.PLATFORM
    failure: bool = False
    reason: Text = ""
    now: bool = False
    unannounced: bool = False


class Operate(Request, frozen=True):
    """Restart, redeploy or delete a VM for its owner. `now` and `unannounced` are those of ScheduleEvents."""

    vm: VmName
    reason: Text = ""
    now: bool = False
    unannounced: bool = False


class Restart(Operate, frozen=True):
    """Restart or redeploy a VM for its owner; without `notice`, after the default notice of the event type."""

    notice: Duration | None = None


class Evict(Request, frozen=True):
    """Evict a low-priority VM, as the platform does when it needs the capacity.

    `now` and `unannounced` are those of ScheduleEvents.
    """

    vm: VmName
    notice: Duration | None = None
    reason: Text = ""
    now: bool = False
    unannounced: bool = False


class Fail(Request, frozen=True):
    """Report that the hardware of VMs or of a host has failed: their events start at once."""

    vms: Vms = ()
    host: Name | None = None
    type: EventType = DEFAULT_FAILURE_TYPE
    reason: Text = ""


class PredictFailure(Request, frozen=True):
    """Report that the hardware of VMs or of a host is expected to fail: they are redeployed, days ahead.

    `unannounced` is that of ScheduleEvents.
    """

    notice: Duration
    vms: Vms = ()
    host: Name | None = None
    reason: Text = ""
    unannounced: bool = False


class CreatedEvent(Response, frozen=True):
    """An event that a request created, now or when it was first sent."""

    id: str
    scope: str


class ScheduleResponse(Response, frozen=True):
    """The events that a request created, and those of them that are still open."""

    created: Sequence[CreatedEvent]
    events: Sequence[Event]


class CancelEvent(Request, frozen=True):
    """Cancel a Scheduled event."""

    reason: Text = ""


class ApproveEvent(Request, frozen=True):
    """Approve an event on behalf of a VM of its scope."""

    vm: VmName
    reason: Text = ""


class RetryImpact(Request, frozen=True):
    """Retry failed or unknown work, on one VM or on all VMs where it failed or is unknown."""

    vm: VmName | None = None
    reason: Text = ""


class ResolveImpact(Request, frozen=True):
    """Resolve failed or unknown work as done or given up, on one VM or on all VMs where it failed or is unknown."""

    done: bool
    reason: Reason
    vm: VmName | None = None


class Holds(Response, frozen=True):
    """All holds: first the hold of the whole fleet (its `scope` is null), then those of scopes."""

    holds: Sequence[Hold]

    @property
    def fleet(self) -> Hold | None:
        """The hold of the whole fleet."""
        return self.of(None)

    def of(self, scope: str | None) -> Hold | None:
        """Return the hold of a scope, or of the whole fleet if `scope` is None."""
        return next((hold for hold in self.holds if hold.scope == scope), None)


class CreateHold(Request, frozen=True):
    """Stop planned maintenance from starting, in one scope or in the whole fleet. The reason is shown with the hold."""

    reason: Reason
    scope: Name | None = None


class ReleaseHold(Request, frozen=True):
    """End the hold of one scope, or of the whole fleet."""

    scope: Name | None = None
    reason: Text = ""
