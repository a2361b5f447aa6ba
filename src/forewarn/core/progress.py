"""How events go on by themselves: starting when they may, ending when their work is done, and when to look again."""

from datetime import datetime, timedelta

from forewarn.core.change import Change, Draft
from forewarn.core.conditions import Conditions
from forewarn.core.enablement import idle_at, switch_off_if_idle
from forewarn.core.event import SETTLED, Event, ImpactState, Move, State
from forewarn.core.explain import is_approved, is_its_time, waits_for_others
from forewarn.core.scope import Scope

CLOCK = "clock"


def tick(scope: Scope, conditions: Conditions, *, now: datetime, seen_at: datetime | None = None) -> Change[None]:
    """Let time act: start what is due, switch off a scope that has been silent for too long.

    `seen_at` is the newest request from the scope that anyone remembers; it may be newer than the saved one.
    """
    draft = Draft(scope, now)
    switch_off_if_idle(draft, conditions, seen_at)
    start_what_may(draft, conditions)
    return draft.finish(None)


def wake_at(scope: Scope, conditions: Conditions, *, seen_at: datetime | None = None) -> datetime | None:
    """Return the next moment at which time itself may change something; None: only a command can."""
    moments = [_starts_at(scope, event) for event in scope.events if _waits_only_for_time(scope, event, conditions)]
    under_way = vms_under_way(scope)
    moments += [
        impact.retry_at
        for event in scope.events
        for impact in event.impacts
        if impact.retry_at is not None and impact.vm not in under_way
    ]
    silent_at = idle_at(scope, conditions, seen_at)
    return min([*moments, silent_at] if silent_at else moments, default=None)


def _starts_at(scope: Scope, event: Event) -> datetime:
    """Return when an event may start that only time holds; one that is approved has waited long enough already."""
    return scope.changed_at if is_approved(scope, event) else event.not_before


def _waits_only_for_time(scope: Scope, event: Event, conditions: Conditions) -> bool:
    return event.state is State.SCHEDULED and not waits_for_others(scope, event, conditions)


def vms_under_way(scope: Scope) -> set[str]:
    """Return the VMs that the platform works on now: two impacts never run on one VM at a time."""
    return {impact.vm for event in scope.events for impact in event.impacts if impact.state is ImpactState.BEGUN}


def start_what_may(draft: Draft, conditions: Conditions) -> None:
    """Start every event that nothing holds, the longest due first."""
    waiting = [event for event in draft.scope.events if event.state is State.SCHEDULED]
    for event in sorted(waiting, key=turn):
        start_if_it_may(draft, event, conditions)


def start_if_it_may(draft: Draft, event: Event, conditions: Conditions, *, spoken_by: str | None = None) -> None:
    """Start a Scheduled event that nothing holds.

    `spoken_by` names who gave the last approval, where it was not the VM itself.
    """
    if is_its_time(draft.scope, event, now=draft.now) and not waits_for_others(draft.scope, event, conditions):
        _start(draft, event, spoken_by)


def turn(event: Event) -> tuple[datetime, datetime, int]:
    """Return the key that puts events, in the order of their making, into the order of their turns."""
    return event.not_before, event.made_at, event.update_domain


def _start(draft: Draft, event: Event, spoken_by: str | None) -> None:
    if not is_approved(draft.scope, event):
        late = draft.now - event.not_before
        draft.move(event, Move.START_DUE, by=CLOCK, why="due", late=seconds(late))
    else:
        *others, last = (approval.vm for approval in event.approvals)
        spoken = last if spoken_by is None else f"{spoken_by} in the name of {last}"
        why = f"approved by {', '.join((*others, spoken))}"
        draft.move(event, Move.START_APPROVED, by=spoken_by or f"vm:{last}", why=why)


def seconds(time: timedelta) -> str:
    """Write an amount of time for the journal's facts."""
    return f"{time.total_seconds():.3f}s"


def end_if_settled(draft: Draft, event_id: str, *, by: str, why: str = "") -> None:
    """End a Started event of which no work is left."""
    event = draft.scope.find_event(event_id)
    if event is None or event.state is not State.STARTED or any(i.state not in SETTLED for i in event.impacts):
        return
    took = seconds(draft.now - (event.started_at or draft.now))
    given_up = [impact for impact in event.impacts if impact.state is ImpactState.GIVEN_UP]
    if given_up or not _has_achieved_something(event):
        draft.move(event, Move.GIVE_UP, by=by, why=why or given_up[-1].why, took=took)
    else:
        draft.move(event, Move.COMPLETE, by=by, why=why, took=took)


def _has_achieved_something(event: Event) -> bool:
    """Tell whether work was done, or VMs that were to be taken away have gone in some other way."""
    return event.type.takes_away or any(impact.state is ImpactState.DONE for impact in event.impacts)
