"""Inventory types: scopes, VMs, hosts, imports and diagnosis.

Responses declare the properties of VMs that they show in a form of their own. New ones are appended automatically.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from forewarn.api.v1.common import Duration, ErrorResponse, Hold, Reason, Request, Response, VmName
from forewarn.api.v1.traits import RESPONSES, ChangedTraits, NewAddress, NewTraits
from forewarn.core.event import EventType
from forewarn.core.event_type import USER_TYPES
from forewarn.core.scope import ApprovalRule, ScopeKind
from forewarn.core.text import Guid, Name
from forewarn.core.vm import MAX_ADDRESSES, Domain, Os, Priority, Traits
from forewarn.core.vm import Address as CoreAddress

__all__ = [
    "AbandonHost",
    "AbandonedHost",
    "AddScope",
    "AddVm",
    "Address",
    "CanceledImport",
    "ChangeScope",
    "ChangeVm",
    "Diagnosis",
    "DiagnosisCheck",
    "Difference",
    "GuestResponse",
    "Host",
    "HostPage",
    "ImportProgress",
    "ImportResult",
    "NewAddress",
    "OpenSocket",
    "Scope",
    "ScopePage",
    "Socket",
    "Vm",
    "VmPage",
]

UserTypes = Annotated[
    Sequence[Annotated[EventType, msgspec.Meta(extra_json_schema={"enum": [type_.value for type_ in USER_TYPES]})]],
    msgspec.Meta(max_length=len(USER_TYPES)),
]
"""Types that a scope can approve in advance. The decoder accepts all types: callers get the message of the rule."""


@RESPONSES.with_fields_of(CoreAddress)
class Address(Response, frozen=True):
    """An address by which the endpoint identifies the VM."""

    ip: str
    network: str
    mac: str
    prefix: int | None = None


@RESPONSES.with_fields_of(Traits)
class Vm(Response, frozen=True):
    """A VM, its location, and its own and inherited properties. `hold` is the hold of its scope."""

    name: str
    scope: str
    scope_kind: ScopeKind
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
    enabled: bool = False
    hold: Hold | None = None
    open_events: Sequence[str] = ()
    instance: dict[str, str] = msgspec.field(default_factory=dict)


class VmPage(Response, frozen=True):
    """A page of VMs, sorted by scope and name.

    `next` is the parameter `after` of the next page, `fleet_hold` the hold of the whole fleet.
    """

    vms: Sequence[Vm]
    next: str | None
    fleet_hold: Hold | None = None


@RESPONSES.with_fields_of(Traits)
class Scope(Response, frozen=True):
    """A scope: the properties that its VMs inherit, its approval rule and its enablement."""

    id: str
    kind: ScopeKind
    vm_count: int
    update_domains: Sequence[int]
    approval: ApprovalRule
    auto_approve: Sequence[EventType]
    scale_set: str | None
    placement_group: str | None
    priority: Priority | None
    terminate_notice: str | None
    location: str | None
    zone: str | None
    resource_group: str | None
    subscription: str | None
    os: Os | None
    tags: dict[str, str]
    incarnation: int
    enabled: bool
    last_seen_at: datetime | None
    changed_at: datetime
    open_events: Sequence[str]
    hold: Hold | None
    instance: dict[str, str] = msgspec.field(default_factory=dict)


class ScopePage(Response, frozen=True):
    """A page of scopes, sorted by id.

    `next` is the parameter `after` of the next page, `fleet_hold` the hold of the whole fleet.
    """

    scopes: Sequence[Scope]
    next: str | None
    fleet_hold: Hold | None = None


class OpenSocket(Request, frozen=True):
    """Open a socket for a VM, specified as `scope/name`, or by its bare name if that is unambiguous."""

    vm: VmName


class Socket(Response, frozen=True):
    """A Unix socket on the machine of the service; a program that connects to it acts as the VM."""

    scope: str
    vm: str
    path: str


class Host(Response, frozen=True):
    """A host with its VMs."""

    name: str
    vms: Sequence[str]
    scopes: Sequence[str]
    open_events: Sequence[str]


class AbandonHost(Request, frozen=True):
    """Give up a host that is lost, with the work that it has begun. The reason is in the journal."""

    reason: Reason


class AbandonedHost(Response, frozen=True):
    """A host that was given up, and how many impacts have an unknown outcome because of it."""

    name: str
    unknown_impacts: int


class HostPage(Response, frozen=True):
    """A page of hosts, sorted by name.

    `next` is the parameter `after` of the next page, `fleet_hold` the hold of the whole fleet.
    """

    hosts: Sequence[Host]
    next: str | None
    fleet_hold: Hold | None = None


Addresses = Annotated[Sequence[NewAddress], msgspec.Meta(max_length=MAX_ADDRESSES)]


class AddVm(NewTraits, frozen=True, kw_only=True):
    """Add a VM to a scope; without `scope`, as a standalone VM whose scope has its name."""

    name: Name
    scope: Name | None = None
    vm_id: Guid | None = None
    host: Name | None = None
    update_domain: Domain = 0
    fault_domain: Domain = 0
    role_instance: bool = False
    addresses: Addresses = ()


class ChangeVm(ChangedTraits, frozen=True, kw_only=True):
    """Change a VM. Omitted fields stay; null removes a value of the VM, so that it inherits that of its scope."""

    host: Name | msgspec.UnsetType | None = msgspec.UNSET
    update_domain: Domain | msgspec.UnsetType = msgspec.UNSET
    fault_domain: Domain | msgspec.UnsetType = msgspec.UNSET
    addresses: Addresses | msgspec.UnsetType = msgspec.UNSET


class AddScope(NewTraits, frozen=True, kw_only=True):
    """Add a scope, without VMs."""

    id: Name
    kind: ScopeKind
    approval: ApprovalRule = ApprovalRule.ANY
    auto_approve: UserTypes = ()
    scale_set: Name | None = None
    placement_group: Guid | None = None


class ChangeScope(ChangedTraits, frozen=True, kw_only=True):
    """Change a scope. Omitted fields stay; null removes a value that its VMs inherit."""

    approval: ApprovalRule | msgspec.UnsetType = msgspec.UNSET
    auto_approve: UserTypes | msgspec.UnsetType = msgspec.UNSET


class Difference(Response, frozen=True):
    """What an import changes in one scope or VM. `fields` has the old and the new value of each changed field."""

    action: Literal["added", "changed", "removed"]
    scope: str
    vm: str | None
    fields: dict[str, tuple[str, str]]
    refusal: str = ""


class ImportResult(Response, frozen=True):
    """What an import did or would do. A refused difference has its reason in `refusal`; the others were applied."""

    dry_run: bool
    differences: Sequence[Difference]
    unchanged_count: int
    refused_count: int


class ImportProgress(Response, frozen=True):
    """A line of the stream during an import; the last line has the result or the error."""

    done: int
    total: int
    result: ImportResult | None = None
    error: ErrorResponse | None = None


class CanceledImport(Response, frozen=True):
    """An import that was asked to stop: whether it was canceled or complete, and how many scopes were done."""

    canceled: bool
    created_by: str
    done: int
    total: int


class DiagnosisCheck(Response, frozen=True):
    """One check of a VM, as question and answer. `warning`: it passed, but what it found needs attention."""

    question: str
    passed: bool
    message: str
    hint: str = ""
    warning: bool = False


class GuestResponse(Response, frozen=True):
    """What a VM gets if it polls now; `status` is null if it gets no response.

    `delay` is how long the response takes, and `faults` are the ids of the faults that affect it.
    """

    status: int | None
    content_type: str
    body: str
    delay: Duration
    faults: Sequence[str]


class Diagnosis(Response, frozen=True):
    """The checks that show why a VM does not see its events. A failed check has a hint.

    `response` is what the VM gets if it polls now, or null if it is unknown or has no endpoint.
    """

    vm: str
    guest_url: str | None
    checks: Sequence[DiagnosisCheck]
    response: GuestResponse | None = None
