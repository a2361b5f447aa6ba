"""The aggregate: a scope with its VMs, its open events, its incarnation, its enablement and what it remembers."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

import msgspec

from forewarn.core.errors import Invalid, UnknownEvent, UnknownVm
from forewarn.core.event import Event, EventType
from forewarn.core.limits import RECENT_AGE
from forewarn.core.text import check_name, check_text, is_guid
from forewarn.core.vm import NOTHING_SAID, Priority, Roster, Traits, Vm


class ScopeKind(StrEnum):
    """The groups within which Azure shows and serialises events (PROTOCOL §7)."""

    STANDALONE = "standalone"
    CLOUD_SERVICE = "cloud-service"
    AVAILABILITY_SET = "availability-set"
    PLACEMENT_GROUP = "placement-group"


class ApprovalRule(StrEnum):
    """Whose approval lets an event start early."""

    ANY = "any"
    ALL = "all"


class Outcome(StrEnum):
    """How an event ended."""

    COMPLETED = "completed"
    CANCELED = "canceled"
    FAILED = "failed"


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """An event that is over but still known."""

    id: str
    request: str
    at: datetime
    outcome: Outcome


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A request key that was answered; its events are those made by `request`."""

    key: str
    request: str
    at: datetime
    digest: str = ""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's hold on planned maintenance."""

    by: str
    at: datetime
    reason: str

    def __post_init__(self) -> None:
        check_text(self.by, "by")
        check_text(self.reason, "reason")


class Scope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One scope. All rules of Scheduled Events hold within it; it is saved as one value."""

    id: str
    kind: ScopeKind
    epoch: str
    changed_at: datetime
    entries: int = 0
    roster: Roster = Roster()
    traits: Traits = NOTHING_SAID
    scale_set: str | None = None
    placement_group: str | None = None
    approval: ApprovalRule = ApprovalRule.ANY
    auto_approve: tuple[EventType, ...] = ()
    incarnation: int = 1
    events: tuple[Event, ...] = ()
    enabled: bool = False
    was_enabled: bool = False
    seen_at: datetime | None = None
    held: Held | None = None
    ended: tuple[Ended, ...] = ()
    answered: tuple[Answered, ...] = ()

    def __post_init__(self) -> None:
        check_name(self.id, "scope")
        if not 1 <= len(self.epoch) <= 32 or not (self.epoch.isascii() and self.epoch.isalnum()):
            raise Invalid("an epoch is 1 to 32 ASCII letters or digits")
        if self.kind is ScopeKind.STANDALONE and len(self.roster) > 1:
            raise Invalid(f"scope {self.id} is standalone: it has one VM")
        if self.scale_set is not None:
            check_name(self.scale_set, "scale set")
        if self.placement_group is not None and not is_guid(self.placement_group):
            raise Invalid(f"scope {self.id}: placement_group {self.placement_group!r} is not a GUID")
        if wrong := [kind for kind in self.auto_approve if kind not in (EventType.REBOOT, EventType.REDEPLOY)]:
            raise Invalid(f"scope {self.id}: auto_approve takes Reboot and Redeploy, not {wrong[0].value}")

    def vm(self, name: str) -> Vm:
        """Return the VM of that name, in any case."""
        found = self.roster.find(name)
        if found is None:
            raise UnknownVm(name, self.id)
        return found

    def vms(self, names: Iterable[str]) -> tuple[Vm, ...]:
        """Return the VMs of these names, in any case, each once."""
        known = {vm.name.casefold(): vm for vm in self.roster}
        found: dict[str, Vm] = {}
        for name in names:
            vm = known.get(name.casefold())
            if vm is None:
                raise UnknownVm(name, self.id)
            found[vm.name] = vm
        return tuple(found.values())

    def event(self, id_: str) -> Event:
        """Return the open event of that id, in any case."""
        found = self.find_event(id_)
        if found is None:
            raise UnknownEvent(id_, self.id)
        return found

    def find_event(self, id_: str) -> Event | None:
        """Return the open event of that id, in any case, or None."""
        wanted = id_.upper()
        return next((event for event in self.events if event.id == wanted), None)

    def remembers(self, id_: str) -> bool:
        """Tell whether an event of that id has ended and is still known."""
        wanted = id_.upper()
        return any(ended.id == wanted for ended in self.ended)

    def has_answered(self, key: str, *, now: datetime) -> bool:
        """Tell whether a request of this key was answered and is still known."""
        since = max(now, self.changed_at) - RECENT_AGE
        return any(answered.key == key and answered.at > since for answered in self.answered)

    def traits_of(self, vm: Vm) -> Traits:
        """Return what holds for the VM: its own, else its scope's."""
        return vm.traits.over(self.traits)

    def is_low_priority(self, vm: Vm) -> bool:
        """Tell whether the VM can be taken away."""
        return self.traits_of(vm).priority is Priority.LOW

    def events_naming(self, vm: str) -> tuple[Event, ...]:
        """Return the open events that affect the VM."""
        return tuple(event for event in self.events if vm in event.vms)


def completed(scope: Scope) -> Scope:
    """Return a scope with what its events lack where an older version has saved them: nobody may see a difference."""
    if all(event.role_instances is not None for event in scope.events):
        return scope
    roles = {vm.name: vm.role_instance for vm in scope.roster}
    usual = scope.kind is ScopeKind.CLOUD_SERVICE

    def complete(event: Event) -> Event:
        if event.role_instances is not None:
            return event
        return msgspec.structs.replace(event, role_instances=tuple(vm for vm in event.vms if roles.get(vm, usual)))

    return msgspec.structs.replace(scope, events=tuple(map(complete, scope.events)))
