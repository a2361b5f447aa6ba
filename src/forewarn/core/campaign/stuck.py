"""What of a wave's work waits for a person, in words: on which VMs, why, and whether anybody knows if it was done."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from forewarn.core.event import STUCK, Event, ImpactState

NAMES_TOLD = 5
"""How many VMs are named of those that have the same reason."""


class Stuck(NamedTuple):
    """Work that goes on only when a person decides."""

    why: str
    unknown: bool
    """Whether nobody knows of some of it if it was done: a retry might do it twice."""


def is_stuck(event: Event) -> bool:
    """Tell whether work of an event waits for a person."""
    return any(impact.state in STUCK for impact in event.impacts)


def stuck_work(events: Iterable[Event]) -> Stuck | None:
    """Say what of the events' work waits for a person, VMs with the same reason together; None: nothing does."""
    told: dict[tuple[ImpactState, str], list[str]] = {}
    for event in events:
        for impact in event.impacts:
            if impact.state in STUCK:
                told.setdefault((impact.state, impact.why or "no reason was given"), []).append(impact.vm)
    if not told:
        return None
    why = "; ".join(_sentence(state, reason, vms) for (state, reason), vms in told.items())
    return Stuck(why, any(state is ImpactState.UNKNOWN for state, _ in told))


def _sentence(state: ImpactState, why: str, vms: Sequence[str]) -> str:
    more = len(vms) - NAMES_TOLD
    names = ", ".join(vms[:NAMES_TOLD]) + (f" and {more} more" if more > 0 else "")
    if state is ImpactState.UNKNOWN:
        return f"nobody knows whether the work on {names} was done: {why}"
    return f"{names}: {why}"
