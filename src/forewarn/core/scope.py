"""The aggregate: a scope with its VMs, open events, incarnation, enablement, and recent events and idempotency keys."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

import msgspec

from forewarn.core.errors import Invalid, ScopeEventNotFound, ScopeVmNotFound
from forewarn.core.event import Event, EventType
from forewarn.core.event_type import USER_TYPES
from forewarn.core.limits import MAX_RECENT_AGE
from forewarn.core.text import check_name, check_text, is_guid
from forewarn.core.vm import NO_TRAITS, Priority, Roster, Traits, Vm


class ScopeKind(StrEnum):
    """The groups of VMs that see the same events in Azure (PROTOCOL §7)."""

    STANDALONE = "standalone"
    CLOUD_SERVICE = "cloud-service"
    AVAILABILITY_SET = "availability-set"
    PLACEMENT_GROUP = "placement-group"


class ApprovalRule(StrEnum):
    """Whose approval lets an event start early."""

    ANY = "any"
    ALL = "all"


class EventOutcome(StrEnum):
    """How an event ended."""

    COMPLETED = "completed"
    CANCELED = "canceled"
    FAILED = "failed"


class EndedEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event that has ended and is still remembered."""

    id: str
    request: str
    at: datetime
    outcome: EventOutcome


class SeenKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An idempotency key that was answered; its events are those with the id `request`.

    `caller` is the token that the key belongs to. A key of an older record has none, and belongs to every caller.
    """

    key: str
    request: str
    at: datetime
    digest: str = ""
    caller: str = ""

    def belongs_to(self, key: str, caller: str) -> bool:
        """Return whether it is this key of this caller."""
        return self.key == key and self.caller in (caller, "")


class Hold(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An operator's hold on planned maintenance."""

    by: str
    at: datetime
    reason: str

    def __post_init__(self) -> None:
        check_text(self.by, "by")
        check_text(self.reason, "reason")


def new_hold(*, by: str, reason: str, now: datetime) -> Hold:
    """Return a hold of a scope or of the fleet; refuse one without a reason."""
    if not reason.strip():
        raise Invalid("a hold needs a reason: it tells other operators why maintenance is stopped")
    return Hold(by=by, at=now, reason=reason)


class Scope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One scope. All rules of Scheduled Events apply within it; it is saved as one record."""

    id: str
    kind: ScopeKind
    epoch: str
    changed_at: datetime
    entries: int = 0
    roster: Roster = Roster()
    traits: Traits = NO_TRAITS
    scale_set: str | None = None
    placement_group: str | None = None
    approval: ApprovalRule = ApprovalRule.ANY
    auto_approve: tuple[EventType, ...] = ()
    incarnation: int = 1
    events: tuple[Event, ...] = ()
    enabled: bool = False
    was_enabled: bool = False
    seen_at: datetime | None = None
    hold: Hold | None = msgspec.field(default=None, name="held")
    ended: tuple[EndedEvent, ...] = ()
    seen_keys: tuple[SeenKey, ...] = msgspec.field(default=(), name="answered")

    def __post_init__(self) -> None:
        check_name(self.id, "scope")
        if not 1 <= len(self.epoch) <= 32 or not (self.epoch.isascii() and self.epoch.isalnum()):
            raise Invalid("an epoch must be 1 to 32 ASCII letters or digits")
        if self.kind is ScopeKind.STANDALONE and len(self.roster) > 1:
            raise Invalid(f"scope {self.id} is standalone: it must have exactly one VM")
        if self.scale_set is not None:
            check_name(self.scale_set, "scale set")
        if self.placement_group is not None and not is_guid(self.placement_group):
            raise Invalid(f"scope {self.id}: placement_group {self.placement_group!r} is not a GUID")
        if wrong := [kind for kind in self.auto_approve if kind not in USER_TYPES]:
            raise Invalid(f"scope {self.id}: auto_approve takes {' and '.join(USER_TYPES)}, not {wrong[0].value}")

    def vm(self, name: str) -> Vm:
        """Return the VM with that name, in any case."""
        found = self.roster.find(name)
        if found is None:
            raise ScopeVmNotFound(name, self.id)
        return found

    def vms(self, names: Iterable[str]) -> tuple[Vm, ...]:
        """Return the VMs with these names, in any case, each once."""
        known = {vm.name.casefold(): vm for vm in self.roster}
        found: dict[str, Vm] = {}
        for name in names:
            vm = known.get(name.casefold())
            if vm is None:
                raise ScopeVmNotFound(name, self.id)
            found[vm.name] = vm
        return tuple(found.values())

    def event(self, id_: str) -> Event:
        """Return the open event with that id, in any case."""
        found = self.find_event(id_)
        if found is None:
            raise ScopeEventNotFound(id_, self.id)
        return found

    def find_event(self, id_: str) -> Event | None:
        """Return the open event with that id, in any case, or None."""
        wanted = id_.upper()
        for event in self.events:
            if event.id == wanted:
                return event
        return None

    def has_ended(self, id_: str) -> bool:
        """Return whether an event with that id has ended and is still remembered."""
        wanted = id_.upper()
        return any(ended.id == wanted for ended in self.ended)

    def has_seen_key(self, key: str, caller: str = "", *, now: datetime) -> bool:
        """Return whether a request of this caller with this key was answered and is still remembered."""
        since = max(now, self.changed_at) - MAX_RECENT_AGE
        return any(seen.belongs_to(key, caller) and seen.at > since for seen in self.seen_keys)

    def traits_of(self, vm: Vm) -> Traits:
        """Return the VM's effective traits: its own, with those of its scope as defaults."""
        return vm.traits.with_defaults(self.traits)

    def is_low_priority(self, vm: Vm) -> bool:
        """Return whether the VM can be preempted."""
        return self.traits_of(vm).priority is Priority.LOW

    def events_affecting(self, vm: str) -> tuple[Event, ...]:
        """Return the open events that affect the VM."""
        return tuple(event for event in self.events if vm in event.vms)


def migrate(scope: Scope) -> Scope:
    """Upgrade a scope saved by an older version by filling in missing event fields."""
    if all(event.role_instances is not None for event in scope.events):
        return scope
    roles = {vm.name: vm.role_instance for vm in scope.roster}
    default = scope.kind is ScopeKind.CLOUD_SERVICE

    def migrate_event(event: Event) -> Event:
        if event.role_instances is not None:
            return event
        return msgspec.structs.replace(event, role_instances=tuple(vm for vm in event.vms if roles.get(vm, default)))

    return msgspec.structs.replace(scope, events=tuple(map(migrate_event, scope.events)))
