"""Why a rule refused. Every refusal changes nothing.

CoreError
├── Invalid               a value breaks its own rules (a name, an address, a text too long)
├── NotFound
│   ├── UnknownVm         no VM of that name in the scope
│   ├── NotAffected       the event does not affect that VM
│   ├── UnknownEvent      the scope never had that event, or forgot it
│   └── NotInCampaign     the campaign does not have that scope
└── Refused
    ├── IllegalMove       the event's state does not allow it
    ├── NoticeTooShort    the event would start before its type's minimum notice is over
    ├── NotEvictable      Preempt of a VM that is not low-priority
    ├── SourceNotAllowed  events of this type are not made by that source
    ├── KeyReused         the request key stands for another request
    ├── TooManyOperations the scope has its limit of user-initiated operations open
    ├── Busy              open events name the VM or the scope
    ├── AlreadyThere      the VM exists already
    ├── CannotBePlaced    the campaign's policy leaves no place for some VMs
    ├── NotNow            the campaign's state does not allow it
    └── ScopeFull         the record would grow over its limit
"""

from datetime import datetime, timedelta


class CoreError(Exception):
    """A rule said no. `code` is stable and meant for programs; the message is meant for people."""

    code = "refused"


class Invalid(CoreError, ValueError):
    """A value breaks its own rules."""

    code = "invalid"


class NotFound(CoreError):
    """Something that was named does not exist."""

    code = "not-found"


class UnknownVm(NotFound):
    """No VM of that name is in the scope."""

    code = "unknown-vm"

    def __init__(self, vm: str, scope: str) -> None:
        self.vm, self.scope = vm, scope
        super().__init__(f"scope {scope} has no VM {vm}")


class NotAffected(NotFound):
    """The event does not affect that VM."""

    code = "not-affected"

    def __init__(self, vm: str, event: str) -> None:
        self.vm, self.event = vm, event
        super().__init__(f"event {event} does not affect {vm}: name a VM that it affects, or none to mean all of them")


class UnknownEvent(NotFound):
    """The scope never had that event, or ended it so long ago that it forgot it."""

    code = "unknown-event"

    def __init__(self, event: str, scope: str) -> None:
        self.event, self.scope = event, scope
        super().__init__(f"scope {scope} has no event {event}")


class NotInCampaign(NotFound):
    """The campaign does not have that scope."""

    code = "not-in-campaign"

    def __init__(self, scope: str, campaign: str) -> None:
        self.scope, self.campaign = scope, campaign
        super().__init__(f"campaign {campaign} does not have scope {scope}")


class Refused(CoreError):
    """The request is well formed, but the rules do not allow it now."""


class IllegalMove(Refused):
    """The event's state does not allow it."""

    code = "illegal-move"

    def __init__(self, event: str, state: str, move: str) -> None:
        self.event, self.state, self.move = event, state, move
        super().__init__(f"event {event} is {state}: it cannot {move}")


class NoticeTooShort(Refused):
    """The event would start before its type's minimum notice is over."""

    code = "notice-too-short"

    def __init__(self, type_: str, minimum: timedelta, earliest: datetime, asked: datetime) -> None:
        self.type, self.minimum, self.earliest, self.asked = type_, minimum, earliest, asked
        super().__init__(
            f"{type_} needs {_amount(minimum)} of notice: the earliest start is {earliest:%Y-%m-%d %H:%M:%SZ}; "
            f"asked for {asked:%Y-%m-%d %H:%M:%SZ}"
        )


def _amount(time: timedelta) -> str:
    seconds = time.total_seconds()
    return f"{seconds:g} s" if seconds < 60 else f"{seconds / 60:g} min"


class NotEvictable(Refused):
    """Preempt takes away low-priority VMs only."""

    code = "not-evictable"

    def __init__(self, vm: str) -> None:
        self.vm = vm
        super().__init__(f"{vm} has regular priority: only low-priority VMs can be preempted")


class SourceNotAllowed(Refused):
    """Events of this type are not made by that source."""

    code = "source-not-allowed"

    def __init__(self, type_: str, source: str) -> None:
        self.type, self.source = type_, source
        super().__init__(f"{type_} is never an event of source {source}")


class KeyReused(Refused):
    """The request key stands for another request."""

    code = "key-reused"

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"the key {key} was used for another request: use a new one for each")


class TooManyOperations(Refused):
    """The scope has its limit of user-initiated operations open."""

    code = "too-many-operations"

    def __init__(self, scope: str, limit: int) -> None:
        self.scope, self.limit = scope, limit
        super().__init__(f"scope {scope} has {limit} user-initiated operations open: wait until one has ended")


class Busy(Refused):
    """Open events name the VM or the scope."""

    code = "busy"

    def __init__(
        self, what: str, events: tuple[str, ...], advice: str = "force it, which cancels what is Scheduled"
    ) -> None:
        self.what, self.events = what, events
        super().__init__(f"{what} has open events ({', '.join(events)}): let them end, or {advice}")


class AlreadyThere(Refused):
    """The VM exists already."""

    code = "already-there"

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what} exists already")


class CannotBePlaced(Refused):
    """The campaign's policy leaves no place for some VMs."""

    code = "cannot-be-placed"

    def __init__(self, scope: str, vms: int, rule: str, why: str, others: int) -> None:
        self.scope, self.vms, self.rule, self.why, self.others = scope, vms, rule, why, others
        more = f" (and {others} more)" if others else ""
        super().__init__(
            f"{vms} VMs of scope {scope} have no place, because of {rule}: {why}{more}; "
            "change the policy, or exclude what cannot be placed"
        )


class NotNow(Refused):
    """The campaign's state, or that of one of its waves, does not allow it."""

    code = "not-now"

    def __init__(self, what: str, state: str, move: str) -> None:
        self.what, self.state, self.move = what, state, move
        super().__init__(f"{what} is {state}: it cannot {move}")


class ScopeFull(Refused):
    """The record would grow over its limit."""

    code = "scope-full"

    def __init__(self, scope: str, what: str) -> None:
        self.scope, self.what = scope, what
        super().__init__(f"scope {scope} is full: {what}; spread the VMs over more scopes, or let open events end")
