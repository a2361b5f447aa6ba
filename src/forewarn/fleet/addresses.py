"""Addresses that are being given: two VMs that come or change at the same time do not get the same one."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from forewarn.core.vm import Vm
from forewarn.fleet.errors import AddressTaken
from forewarn.fleet.replica import Replica


class Addresses:
    """The addresses that VMs have, which the replica knows, and those that are claimed until they are saved."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._claimed: dict[tuple[str, str], list[str]] = {}

    @contextmanager
    def claimed(self, scope: str, vms: Iterable[Vm], *, from_others: bool = False) -> Iterator[None]:
        """Claim the addresses of a scope's VMs while these are being saved; refuse if one of them is taken.

        `from_others`: only by VMs of other scopes; within its own, the rule that is applied sees to it.
        """
        wanted: dict[tuple[str, str], str] = {}
        for vm in vms:
            owner = f"{scope}/{vm.name}"
            for address in vm.addresses:
                place = (address.network, address.ip)
                other = self.owner(*place, besides=f"{scope}/" if from_others else owner) or wanted.get(place)
                if other is not None and other != owner:
                    raise AddressTaken(address.ip, address.network, other)
                wanted[place] = owner
        for place, owner in wanted.items():
            self._claimed.setdefault(place, []).append(owner)
        try:
            yield
        finally:
            for place, owner in wanted.items():
                self._unclaim(place, owner)

    def owner(self, network: str, ip: str, *, besides: str) -> str | None:
        """Return who has an address or is about to get it, other than this VM (`scope/name`) or scope (`scope/`)."""
        claims = (f"{view.id}/{vm.name}" for view, vm in self._replica.claims(network, ip))
        owners = [*self._claimed.get((network, ip), ()), *claims]
        return next((owner for owner in owners if not _is_meant(owner, besides)), None)

    def _unclaim(self, place: tuple[str, str], owner: str) -> None:
        self._claimed[place].remove(owner)
        if not self._claimed[place]:
            del self._claimed[place]


def _is_meant(vm: str, name: str) -> bool:
    scope, _, bare = name.rpartition("/")
    its_scope, _, its_name = vm.rpartition("/")
    return scope == its_scope and (not bare or bare.casefold() == its_name.casefold())
