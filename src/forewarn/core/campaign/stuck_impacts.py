"""Describe the stuck impacts of a wave: on which VMs, why, and whether the outcome is unknown."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from forewarn.core.event import Event
from forewarn.core.impact import STUCK, ImpactState

MAX_NAMES_SHOWN = 5
"""How many VMs are named of those that have the same reason."""


class StuckImpacts(NamedTuple):
    """Work that goes on only when a person decides."""

    why: str
    unknown: bool
    """Whether nobody knows of some of it if it was done: a retry might do it twice."""


def is_stuck(event: Event) -> bool:
    """Tell whether work of an event waits for a person."""
    return any(impact.state in STUCK for impact in event.impacts)


def find_stuck_impacts(events: Iterable[Event]) -> StuckImpacts | None:
    """Say what of the events' work waits for a person, VMs with the same reason together; None: nothing does."""
    groups: dict[tuple[ImpactState, str], list[str]] = {}
    for event in events:
        for impact in event.impacts:
            if impact.state in STUCK:
                groups.setdefault((impact.state, impact.why or "no reason was given"), []).append(impact.vm)
    if not groups:
        return None
    why = "; ".join(_message(state, reason, vms) for (state, reason), vms in groups.items())
    return StuckImpacts(why, any(state is ImpactState.UNKNOWN for state, _ in groups))


def _message(state: ImpactState, why: str, vms: Sequence[str]) -> str:
    more = len(vms) - MAX_NAMES_SHOWN
    names = ", ".join(vms[:MAX_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
    if state is ImpactState.UNKNOWN:
        return f"nobody knows whether the work on {names} was done: {why}"
    return f"{names}: {why}"
