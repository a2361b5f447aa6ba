"""How the time until an event is divided among those who prepare for it. Pure.

Whoever is more important goes first and may take as much as his limit; the others share what is really left. So nothing
is given up before its turn has come, and what is given up is always the least important.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby

import msgspec

from forewarn.agent.walk import Step
from forewarn.client.document import Event

MARGIN = timedelta(seconds=1)
"""Everything has ended so long before the event: what is cut off needs a moment to end, and an approval to arrive."""

LEAST = timedelta(seconds=1)
"""Nothing is begun with less time than this, unless its own limit is shorter."""


class Slice(msgspec.Struct, frozen=True):
    """The time that a handler has; None if there is not enough of it."""

    handler: str
    time: timedelta | None


def end_of_slice(event: Event, time_limit: timedelta, *, now: datetime) -> datetime | None:
    """Return until when a half that begins now may take; None if it does not fit any more."""
    if event.is_started:
        return None
    until = now + time_limit
    if event.deadline is not None:
        until = min(until, event.deadline - MARGIN)
    return until if until - now >= min(LEAST, time_limit) else None


def foresee(event: Event, steps: Sequence[Step], *, now: datetime) -> tuple[Slice, ...]:
    """Tell what everybody would get if all took their whole limit, and who would get nothing."""
    slices: list[Slice] = []
    for _, equals in groupby(by_importance(steps), key=lambda step: step.importance):
        ends = [(step.handler, end_of_slice(event, step.time_limit, now=now)) for step in equals]
        slices += [Slice(handler, None if end is None else end - now) for handler, end in ends]
        now = max((end for _, end in ends if end is not None), default=now)
    return tuple(slices)


def by_importance(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the most important first; equals in the order in which they were chosen."""
    return tuple(sorted(steps, key=lambda step: -step.importance))
