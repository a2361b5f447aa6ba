"""Errors of the fleet. Errors of the rules (`forewarn.core.errors`) pass through unchanged.

FleetError
├── ScopeNotFound
├── VmNotFound
├── EventNotFound
├── HostNotFound           no VM is on a host of that name
├── HostTaken              another process serves the host
├── HostRunning            the process of the host was heard from just now
├── HostUnheard            this control node has just started, so the host may be running
├── CommandRefused         a control node has refused a command of a host
├── TokenNotFound
├── CampaignNotFound
├── GateNotFound           the settings have no gate of that name
├── FaultNotFound          no such fault is set, or it has ended
├── AmbiguousVm            a bare name that exists in several scopes
├── AmbiguousCampaign      several open campaigns have the name
├── ScopeExists
├── SecretUnavailable      the request created a token before, and its secret is shown only once
├── LastToken              no other valid token can manage tokens
├── AddressInUse           another VM has this address in this network
├── VmIdInUse              another VM has this id
├── ManualTimeUnavailable  the clock cannot be moved: the service runs in real time
├── PositionNotFound       the position is beyond the end of the journal
├── PositionNotReached     the replica does not have a position yet that the caller has seen elsewhere
├── JournalPruned          the next rows of the journal have been removed
├── PartialSchedule        a request over several scopes was refused by one that had changed meanwhile
├── SaveFailed             the store could not save; nothing has changed
│   └── LeaseLost          another process has the right to do this now
└── OutcomeUnknown         the disk failed at the end of a save, which may or may not have happened
"""

from collections.abc import Sequence

from forewarn.core.base_error import CodedError

MAX_NAMES = 20
"""How many names a message lists; the others are only counted."""


class FleetError(CodedError):
    """The fleet refuses the request."""

    code = "refused"
    template = "the request was refused"


class ScopeNotFound(FleetError):
    """No scope has that name."""

    template = "there is no scope {scope}"
    scope: str


class VmNotFound(FleetError):
    """No VM has that name."""

    template = "there is no VM {vm}"
    vm: str


class EventNotFound(FleetError):
    """No scope has an open event with that id."""

    template = "there is no open event {event}"
    event: str


class HostNotFound(FleetError):
    """No VM is on a host of that name."""

    template = "no VM is on a host {host}"
    host: str


class HostTaken(FleetError):
    """Another process serves the host."""

    template = "host {host} is served by {holder}: stop that process first; one at a time can serve a host"
    host: str
    holder: str


class HostRunning(FleetError):
    """The process of the host was heard from just now, so its work can be asked for."""

    template = "host {host} is served by {holder}, which was heard from {seconds} s ago: stop it first"
    host: str
    holder: str
    seconds: int


class HostUnheard(FleetError):
    """This control node has not listened long enough to know whether the process of the host is running."""

    template = (
        "host {host} is served by {holder}, and this control node has just started, so it may not have heard from it "
        "yet: try again after {seconds} s"
    )
    host: str
    holder: str
    seconds: int


class CommandRefused(FleetError):
    """A control node has refused a command of this host."""

    template = "{text}"
    hidden_fields = frozenset({"text"})
    refusal: str
    text: str


class TokenNotFound(FleetError):
    """No token has that id."""

    template = "there is no token {token}"
    token: str


class FaultNotFound(FleetError):
    """No fault with that id is set."""

    template = "there is no fault {fault}, or it has ended"
    fault: str


class CampaignNotFound(FleetError):
    """No campaign has that id or name."""

    template = "there is no campaign {campaign}"
    campaign: str


class GateNotFound(FleetError):
    """The settings have no gate of that name."""

    template = "there is no gate {gate}: {choices}; gates are set in forewarn.toml of the service, as [gates.{gate}]"
    gate: str
    known: Sequence[str] = ()

    @property
    def choices(self) -> str:
        """The gates that exist."""
        if not self.known:
            return "the settings have no gates"
        names, more = sorted(self.known)[:MAX_NAMES], len(self.known) - MAX_NAMES
        return f"the settings have {', '.join(names)}" + (f" and {more} more" if more > 0 else "")


class AmbiguousVm(FleetError):
    """The bare name exists in several scopes."""

    template = "several VMs are called {vm}: use {candidates:or}"
    vm: str
    candidates: tuple[str, ...]


class AmbiguousCampaign(FleetError):
    """Several open campaigns have the name."""

    template = "several campaigns are called {campaign}: use an id, {candidates:or}"
    campaign: str
    candidates: Sequence[str]


class ScopeExists(FleetError):
    """A scope with that name already exists."""

    template = "scope {scope} already exists: choose another name, or change that scope"
    scope: str


class SecretUnavailable(FleetError):
    """The request created a secret before, which is shown only once."""

    code = "secret-already-shown"
    template = (
        "this request has already created a secret of token {token} ({token_name}), and it is shown only once: "
        "if you do not have it, revoke it and create another"
    )
    token: str
    token_name: str


class LastToken(FleetError):
    """No other valid token can manage tokens."""

    code = "last-admin-token"
    template = (
        "token {token} ({token_name}) is the last valid admin token for all scopes, and only such a token can create "
        "others: create another admin token first, or revoke it with force"
    )
    token: str
    token_name: str


class AddressInUse(FleetError):
    """Another VM has this address in this network."""

    template = "address {ip} in network {network} belongs to {vm}"
    ip: str
    network: str
    vm: str


class VmIdInUse(FleetError):
    """Another VM has this id."""

    template = "vm_id {vm_id} belongs to {vm}"
    vm_id: str
    vm: str


class ManualTimeUnavailable(FleetError):
    """The service runs in real time, so its clock cannot be moved."""

    code = "clock-not-manual"
    template = "the service runs in real time: start it with --manual-time to move its clock"


class PositionNotFound(FleetError):
    """The journal ends before this position, which is from other data, or from before a restored backup."""

    template = "the journal ends at position {last_position}, before {position}: start again without a position"
    position: int
    last_position: int


class PositionNotReached(FleetError):
    """This node does not have the changes yet that the caller has seen at another node; nothing has changed."""

    template = (
        "this node is at {current} and has not reached {position} yet: send the request again, or to another node"
    )
    position: str
    current: str


class JournalPruned(FleetError):
    """The next rows of the journal have been removed, because they were too old or too many."""

    template = (
        "rows of the journal after position {after} have been removed, up to {pruned_to}: continue after {pruned_to}, "
        "and read the state of the objects that you follow"
    )
    after: int
    pruned_to: int


class PartialSchedule(FleetError):
    """Some scopes of a request created their events, another one refused. `created` has `scope/event`."""

    code = "partially-created"
    template = (
        "created {created}, but not the rest: {reason}; "
        "repeat the request with the same key to complete it, or cancel these events"
    )
    created: tuple[str, ...]
    reason: str


class SaveFailed(FleetError):
    """The store could not save the change, so nothing has changed."""

    template = "nothing has changed, because the change could not be saved: {reason}"
    reason: str


class LeaseLost(SaveFailed):
    """Another process has the lease under which this was to be saved, or may have it."""

    template = "nothing has changed, because another process is responsible for it now: {reason}"


class OutcomeUnknown(FleetError):
    """The disk failed at the end of a save. It may or may not have happened."""

    template = (
        "it is not known whether this was saved ({reason}): repeat the request with the same idempotency key, "
        "or read the state when the service is ready again"
    )
    reason: str


SAVE_ERRORS = (SaveFailed, OutcomeUnknown)
"""The errors of a change that was not confirmed. The service repeats its own changes after both: it decides again on
what is saved by then."""
