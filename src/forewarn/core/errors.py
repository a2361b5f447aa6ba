"""Errors of the rules. A rule that raises changes nothing.

CoreError
├── Invalid                    a value is invalid (a name, an address, a text that is too long)
├── NotFound
│   ├── ScopeVmNotFound        the scope has no VM of that name
│   ├── EventVmNotFound        the event does not affect that VM
│   ├── ScopeEventNotFound     the scope has no such event, open or recently ended
│   └── CampaignScopeNotFound  the campaign does not include that scope
└── RefusedError
    ├── InvalidTransition      the event's state does not allow it
    ├── NoticeTooShort         the event would start before the minimum notice of its type is over
    ├── EvictionNotAllowed     Preempt of a VM that is not low-priority
    ├── SourceNotAllowed       this source cannot create events of this type
    ├── KeyConflict            the idempotency key was used for another request
    ├── TooManyOperations      the scope has reached its limit of open user-initiated operations
    ├── ResourceInUse          open events affect the VM or the scope
    ├── ResourceExists         the VM or address already exists
    ├── PlacementFailed        the campaign's policy leaves no time for some VMs
    ├── InvalidCampaignState   the campaign's state does not allow it
    └── ScopeTooLarge          the record would exceed its size limit
"""

from datetime import datetime, timedelta


class CoreError(Exception):
    """A rule said no. `code` is stable and meant for programs; the message is meant for people."""

    code = "refused"


class Invalid(CoreError, ValueError):
    """A value breaks its own rules."""

    code = "invalid-value"


class NotFound(CoreError):
    """Something that was named does not exist."""

    code = "not-found"


class ScopeVmNotFound(NotFound):
    """No VM of that name is in the scope."""

    code = "vm-not-found"

    def __init__(self, vm: str, scope: str) -> None:
        self.vm, self.scope = vm, scope
        super().__init__(f"scope {scope} has no VM {vm}")


class EventVmNotFound(NotFound):
    """The event does not affect that VM."""

    code = "vm-not-affected"

    def __init__(self, vm: str, event: str) -> None:
        self.vm, self.event = vm, event
        super().__init__(f"event {event} does not affect {vm}: name a VM that it affects, or none to mean all of them")


class ScopeEventNotFound(NotFound):
    """The scope never had that event, or ended it so long ago that it forgot it."""

    code = "event-not-found"

    def __init__(self, event: str, scope: str) -> None:
        self.event, self.scope = event, scope
        super().__init__(f"scope {scope} has no event {event}")


class CampaignScopeNotFound(NotFound):
    """The campaign does not have that scope."""

    code = "scope-not-in-campaign"

    def __init__(self, scope: str, campaign: str) -> None:
        self.scope, self.campaign = scope, campaign
        super().__init__(f"campaign {campaign} does not have scope {scope}")


class RefusedError(CoreError):
    """The request is well formed, but the rules do not allow it now."""


class InvalidTransition(RefusedError):
    """The event's state does not allow it."""

    code = "invalid-transition"

    def __init__(self, event: str, state: str, action: str) -> None:
        self.event, self.state, self.action = event, state, action
        super().__init__(f"event {event} is {state}: it cannot {action}")


class NoticeTooShort(RefusedError):
    """The event would start before its type's minimum notice is over."""

    code = "notice-too-short"

    def __init__(self, type_: str, minimum: timedelta, earliest: datetime, requested: datetime) -> None:
        self.type, self.minimum_notice, self.earliest_start_at, self.requested_start_at = (
            type_,
            minimum,
            earliest,
            requested,
        )
        super().__init__(
            f"{type_} needs {_format_minutes(minimum)} of notice: the earliest start is {earliest:%Y-%m-%d %H:%M:%SZ}; "
            f"asked for {requested:%Y-%m-%d %H:%M:%SZ}"
        )


def _format_minutes(time: timedelta) -> str:
    seconds = time.total_seconds()
    return f"{seconds:g} s" if seconds < 60 else f"{seconds / 60:g} min"


class EvictionNotAllowed(RefusedError):
    """Preempt takes away low-priority VMs only."""

    code = "vm-not-evictable"

    def __init__(self, vm: str) -> None:
        self.vm = vm
        super().__init__(f"{vm} has regular priority: only low-priority VMs can be preempted")


class SourceNotAllowed(RefusedError):
    """Events of this type are not made by that source."""

    code = "source-not-allowed"

    def __init__(self, type_: str, source: str) -> None:
        self.type, self.source = type_, source
        super().__init__(f"{type_} is never an event of source {source}")


class KeyConflict(RefusedError):
    """The request key stands for another request."""

    code = "idempotency-key-reused"

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"the key {key} was used for another request: use a new one for each")


class TooManyOperations(RefusedError):
    """The scope has its limit of user-initiated operations open."""

    code = "too-many-operations"

    def __init__(self, scope: str, limit: int) -> None:
        self.scope, self.limit = scope, limit
        super().__init__(f"scope {scope} has {limit} user-initiated operations open: wait until one has ended")


class ResourceInUse(RefusedError):
    """Open events name the VM or the scope."""

    code = "resource-in-use"

    def __init__(
        self, what: str, events: tuple[str, ...], advice: str = "force it, which cancels what is Scheduled"
    ) -> None:
        self.resource, self.events = what, events
        super().__init__(f"{what} has open events ({', '.join(events)}): let them end, or {advice}")


class ResourceExists(RefusedError):
    """The VM exists already."""

    code = "resource-exists"

    def __init__(self, what: str) -> None:
        self.resource = what
        super().__init__(f"{what} exists already")


class PlacementFailed(RefusedError):
    """The campaign's policy leaves no place for some VMs."""

    code = "placement-failed"

    def __init__(self, scope: str, vms: int, rule: str, why: str, others: int) -> None:
        self.scope, self.vms, self.policy_key, self.reason, self.others = scope, vms, rule, why, others
        more = f" (and {others} more)" if others else ""
        super().__init__(
            f"{vms} VMs of scope {scope} have no place, because of {rule}: {why}{more}; "
            "change the policy, or exclude what cannot be placed"
        )


class InvalidCampaignState(RefusedError):
    """The campaign's state, or that of one of its waves, does not allow it."""

    code = "invalid-campaign-state"

    def __init__(self, what: str, state: str, action: str) -> None:
        self.resource, self.state, self.action = what, state, action
        super().__init__(f"{what} is {state}: it cannot {action}")


class ScopeTooLarge(RefusedError):
    """The record would grow over its limit."""

    code = "scope-too-large"

    def __init__(self, scope: str, what: str) -> None:
        self.scope, self.problem = scope, what
        super().__init__(f"scope {scope} is full: {what}; spread the VMs over more scopes, or let open events end")
