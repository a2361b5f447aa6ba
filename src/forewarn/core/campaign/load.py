"""The load in impact in the whole fleet, from any cause: what the concurrency limits of campaigns count."""

from collections.abc import Iterable, Iterator

from forewarn.core.campaign.limits import Counts, Load, Usage, unknown_host
from forewarn.core.event import Event, State
from forewarn.core.impact import SETTLED, STUCK
from forewarn.core.scope import Scope
from forewarn.core.vm import Vm


def load_of_vms(scope: str, vms: Iterable[Vm]) -> Load:
    """Return what these VMs of a scope come to."""
    hosts = [vm.host or unknown_host(scope, vm.update_domain) for vm in vms]
    return Load(scope, tuple(dict.fromkeys(hosts)), len(hosts))


def load_of_event(scope: str, event: Event) -> Load:
    """Return what an event will have in impact when it starts."""
    return Load(scope, (event.host or unknown_host(scope, event.update_domain),), len(event.vms))


def scope_load(scope: Scope) -> Load | None:
    """Return the VMs of Started events on which work is not settled, and where they are."""
    names = {
        impact.vm
        for event in scope.events
        if event.state is State.STARTED
        for impact in event.impacts
        if impact.state not in SETTLED
    }
    return load_of_vms(scope.id, [vm for vm in scope.roster if vm.name in names]) if names else None


def has_active_work(scope: Scope) -> bool:
    """Tell whether work of Started events of a scope is under way that does not wait for a person."""
    return any(
        impact.state not in SETTLED and impact.state not in STUCK
        for event in scope.events
        if event.state is State.STARTED
        for impact in event.impacts
    )


def has_stuck_work(event: Event) -> bool:
    """Tell whether work of an event waits for a person."""
    return any(impact.state in STUCK for impact in event.impacts)


class FleetLoad:
    """Kept up to date scope by scope. What a campaign has decided to start counts from that moment on."""

    def __init__(self) -> None:
        self._usage = Usage()
        self._loads: dict[str, Load] = {}
        self._reserved: dict[str, Load] = {}
        """By event: what is about to start and is not seen in its scope yet."""

    def update(self, id_: str, scope: Scope | None) -> bool:
        """Take a scope as it is now; None: it is gone. Tell whether something else is in impact than before."""
        old = self._loads.get(id_)
        new = scope_load(scope) if scope is not None and scope.events else None
        if new == old:
            return False
        if old is not None:
            del self._loads[id_]
            self._usage.remove(old)
        if new is not None:
            self._loads[id_] = new
            self._usage.add(new)
        return True

    def reserve(self, event: str, load: Load) -> None:
        """Count an event that is about to start."""
        if event not in self._reserved:
            self._reserved[event] = load
            self._usage.add(load)

    def release(self, events: Iterable[str]) -> None:
        """Do not count it twice: its scope shows it now, or it has not started after all."""
        for event in events:
            if (load := self._reserved.pop(event, None)) is not None:
                self._usage.remove(load)

    def plus(self, load: Load) -> Counts:
        """Return how much would be in impact with this in addition."""
        return self._usage.plus(load)

    def loads(self) -> Iterator[Load]:
        """Give everything that is in impact, or about to be."""
        yield from self._loads.values()
        yield from self._reserved.values()
