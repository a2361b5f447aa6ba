"""What is in impact at a moment, for whatever reason: the scopes, hosts and VMs that the limits of campaigns count."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from forewarn.core.campaign.limits import Amounts, Ceilings, Exceeded
from forewarn.core.event import SETTLED, State
from forewarn.core.scope import Scope


class Part(NamedTuple):
    """What one scope has in impact, or an event would bring there."""

    vms: int
    hosts: frozenset[str]


NOTHING = Part(0, frozenset())


def place(scope: str, host: str | None) -> str:
    """Return what a host counts as; the VMs of a scope whose host is not known count as on one of their own."""
    return f"?{scope}" if host is None else host


def in_impact(scope: Scope) -> Part:
    """Return the VMs of Started events on which work is not settled, and where they are."""
    vms = {
        impact.vm
        for event in scope.events
        if event.state is State.STARTED
        for impact in event.impacts
        if impact.state not in SETTLED
    }
    if not vms:
        return NOTHING
    return Part(len(vms), frozenset(place(scope.id, vm.host) for vm in scope.roster if vm.name in vms))


class Load:
    """So much at once, added up."""

    def __init__(self) -> None:
        self.scopes: set[str] = set()
        self.hosts: set[str] = set()
        self.vms = 0

    def add(self, scope: str, part: Part) -> None:
        """Add what comes into impact in a scope."""
        if part.vms:
            self.scopes.add(scope)
            self.hosts |= part.hosts
            self.vms += part.vms

    def exceeded(self, ceilings: Ceilings, scope: str, part: Part) -> tuple[Exceeded, ...]:
        """Return the limits that would not be kept with this in addition."""
        return ceilings.exceeded(
            Amounts(
                scopes=len(self.scopes) + (scope not in self.scopes),
                hosts=len(self.hosts) + len(part.hosts - self.hosts),
                vms=self.vms + part.vms,
            )
        )


class Impacted:
    """What is in impact in the whole fleet, kept up to date scope by scope, and what is about to be.

    What a campaign has decided to start counts from that moment on, until the scope itself shows it.
    """

    def __init__(self) -> None:
        self._parts: dict[str, Part] = {}
        self._reserved: dict[tuple[str, str], Part] = {}

    def take(self, id_: str, scope: Scope | None) -> None:
        """Take a scope as it is now; None: it is gone."""
        part = in_impact(scope) if scope is not None and scope.events else NOTHING
        if part.vms:
            self._parts[id_] = part
        else:
            self._parts.pop(id_, None)

    def reserve(self, scope: str, event: str, part: Part) -> None:
        """Count what is about to start."""
        self._reserved[scope, event] = part

    def release(self, scope: str, events: Iterable[str]) -> None:
        """Do not count it twice: the scope shows it now, or it has not started after all."""
        for event in events:
            self._reserved.pop((scope, event), None)

    def load(self, without: Callable[[str], bool] = lambda _: False) -> Load:
        """Add up what is in impact, but for the scopes that are to be left out."""
        load = Load()
        for scope, part in self._parts.items():
            if not without(scope):
                load.add(scope, part)
        for (scope, _), part in self._reserved.items():
            if not without(scope):
                load.add(scope, part)
        return load
