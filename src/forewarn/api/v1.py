"""The operator API, version 1, as types: what is asked and what is answered. Durations are texts such as "20m"."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from forewarn.core.duration import DURATION_PATTERN
from forewarn.core.event import Cause, EventType, ImpactState, Source
from forewarn.core.limits import TEXT_LENGTH
from forewarn.core.scope import ScopeKind
from forewarn.core.vm import Os, Priority

PAGE = 500
LARGEST_PAGE = 1_000
VMS_PER_REQUEST = 1_000

Duration = Annotated[str, msgspec.Meta(pattern=DURATION_PATTERN, min_length=2, max_length=35)]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
Text = Annotated[str, msgspec.Meta(max_length=TEXT_LENGTH)]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the service says. Readers must expect fields to be added."""


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked of the service. A field that it does not know is refused."""


class Address(Answer, frozen=True):
    """An address by which the endpoint knows the VM."""

    ip: str
    network: str
    mac: str


class Vm(Answer, frozen=True):
    """A VM, its place, and everything it has of its own or takes from its scope."""

    name: str
    scope: str
    kind: ScopeKind
    vm_id: str
    guest_url: str | None
    host: str | None
    update_domain: int
    fault_domain: int
    priority: Priority
    role_instance: bool
    addresses: Sequence[Address]
    tags: dict[str, str]
    terminate_notice: str | None
    location: str | None
    zone: str | None
    resource_group: str | None
    subscription: str | None
    os: Os | None
    scale_set: str | None


class VmPage(Answer, frozen=True):
    """Some VMs, by scope and name; `next` asks for those after them."""

    vms: Sequence[Vm]
    next: str | None


class Approval(Answer, frozen=True):
    """A VM's word that the event may start."""

    vm: str
    at: datetime


class Impact(Answer, frozen=True):
    """How far the work on one VM is."""

    vm: str
    state: ImpactState
    attempt: int
    begun_at: datetime | None
    retry_at: datetime | None
    why: str


class Event(Answer, frozen=True):
    """An open event. `explain` says, in sentences, what it waits for."""

    id: str
    scope: str
    type: EventType
    status: Literal["Scheduled", "Started"]
    source: Source
    cause: Cause
    vms: Sequence[str]
    update_domain: int
    host: str | None
    made_at: datetime
    not_before: datetime
    started_at: datetime | None
    duration: str | None
    description: str
    by: str
    why: str
    announced: bool
    approvals: Sequence[Approval]
    impacts: Sequence[Impact]
    explain: Sequence[str]


class EventPage(Answer, frozen=True):
    """Some open events, by scope and in the order in which they were made; `next` asks for those after them."""

    events: Sequence[Event]
    next: str | None


class ScheduleEvents(Request, frozen=True):
    """Make events for VMs: one per scope, update domain and host. `notice` counts from now; it or `not_before`.

    A VM is named as `scope/name`, or by its bare name where that is unambiguous.
    """

    type: EventType
    vms: Annotated[Sequence[str], msgspec.Meta(min_length=1, max_length=VMS_PER_REQUEST)]
    notice: Duration | None = None
    not_before: Moment | None = None
    duration: Duration | None = None
    description: Text = ""
    source: Source = Source.PLATFORM
    failure: bool = False
    why: Text = ""


class Made(Answer, frozen=True):
    """An event that a request made, now or when it was first sent."""

    id: str
    scope: str


class Scheduled(Answer, frozen=True):
    """The events of a request, and those of them that are still open."""

    made: Sequence[Made]
    events: Sequence[Event]


class Clock(Answer, frozen=True):
    """The service's time. `manual`: it moves only when told to; then `next_at` is when something happens next."""

    now: datetime
    manual: bool
    next_at: datetime | None


class AdvanceClock(Request, frozen=True):
    """Move a manual clock: by a duration, or to the next moment at which something happens."""

    by: Duration | None = None
    to_next: bool = False


class Health(Answer, frozen=True):
    """The service is there."""

    status: str
    version: str


class ErrorBody(Answer, frozen=True):
    """Why it was refused: a stable code for programs, a sentence for people, and the facts."""

    code: str
    message: str
    details: dict[str, str | list[str]] = {}


class Error(Answer, frozen=True):
    """The body of every answer with a status of 400 or more."""

    error: ErrorBody
