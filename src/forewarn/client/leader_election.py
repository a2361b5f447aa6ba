"""Leader election without communication: all VMs see the same order of resources, so the first is the leader and the
second its deputy.
"""

from forewarn.client.document import Event, is_named


def leader(event: Event) -> str | None:
    """Return the VM that acts for all that are affected: the first; None if the event names none."""
    return _resource_at(event, 0)


def deputy(event: Event) -> str | None:
    """Return the VM that acts if the leader does not: the second; None if there is no second."""
    return _resource_at(event, 1)


def is_leader(event: Event, name: str) -> bool:
    """Tell whether the VM of this name is the leader."""
    return _is_same_vm(name, leader(event))


def is_deputy(event: Event, name: str) -> bool:
    """Tell whether the VM of this name is the deputy."""
    return _is_same_vm(name, deputy(event))


def _resource_at(event: Event, index: int) -> str | None:
    return event.resources[index] if index < len(event.resources) else None


def _is_same_vm(name: str, other: str | None) -> bool:
    return other is not None and is_named(name, (other,))
