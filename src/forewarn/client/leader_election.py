"""Leader election without communication: all VMs see the same order of `resources`. The first VM is the leader, the
second its deputy.
"""

from forewarn.client.document import Event, is_named


def leader(event: Event) -> str | None:
    """Return the VM that acts for all affected VMs: the first in `resources`, or None if that is empty."""
    return _resource_at(event, 0)


def deputy(event: Event) -> str | None:
    """Return the VM that acts if the leader does not: the second in `resources`, or None."""
    return _resource_at(event, 1)


def is_leader(event: Event, name: str) -> bool:
    """Return whether the VM with this name is the leader."""
    return _is_same_vm(name, leader(event))


def is_deputy(event: Event, name: str) -> bool:
    """Return whether the VM with this name is the deputy."""
    return _is_same_vm(name, deputy(event))


def _resource_at(event: Event, index: int) -> str | None:
    return event.resources[index] if index < len(event.resources) else None


def _is_same_vm(name: str, other: str | None) -> bool:
    return other is not None and is_named(name, (other,))
