"""Caller identity: resolves the peer of a connection to a VM, by listener or by source address."""

from ipaddress import ip_address
from typing import NamedTuple, Protocol

from forewarn.core.scope import Scope
from forewarn.core.vm import Vm
from forewarn.fleet.replica import AddressIndex, Replica, ScopeView
from forewarn.guest.rate_limit import RateLimiter
from forewarn.wire.error_responses import UNKNOWN_CALLER, ErrorReason, ErrorResponse, error_response

AMBIGUOUS_CALLER = error_response(
    403, ErrorReason.UNKNOWN_CALLER, "Forbidden: more than one VM claims the address of this request, so none is served"
)


class Caller(NamedTuple):
    """The calling VM, and its scope at the time when the VM was identified."""

    view: ScopeView
    scope: Scope
    vm: Vm


class CallerResolver(Protocol):
    """Resolves the callers of a listener to VMs."""

    anonymous_key: str
    """Rate-limit key for callers that are not a known VM; never the name of a scope."""

    address_index: AddressIndex
    """The owner of each address, kept up to date. While it is unchanged, an address belongs to the same scope."""

    def address(self, peername: object) -> str:
        """Return the address of a socket's peer in the form that `address_index` uses."""
        ...

    def identify(self, address: str) -> Caller | ErrorResponse:
        """Return the VM with that address, or why there is none."""
        ...


class FixedVmResolver:
    """A listener for one VM: every caller counts as that VM."""

    anonymous_key = "@"

    def __init__(self, view: ScopeView, name: str) -> None:
        self._view = view
        self._name = name
        self._address = f"{view.id}/{name}"
        self._gone = error_response(
            403, ErrorReason.UNKNOWN_CALLER, f"Forbidden: there is no VM {self._address} any more"
        )
        self.address_index = AddressIndex()
        self.address_index.add(self._address, view)

    def address(self, _: object) -> str:
        """Return the VM's name, because the source address does not matter."""
        return self._address

    def identify(self, _: str) -> Caller | ErrorResponse:
        """Return the VM, or an error if it was removed from its scope."""
        scope = self._view.scope
        vm = scope.roster.find(self._name) if scope is not None else None
        return Caller(self._view, scope, vm) if scope is not None and vm is not None else self._gone


class AddressResolver:
    """A listener for all VMs of a network, which are identified by source address."""

    def __init__(self, replica: Replica, network: str) -> None:
        self.anonymous_key = f"@{network}"
        self.address_index = replica.address_index(network)
        self._replica = replica
        self._network = network

    def address(self, peername: object) -> str:
        """Return an IPv4 address as such, even on a dual-stack listener, and an IPv6 address without its zone."""
        host = str(peername[0]) if isinstance(peername, tuple) else ""
        if ":" not in host:
            return host
        address = ip_address(host.partition("%")[0])
        return str(getattr(address, "ipv4_mapped", None) or address)

    def identify(self, address: str) -> Caller | ErrorResponse:
        """Return the one VM that claims the address."""
        claims = self._replica.claims(self._network, address)
        if len(claims) > 1:
            return AMBIGUOUS_CALLER
        for view, vm in claims:
            if view.scope is not None:
                return Caller(view, view.scope, vm)
        return UNKNOWN_CALLER


class Peer:
    """The other end of a connection. Its VM can change while the connection is open, if the inventory changes."""

    __slots__ = ("_caller", "_rate_limiter", "_resolver", "address", "address_index", "counter")

    def __init__(self, resolver: CallerResolver, peername: object, rate_limiter: RateLimiter) -> None:
        self._resolver = resolver
        self._rate_limiter = rate_limiter
        self.address_index = resolver.address_index
        self.address = resolver.address(peername)
        self._caller = resolver.identify(self.address)
        self.counter = rate_limiter.add_connection(self._counter_key())

    def identify(self) -> Caller | ErrorResponse:
        """Return the calling VM as of now, or why there is none, and set `counter` to its rate counter."""
        caller = self._caller
        if isinstance(caller, ErrorResponse) or self.address_index.get(self.address) is not caller.view:
            return self._identify_again()
        scope = caller.view.scope
        if scope is caller.scope:
            return caller
        if scope is None or scope.roster is not caller.scope.roster:
            return self._identify_again()
        self._caller = caller = Caller(caller.view, scope, caller.vm)
        return caller

    def disconnect(self) -> None:
        """Drop its connection from the rate limiter."""
        self._rate_limiter.remove_connection(self.counter)

    def _identify_again(self) -> Caller | ErrorResponse:
        self._caller = self._resolver.identify(self.address)
        key = self._counter_key()
        if key != self.counter.key:
            self._rate_limiter.remove_connection(self.counter)
            self.counter = self._rate_limiter.add_connection(key)
        return self._caller

    def _counter_key(self) -> tuple[str, str]:
        caller = self._caller
        return (
            (self._resolver.anonymous_key, self.address)
            if isinstance(caller, ErrorResponse)
            else (caller.view.id, caller.vm.name)
        )
