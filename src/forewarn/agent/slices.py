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


def prepare_by(event: Event, noticed_at: datetime) -> datetime | None:
    """Return the moment by which all is to be prepared; None if nobody knows.

    One that had passed when the event was noticed says nothing: the event waits for something else, or the clock of
    this machine is wrong.
    """
    return None if event.deadline is None or event.deadline <= noticed_at else event.deadline


def end_of_slice(by: datetime | None, time_limit: timedelta, *, now: datetime) -> datetime | None:
    """Return until when a half that begins now may take; None if it does not fit any more."""
    until = now + time_limit if by is None else min(now + time_limit, by - MARGIN)
    return until if until - now >= min(LEAST, time_limit) else None


def foresee(event: Event, steps: Sequence[Step], *, now: datetime) -> tuple[Slice, ...]:
    """Tell what everybody would get if all took their whole limit, and who would get nothing."""
    if event.is_started:
        return tuple(Slice(step.handler, None) for step in by_importance(steps))
    by = prepare_by(event, now)
    slices: list[Slice] = []
    for _, equals in groupby(by_importance(steps), key=lambda step: step.importance):
        ends = [(step.handler, end_of_slice(by, step.time_limit, now=now)) for step in equals]
        slices += [Slice(handler, None if end is None else end - now) for handler, end in ends]
        now = max((end for _, end in ends if end is not None), default=now)
    return tuple(slices)


def by_importance(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the most important first; equals in the order in which they were chosen."""
    return tuple(sorted(steps, key=lambda step: -step.importance))
