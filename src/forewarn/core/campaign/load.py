"""The load in impact in the whole fleet, from any cause: what the concurrency limits of campaigns count."""

from collections.abc import Iterable, Iterator

from forewarn.core.campaign.limits import Counts, Load, Usage, UsageDraft, unknown_host
from forewarn.core.event import Event, State
from forewarn.core.impact import SETTLED, STUCK
from forewarn.core.scope import Scope
from forewarn.core.vm import Vm


def load_of_vms(scope: str, vms: Iterable[Vm]) -> Load:
    """Return the load of these VMs of a scope."""
    hosts = [vm.host or unknown_host(scope, vm.update_domain) for vm in vms]
    return Load(scope, tuple(dict.fromkeys(hosts)), len(hosts))


def load_of_event(scope: str, event: Event) -> Load:
    """Return the load that an event will have when it starts."""
    return Load(scope, (event.host or unknown_host(scope, event.update_domain),), len(event.vms))


def scope_load(scope: Scope) -> Load | None:
    """Return the load of the VMs of Started events whose impacts are not settled."""
    names = {
        impact.vm
        for event in scope.events
        if event.state is State.STARTED
        for impact in event.impacts
        if impact.state not in SETTLED
    }
    return load_of_vms(scope.id, [vm for vm in scope.roster if vm.name in names]) if names else None


def has_active_work(scope: Scope) -> bool:
    """Return whether a Started event of the scope has an unsettled impact that does not wait for a person."""
    return any(
        impact.state not in SETTLED and impact.state not in STUCK
        for event in scope.events
        if event.state is State.STARTED
        for impact in event.impacts
    )


def has_stuck_work(event: Event, seen: int | None = None) -> bool:
    """Return whether an impact of an event waits for a person; `seen` is as in `Impact.is_stuck`."""
    return any(impact.is_stuck(seen) for impact in event.impacts)


class FleetLoad:
    """The load of the fleet, updated scope by scope.

    Decisions only read it. Who carries them out reserves the load of events that they start, and releases it when the
    scope shows these events, or when they do not start.
    """

    def __init__(self) -> None:
        self._usage = Usage()
        self._loads: dict[str, Load] = {}
        self._reserved: dict[str, Load] = {}
        """By event: loads of events that are about to start and whose scope does not show it yet."""

    def update(self, id_: str, scope: Scope | None) -> bool:
        """Update a scope; None: it was removed. Return whether the load has changed."""
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
        """Add the load of an event that is about to start."""
        if event not in self._reserved:
            self._reserved[event] = load
            self._usage.add(load)

    def release(self, events: Iterable[str]) -> None:
        """Remove the reservation: the scope now shows the event, or the event did not start."""
        for event in events:
            if (load := self._reserved.pop(event, None)) is not None:
                self._usage.remove(load)

    def plus(self, load: Load) -> Counts:
        """Return the usage with this load added."""
        return self._usage.plus(load)

    def draft(self) -> UsageDraft:
        """Return the usage as a draft, to which a decision adds what it starts."""
        return UsageDraft(self._usage)

    def loads(self) -> Iterator[Load]:
        """Yield all loads, including reserved ones."""
        yield from self._loads.values()
        yield from self._reserved.values()
