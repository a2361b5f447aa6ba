"""One of the affected VMs can act for all, without any of them talking to another: all see the same order of names."""

from forewarn.client.document import Event, is_named


def leader(event: Event) -> str | None:
    """Return the VM that acts for all that are affected: the first; None if the event names none."""
    return _at(event, 0)


def deputy(event: Event) -> str | None:
    """Return the VM that acts if the leader does not: the second; None if there is no second."""
    return _at(event, 1)


def is_leader(event: Event, name: str) -> bool:
    """Tell whether the VM of this name is the leader."""
    return _is(name, leader(event))


def is_deputy(event: Event, name: str) -> bool:
    """Tell whether the VM of this name is the deputy."""
    return _is(name, deputy(event))


def _at(event: Event, place: int) -> str | None:
    return event.resources[place] if place < len(event.resources) else None


def _is(name: str, other: str | None) -> bool:
    return other is not None and is_named(name, (other,))
