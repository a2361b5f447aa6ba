"""Inventory types: scopes, VMs, hosts, imports and diagnosis."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from forewarn.api.v1.common import Duration, ErrorResponse, Hold, Request, Response, VmName
from forewarn.core.event import EventType
from forewarn.core.scope import ApprovalRule, ScopeKind
from forewarn.core.text import Name, Text
from forewarn.core.vm import Os, Priority

__all__ = [
    "AddScope",
    "AddVm",
    "Address",
    "ChangeScope",
    "ChangeVm",
    "Diagnosis",
    "DiagnosisCheck",
    "Difference",
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

Domain = Annotated[int, msgspec.Meta(ge=0, le=1_000)]


class Address(Response, frozen=True):
    """An address by which the endpoint knows the VM."""

    ip: str
    network: str
    mac: str


class Vm(Response, frozen=True):
    """A VM, its place, and everything it has of its own or takes from its scope. `hold`: its scope's."""

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


class VmPage(Response, frozen=True):
    """Some VMs, by scope and name; `next` asks for those after them. `fleet_hold`: the hold on the whole fleet."""

    vms: Sequence[Vm]
    next: str | None
    fleet_hold: Hold | None = None


class Scope(Response, frozen=True):
    """A scope: what it gives to its VMs, how it approves, and how it stands with its guests."""

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


class ScopePage(Response, frozen=True):
    """Some scopes, by id; `next` asks for those after them. `fleet_hold`: the hold on the whole fleet."""

    scopes: Sequence[Scope]
    next: str | None
    fleet_hold: Hold | None = None


class OpenSocket(Request, frozen=True):
    """Open a socket for a VM, named as `scope/name` or by its bare name where that is unambiguous."""

    vm: VmName


class Socket(Response, frozen=True):
    """A unix socket on the machine of the service: whoever connects to it is taken for the VM."""

    scope: str
    vm: str
    path: str


class Host(Response, frozen=True):
    """A host, as seen from the VMs on it."""

    name: str
    vms: Sequence[str]
    scopes: Sequence[str]
    open_events: Sequence[str]


class HostPage(Response, frozen=True):
    """Some hosts, by name; `next` asks for those after them. `fleet_hold`: the hold on the whole fleet."""

    hosts: Sequence[Host]
    next: str | None
    fleet_hold: Hold | None = None


class NewAddress(Request, frozen=True):
    """An address to know a VM by; unique within its network."""

    ip: Annotated[str, msgspec.Meta(max_length=45)]
    network: Name = "default"
    mac: Annotated[str, msgspec.Meta(max_length=17)] = ""


class NewTraits(Request, frozen=True):
    """What a VM has of its own, or a scope gives to its VMs."""

    priority: Priority | None = None
    terminate_notice: Duration | None = None
    location: Text | None = None
    zone: Text | None = None
    resource_group: Text | None = None
    subscription: Text | None = None
    os: Os | None = None
    tags: dict[str, str] | None = None


class ChangedTraits(Request, frozen=True):
    """The same, to change it: what is left out stays, null takes it away."""

    priority: Priority | msgspec.UnsetType | None = msgspec.UNSET
    terminate_notice: Duration | msgspec.UnsetType | None = msgspec.UNSET
    location: Text | msgspec.UnsetType | None = msgspec.UNSET
    zone: Text | msgspec.UnsetType | None = msgspec.UNSET
    resource_group: Text | msgspec.UnsetType | None = msgspec.UNSET
    subscription: Text | msgspec.UnsetType | None = msgspec.UNSET
    os: Os | msgspec.UnsetType | None = msgspec.UNSET
    tags: dict[str, str] | msgspec.UnsetType | None = msgspec.UNSET


class AddVm(NewTraits, frozen=True, kw_only=True):
    """Add a VM to a scope; without `scope`, as a standalone VM whose scope bears its name."""

    name: Name
    scope: Name | None = None
    vm_id: Annotated[str, msgspec.Meta(max_length=36)] | None = None
    host: Name | None = None
    update_domain: Domain = 0
    fault_domain: Domain = 0
    role_instance: bool = False
    addresses: Annotated[Sequence[NewAddress], msgspec.Meta(max_length=16)] = ()


class ChangeVm(ChangedTraits, frozen=True, kw_only=True):
    """Change a VM. What is left out stays; null takes away what the VM has of its own, so that its scope's holds."""

    host: Name | msgspec.UnsetType | None = msgspec.UNSET
    update_domain: Domain | msgspec.UnsetType = msgspec.UNSET
    fault_domain: Domain | msgspec.UnsetType = msgspec.UNSET
    addresses: Annotated[Sequence[NewAddress], msgspec.Meta(max_length=16)] | msgspec.UnsetType = msgspec.UNSET


class AddScope(NewTraits, frozen=True, kw_only=True):
    """Add a scope, without VMs."""

    id: Name
    kind: ScopeKind
    approval: ApprovalRule = ApprovalRule.ANY
    auto_approve: Annotated[Sequence[EventType], msgspec.Meta(max_length=2)] = ()
    scale_set: Name | None = None
    placement_group: Annotated[str, msgspec.Meta(max_length=36)] | None = None


class ChangeScope(ChangedTraits, frozen=True, kw_only=True):
    """Change a scope. What is left out stays; null takes away what the scope gives to its VMs."""

    approval: ApprovalRule | msgspec.UnsetType = msgspec.UNSET
    auto_approve: Annotated[Sequence[EventType], msgspec.Meta(max_length=2)] | msgspec.UnsetType = msgspec.UNSET


class Difference(Response, frozen=True):
    """What an import does to one scope or VM. `fields` says for each that changes what it is and what it becomes."""

    action: Literal["added", "changed", "removed"]
    scope: str
    vm: str | None
    fields: dict[str, tuple[str, str]]
    refusal: str = ""


class ImportResult(Response, frozen=True):
    """What an import did, or would do. Each difference that was refused says why; the others were made."""

    dry_run: bool
    differences: Sequence[Difference]
    unchanged_count: int
    refused_count: int


class ImportProgress(Response, frozen=True):
    """A line of the stream while an import runs; the last one has the result, or why there is none."""

    done: int
    total: int
    result: ImportResult | None = None
    error: ErrorResponse | None = None


class DiagnosisCheck(Response, frozen=True):
    """One question that was asked about a VM, and its answer."""

    question: str
    passed: bool
    message: str
    hint: str = ""


class Diagnosis(Response, frozen=True):
    """Why a VM sees nothing, or that nothing is wrong with it as far as the service can tell."""

    vm: str
    guest_url: str | None
    checks: Sequence[DiagnosisCheck]
