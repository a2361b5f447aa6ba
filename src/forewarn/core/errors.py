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
    ├── NotAnnounced           VMs would not hear of the maintenance, and the request does not consent to that
    ├── EvictionNotAllowed     Preempt of a VM that is not low-priority
    ├── TypeNotReleased        the event type is not generally available, and the setting that allows it is off
    ├── SourceNotAllowed       this source cannot create events of this type
    ├── KeyConflict            the idempotency key was used for another request
    ├── TooManyOperations      the scope has reached its limit of open user-initiated operations
    ├── ResourceInUse          open events affect the VM or the scope
    ├── HostInUse              the VM's host carries out an impact on it
    ├── WrongHost              the VM is on another host, or a later process of the host has taken over
    ├── ResourceExists         the VM, address, token or open campaign already exists
    ├── PlacementFailed        the campaign's policy leaves no time for some VMs
    ├── InvalidCampaignState   the campaign's state does not allow it
    └── ScopeTooLarge          the record would exceed its size limit
"""

from datetime import datetime

from forewarn.core.base_error import CodedError


class CoreError(CodedError):
    """The rules refuse the request."""

    code = "refused"
    template = "the request was refused"


class Invalid(CoreError, ValueError):
    """A value is invalid."""

    code = "invalid-value"
    template = "{place}{problem}"
    hidden_fields = frozenset({"problem", "field"})
    problem: str
    field: str = ""
    """The field with the value, such as `gap`, or `policy.gap` in a whole campaign; empty if it is not about one."""

    @property
    def place(self) -> str:
        """The field at the beginning of the message, escaped, because a user may have chosen the key of a tag."""
        return f"{repr(self.field)[1:-1]}: " if self.field else ""

    def below(self, path: str) -> "Invalid":
        """Return the error for an object that has the value, or the struct with the field, at this path."""
        return Invalid(self.problem, ".".join(filter(None, (path, self.field))))


class NotFound(CoreError):
    """The named object does not exist."""


class ScopeVmNotFound(NotFound):
    """The scope has no VM of that name."""

    code = "vm-not-found"
    template = "scope {scope} has no VM {vm}"
    vm: str
    scope: str


class EventVmNotFound(NotFound):
    """The event does not affect that VM."""

    code = "vm-not-affected"
    template = "event {event} does not affect {vm}: name a VM that it affects, or no VM to select all of them"
    vm: str
    event: str


class ScopeEventNotFound(NotFound):
    """The scope never had that event, or the event ended so long ago that the scope no longer knows it."""

    code = "event-not-found"
    template = "scope {scope} has no event {event}"
    event: str
    scope: str


class CampaignScopeNotFound(NotFound):
    """The campaign does not include that scope."""

    code = "scope-not-in-campaign"
    template = "campaign {campaign} does not include scope {scope}"
    scope: str
    campaign: str


class RefusedError(CoreError):
    """The request is well formed, but the rules do not allow it now."""

    code = "refused"


class InvalidTransition(RefusedError):
    """The event's state does not allow it."""

    template = "event {event} is {state}: it cannot {action}"
    event: str
    state: str
    action: str


class NoticeTooShort(RefusedError):
    """The event would start before the minimum notice of its type is over."""

    template = (
        "notice must be at least {minimum_notice} for {type}: the earliest start is {earliest_start_at} "
        "(requested: {requested_start_at}){advice}"
    )
    hidden_fields = frozenset({"advice"})
    type: str
    minimum_notice: str
    """As the request states notices: the speed of an emulator divides them later."""
    earliest_start_at: datetime
    requested_start_at: datetime
    advice: str = ""


class NotAnnounced(RefusedError):
    """The document of some VMs would not show the maintenance, and the request does not consent to that."""

    template = "{problem}; nothing has happened; to go ahead anyway, set unannounced"
    hidden_fields = frozenset({"problem"})
    problem: str
    scopes: tuple[str, ...]
    """The scopes that would not hear of it; of many the first ones."""
    scope_count: int
    vm_count: int


class TypeNotReleased(RefusedError):
    """The event type is not generally available on Azure, and the setting that allows it is off."""

    template = (
        "{type} is not generally available on Azure; to test it, set guest.unreleased_version = true in the emulator"
    )
    type: str


class EvictionNotAllowed(RefusedError):
    """The VM does not have low priority, so it cannot be preempted."""

    code = "vm-not-evictable"
    template = "{vm} has regular priority: only low-priority VMs can be preempted"
    vm: str


class SourceNotAllowed(RefusedError):
    """Events of this type cannot have this source."""

    template = "{type} cannot have the source {source}"
    type: str
    source: str


class KeyConflict(RefusedError):
    """The idempotency key was used for another request."""

    code = "idempotency-key-reused"
    template = "the key {key} was used for another request: use a new key for each request"
    key: str


class TooManyOperations(RefusedError):
    """The scope has reached its limit of open user-initiated operations."""

    template = "scope {scope} has {limit} user-initiated operations open, which is the limit: wait until one has ended"
    scope: str
    limit: int


class ResourceInUse(RefusedError):
    """Open events affect the VM or the scope."""

    template = "{resource} has open events ({events}): wait until they have ended, or {advice}"
    hidden_fields = frozenset({"advice"})
    resource: str
    events: tuple[str, ...]
    advice: str = "force it, which cancels Scheduled events"


class HostInUse(RefusedError):
    """The VM's host carries out an impact on it, and only that host can report its outcome."""

    template = (
        "{host} works on {vm} for event {event}, so its host cannot change: wait for the outcome, or, if that host "
        "is lost, run `forewarn host gone {host}`"
    )
    vm: str
    host: str
    event: str


class WrongHost(RefusedError):
    """The VM is on another host, or a later process of the host has taken over."""

    template = (
        "{host} in term {term} may not act for {vm}: the VM is on another host, or a later process has taken over"
    )
    vm: str
    host: str
    term: int


class ResourceExists(RefusedError):
    """A VM, address, token or open campaign of that name already exists."""

    template = "{resource} already exists"
    resource: str


class PlacementFailed(RefusedError):
    """The campaign's policy leaves no time for some VMs."""

    template = (
        "{vms} VMs of scope {scope} cannot be placed because of {policy_key}: {reason}{more}; "
        "change the policy, or exclude these VMs"
    )
    scope: str
    vms: int
    policy_key: str
    reason: str
    others: int

    @property
    def more(self) -> str:
        """The number of other groups of VMs that cannot be placed."""
        return f" (and {self.others} more)" if self.others else ""


class InvalidCampaignState(RefusedError):
    """The state of the campaign, or of one of its waves, does not allow it."""

    template = "{resource} is {state}: it cannot {action}"
    resource: str
    state: str
    action: str


class ScopeTooLarge(RefusedError):
    """The scope's record would exceed its size limit."""

    template = "scope {scope} is full: {problem}; use more scopes, or wait until open events have ended"
    scope: str
    problem: str
