"""Who is calling: how a listener knows its callers, and how much each of them has asked for."""

from ipaddress import ip_address
from typing import NamedTuple, Protocol

from forewarn.core.scope import Scope
from forewarn.core.vm import Vm
from forewarn.fleet.replica import AddressIndex, Replica, ScopeView
from forewarn.wire.error_responses import UNKNOWN_CALLER, ErrorReason, ErrorResponse, error_response

CONTESTED = error_response(
    403, ErrorReason.UNKNOWN_CALLER, "Forbidden: more than one VM claims the address of this request, so none is served"
)


class Caller(NamedTuple):
    """A VM that calls, and the scope as of the moment at which it was found there."""

    view: ScopeView
    scope: Scope
    vm: Vm


class Door(Protocol):
    """How a listener knows its callers."""

    strangers: str
    """Under what to count those who are no VM; never the name of a scope."""

    owners: AddressIndex
    """Whose each address is, kept up to date: while this does not change, neither does the scope that calls from it."""

    def address(self, peer: object) -> str:
        """Write the address of a socket's peer as `owners` does."""
        ...

    def identify(self, address: str) -> Caller | ErrorResponse:
        """Tell which VM calls from that address."""
        ...


class OneVm:
    """A listener that is one VM's alone: whoever reaches it is that VM."""

    strangers = "@"

    def __init__(self, view: ScopeView, name: str) -> None:
        self._view = view
        self._name = name
        self._address = f"{view.id}/{name}"
        self._gone = error_response(
            403, ErrorReason.UNKNOWN_CALLER, f"Forbidden: there is no VM {self._address} any more"
        )
        self.owners = AddressIndex()
        self.owners.add(self._address, view)

    def address(self, _: object) -> str:
        """Write the VM's name: it does not matter from where it calls."""
        return self._address

    def identify(self, _: str) -> Caller | ErrorResponse:
        """Find the VM, unless it has left its scope."""
        scope = self._view.scope
        vm = scope.roster.find(self._name) if scope is not None else None
        return Caller(self._view, scope, vm) if scope is not None and vm is not None else self._gone


class ByAddress:
    """A listener for all VMs of a network, who are known by the address they call from."""

    def __init__(self, replica: Replica, network: str) -> None:
        self.strangers = f"@{network}"
        self.owners = replica.address_index(network)
        self._replica = replica
        self._network = network

    def address(self, peer: object) -> str:
        """Write IPv4 as such, even on a listener for both, and IPv6 without its zone."""
        host = str(peer[0]) if isinstance(peer, tuple) else ""
        if ":" not in host:
            return host
        address = ip_address(host.partition("%")[0])
        return str(getattr(address, "ipv4_mapped", None) or address)

    def identify(self, address: str) -> Caller | ErrorResponse:
        """Find the one VM that claims the address."""
        claims = self._replica.claims(self._network, address)
        if len(claims) > 1:
            return CONTESTED
        for view, vm in claims:
            if view.scope is not None:
                return Caller(view, view.scope, vm)
        return UNKNOWN_CALLER


class Tally:
    """What one VM has asked for, over all its connections; or one address that is no VM's."""

    __slots__ = ("beat", "connections", "held", "key", "refusals", "requests")

    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key
        self.connections = 0
        self.held = 0
        self.beat = 0
        self.requests = 0
        """Admitted within the second that `beat` counts."""
        self.refusals = 0
        """Not admitted within it."""

    def has_room(self, beat: int, limit: int) -> bool:
        """Tell whether one request more is within the limit of this second."""
        if self.beat != beat:
            self.beat = beat
            self.requests = self.refusals = 0
        return self.requests < limit

    def is_restrained(self, beat: int, limit: int) -> bool:
        """Tell whether nothing more is listened to in this second."""
        return self.beat == beat and self.refusals >= limit


class Tallies:
    """The tallies of all who are connected, or were within this second: hanging up does not clear one."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], Tally] = {}
        self._left: list[Tally] = []

    def enter(self, key: tuple[str, str]) -> Tally:
        """Count a connection."""
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = Tally(key)
        tally.connections += 1
        return tally

    def leave(self, tally: Tally) -> None:
        """Count a connection no more."""
        tally.connections -= 1
        if tally.connections == 0:
            self._left.append(tally)

    def forget(self) -> None:
        """Drop the tallies of those who have left; to be called when a second begins, for which they say nothing."""
        left, self._left = self._left, []
        for tally in left:
            if not tally.connections and self._tallies.get(tally.key) is tally:
                del self._tallies[tally.key]


class Visitor:
    """Whoever is at the other end of a connection. Who that is can change while it is open: VMs come and go."""

    __slots__ = ("_caller", "_door", "_tallies", "address", "owners", "tally")

    def __init__(self, door: Door, peer: object, tallies: Tallies) -> None:
        self._door = door
        self._tallies = tallies
        self.owners = door.owners
        self.address = door.address(peer)
        self._caller = door.identify(self.address)
        self.tally = tallies.enter(self._key())

    def recognise(self) -> Caller | ErrorResponse:
        """Tell who calls as of now, or why it is nobody; its requests count towards `tally`."""
        caller = self._caller
        if isinstance(caller, ErrorResponse) or self.owners.get(self.address) is not caller.view:
            return self._look_again()
        scope = caller.view.scope
        if scope is caller.scope:
            return caller
        if scope is None or scope.roster is not caller.scope.roster:
            return self._look_again()
        self._caller = caller = Caller(caller.view, scope, caller.vm)
        return caller

    def leave(self) -> None:
        """Say goodbye."""
        self._tallies.leave(self.tally)

    def _look_again(self) -> Caller | ErrorResponse:
        self._caller = self._door.identify(self.address)
        key = self._key()
        if key != self.tally.key:
            self._tallies.leave(self.tally)
            self.tally = self._tallies.enter(key)
        return self._caller

    def _key(self) -> tuple[str, str]:
        caller = self._caller
        return (
            (self._door.strangers, self.address)
            if isinstance(caller, ErrorResponse)
            else (caller.view.id, caller.vm.name)
        )
