"""Addresses that are being given: two scopes that come at the same time do not get the same one."""

from collections.abc import Iterator
from contextlib import contextmanager

from forewarn.core.scope import Scope
from forewarn.fleet.errors import AddressTaken
from forewarn.fleet.replica import Replica


class Addresses:
    """The addresses that VMs have, which the replica knows, and those that are claimed until they are saved."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._claimed: dict[tuple[str, str], str] = {}

    @contextmanager
    def claimed(self, scope: Scope) -> Iterator[None]:
        """Claim the addresses of a new scope while it is being saved; refuse if one of them is taken."""
        wanted = {
            (address.network, address.ip): f"{scope.id}/{vm.name}" for vm in scope.roster for address in vm.addresses
        }
        for network, ip in wanted:
            if (owner := self._owner(scope.id, network, ip)) is not None:
                raise AddressTaken(ip, network, owner)
        self._claimed |= wanted
        try:
            yield
        finally:
            for address in wanted:
                self._claimed.pop(address, None)

    def _owner(self, scope: str, network: str, ip: str) -> str | None:
        if (network, ip) in self._claimed:
            return self._claimed[network, ip]
        claims = self._replica.claims(network, ip)
        return next((f"{view.id}/{vm.name}" for view, vm in claims if view.id != scope), None)
