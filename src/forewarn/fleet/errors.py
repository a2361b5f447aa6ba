"""Errors of the fleet; the rules' own errors (`forewarn.core.errors`) pass through unchanged.

FleetError
├── ScopeNotFound
├── VmNotFound
├── EventNotFound
├── HostNotFound           no VM is on a host of that name
├── TokenNotFound
├── CampaignNotFound
├── GateNotFound           the settings have no gate of that name
├── FaultNotFound          no such fault is set, or it has ended
├── AmbiguousVm            a bare name that exists in several scopes
├── AmbiguousCampaign      several open campaigns have the name
├── ScopeExists
├── SecretUnavailable      the request created a token before, and its secret is shown only once
├── AddressInUse           another VM has this address in this network
├── ManualTimeUnavailable  the clock cannot be moved: the service runs in real time
├── PositionNotFound       the position is beyond the end of the journal
├── JournalPruned          the next rows of the journal have been removed
├── PartialSchedule        a request over several scopes was refused by one that had changed meanwhile
└── SaveFailed             the store could not save; nothing has changed
"""

from collections.abc import Sequence

MAX_NAMES = 20
"""Of more names than this a message says how many there are."""


class FleetError(Exception):
    """The fleet could not do it. `code` is stable and meant for programs; the message is meant for people."""

    code = "refused"


class ScopeNotFound(FleetError):
    """There is no scope of that name."""

    code = "scope-not-found"

    def __init__(self, scope: str) -> None:
        self.scope = scope
        super().__init__(f"there is no scope {scope}")


class VmNotFound(FleetError):
    """There is no VM of that name."""

    code = "vm-not-found"

    def __init__(self, vm: str) -> None:
        self.vm = vm
        super().__init__(f"there is no VM {vm}")


class EventNotFound(FleetError):
    """No scope has an open event of that id."""

    code = "event-not-found"

    def __init__(self, event: str) -> None:
        self.event = event
        super().__init__(f"there is no open event {event}")


class HostNotFound(FleetError):
    """No VM is on a host of that name."""

    code = "host-not-found"

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(f"no VM is on a host {host}")


class TokenNotFound(FleetError):
    """There is no token of that id."""

    code = "token-not-found"

    def __init__(self, token: str) -> None:
        self.token = token
        super().__init__(f"there is no token {token}")


class FaultNotFound(FleetError):
    """No fault of that id is set."""

    code = "fault-not-found"

    def __init__(self, fault: str) -> None:
        self.fault = fault
        super().__init__(f"there is no fault {fault}, or it is over")


class CampaignNotFound(FleetError):
    """There is no campaign of that id or name."""

    code = "campaign-not-found"

    def __init__(self, campaign: str) -> None:
        self.campaign = campaign
        super().__init__(f"there is no campaign {campaign}")


class GateNotFound(FleetError):
    """The settings have no gate of that name."""

    code = "gate-not-found"

    def __init__(self, gate: str, known: Sequence[str] = ()) -> None:
        self.gate, self.known = gate, tuple(known)
        several = (
            f"there {'is' if len(known) == 1 else 'are'} {_join_names(sorted(known))}" if known else "there is none yet"
        )
        super().__init__(
            f"there is no gate {gate}: {several}; gates are set in forewarn.toml of the service, as [gates.{gate}]"
        )


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


class AmbiguousVm(FleetError):
    """The bare name exists in several scopes."""

    code = "ambiguous-vm"

    def __init__(self, vm: str, candidates: tuple[str, ...]) -> None:
        self.vm, self.candidates = vm, candidates
        super().__init__(f"there are several VMs {vm}: say which, {' or '.join(candidates)}")


class AmbiguousCampaign(FleetError):
    """Several campaigns that are not over have the name."""

    code = "ambiguous-campaign"

    def __init__(self, campaign: str, candidates: Sequence[str]) -> None:
        self.campaign, self.candidates = campaign, tuple(candidates)
        super().__init__(f"there are several campaigns {campaign}: say which by its id, {' or '.join(self.candidates)}")


class ScopeExists(FleetError):
    """There is a scope of that name already."""

    code = "scope-exists"

    def __init__(self, scope: str) -> None:
        self.scope = scope
        super().__init__(f"there is a scope {scope} already: choose another name, or change that one")


class SecretUnavailable(FleetError):
    """The request has made a token before; its secret is shown only once."""

    code = "secret-already-shown"

    def __init__(self, token: str, name: str) -> None:
        self.token, self.token_name = token, name
        super().__init__(
            f"this request has made token {token} ({name}) before, and its secret is shown only once: "
            "if you do not have it, revoke the token and create another"
        )


class AddressInUse(FleetError):
    """Another VM has this address in this network."""

    code = "address-in-use"

    def __init__(self, ip: str, network: str, vm: str) -> None:
        self.ip, self.network, self.vm = ip, network, vm
        super().__init__(f"address {ip} in network {network} belongs to {vm}")


class ManualTimeUnavailable(FleetError):
    """The service runs in real time, which nobody can move."""

    code = "clock-not-manual"

    def __init__(self) -> None:
        super().__init__("the service runs in real time: start it with --manual-time to move its clock")


class PositionNotFound(FleetError):
    """The journal does not reach so far: the position is of other data, or of data before a backup was restored."""

    code = "position-not-found"

    def __init__(self, position: int, last: int) -> None:
        self.position, self.last_position = position, last
        super().__init__(f"the journal reaches to position {last}, not to {position}: begin anew, without a position")


class JournalPruned(FleetError):
    """The next rows of the journal have been pruned, because they were too old or too many."""

    code = "journal-pruned"

    def __init__(self, after: int, pruned: int) -> None:
        self.after, self.pruned_to = after, pruned
        super().__init__(
            f"lines of the journal after position {after} have been removed, up to {pruned}: go on after {pruned}, "
            "and look at the state of what you follow"
        )


class PartialSchedule(FleetError):
    """Some scopes of a request made their events, another one did not."""

    code = "partially-created"

    def __init__(self, made: tuple[tuple[str, str], ...], why: Exception) -> None:
        self.created = tuple(f"{scope}/{event}" for scope, event in made)
        self.reason = str(why)
        super().__init__(
            f"made {', '.join(self.created)}, but not the rest: {why}; "
            "repeat the request with the same key to complete it, or cancel these events"
        )


class SaveFailed(FleetError):
    """The store could not keep the change, so it has not happened."""

    code = "save-failed"

    def __init__(self, why: str) -> None:
        self.reason = why
        super().__init__(f"nothing has changed, because it could not be saved: {why}")
