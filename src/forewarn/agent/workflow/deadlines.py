"""Deadlines: how the time until an event is divided among the prepare calls. Pure.

Handlers run by importance, and each may use its whole time limit; the later ones share what is left. So no handler is
skipped before its turn, and the least important ones are skipped first.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby

import msgspec

from forewarn.agent.workflow.state import HandlerStep
from forewarn.client.document import Event

MARGIN = timedelta(seconds=1)
"""Calls end this long before the event: a cancelled call needs a moment to stop, and an approval to arrive."""

MINIMUM_SLICE = timedelta(seconds=1)
"""A call with less time than this is skipped, unless its own time limit is shorter."""


class TimeSlice(msgspec.Struct, frozen=True):
    """The time that a handler gets; None if there is not enough."""

    handler: str
    time: timedelta | None


def prepare_deadline(event: Event, noticed_at: datetime) -> datetime | None:
    """Return the time by which all prepare calls must have ended; None if unknown.

    A deadline that had passed when the event was noticed is ignored: the event waits for something else, or the
    clock of this machine is wrong.
    """
    return None if event.deadline is None or event.deadline <= noticed_at else event.deadline


def call_deadline(deadline: datetime | None, time_limit: timedelta, *, now: datetime) -> datetime | None:
    """Return the deadline of a call that starts now; None if there is no time left for it."""
    until = now + time_limit if deadline is None else min(now + time_limit, deadline - MARGIN)
    return until if until - now >= min(MINIMUM_SLICE, time_limit) else None


def plan_time_slices(event: Event, steps: Sequence[HandlerStep], *, now: datetime) -> tuple[TimeSlice, ...]:
    """Return the time slices if every handler used its whole time limit; None for handlers that would be skipped."""
    if event.is_started:
        return tuple(TimeSlice(step.handler, None) for step in by_importance(steps))
    deadline = prepare_deadline(event, now)
    slices: list[TimeSlice] = []
    for _, equals in groupby(by_importance(steps), key=lambda step: step.importance):
        ends = [(step.handler, call_deadline(deadline, step.time_limit, now=now)) for step in equals]
        slices += [TimeSlice(handler, None if end is None else end - now) for handler, end in ends]
        now = max((end for _, end in ends if end is not None), default=now)
    return tuple(slices)


def by_importance(steps: Sequence[HandlerStep]) -> tuple[HandlerStep, ...]:
    """Sort steps by importance, highest first; steps of equal importance keep their order."""
    return tuple(sorted(steps, key=lambda step: -step.importance))
