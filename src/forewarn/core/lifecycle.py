"""Event lifecycle: fire the state machine's triggers that are due, and compute the next wake-up.

Events start when they are due or approved, and end when their impacts are settled.
"""

from datetime import datetime, timedelta

from forewarn.core.change import Change, Draft
from forewarn.core.enablement import disable_if_idle, idle_at
from forewarn.core.event import Event, State, Trigger
from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.explain import external_blockers, is_approved, is_due_or_approved
from forewarn.core.impact import SETTLED, ImpactState
from forewarn.core.policy import RuleContext
from forewarn.core.scope import Scope

CLOCK = "clock"


def tick(scope: Scope, context: RuleContext, *, now: datetime, seen_at: datetime | None = None) -> Change[None]:
    """Apply the passing of time: start due events, disable a scope whose idle timeout is over.

    `seen_at` is the time of the scope's newest request, which may be newer than the saved one.
    """
    draft = Draft(scope, now)
    disable_if_idle(draft, context, seen_at)
    start_ready_events(draft, context)
    return draft.finish(None)


def wake_at(scope: Scope, context: RuleContext, *, now: datetime, seen_at: datetime | None = None) -> datetime | None:
    """Return the next time at which time alone may change something; None if only a command can."""
    moments = [_starts_at(scope, event, now) for event in scope.events if _waits_for_time(scope, event, context)]
    retries = [
        (impact.retry_at, impact.vm)
        for event in scope.events
        for impact in event.impacts
        if impact.retry_at is not None
    ]
    if retries:
        in_progress = vms_in_progress(scope)
        moments += [retry_at for retry_at, vm in retries if vm not in in_progress]
    if (disable_at := idle_at(scope, context, seen_at)) is not None:
        moments.append(disable_at)
    return min(moments, default=None)


def _starts_at(scope: Scope, event: Event, now: datetime) -> datetime:
    """Return when an event may start that waits only for time; an approved event may start at once."""
    return min(scope.changed_at, now) if is_approved(scope, event) else event.not_before


def _waits_for_time(scope: Scope, event: Event, context: RuleContext) -> bool:
    return event.state is State.SCHEDULED and not external_blockers(scope, event, context)


def vms_in_progress(scope: Scope) -> set[str]:
    """Return the VMs that the platform works on now: two impacts never run on one VM at the same time."""
    return {impact.vm for event in scope.events for impact in event.impacts if impact.state is ImpactState.BEGUN}


def start_ready_events(draft: Draft, context: RuleContext) -> None:
    """Start every event that has no blocker, the one with the earliest due time first."""
    waiting = [event for event in draft.scope.events if event.state is State.SCHEDULED]
    for event in sorted(waiting, key=start_order):
        start_if_ready(draft, event, context)


def start_if_ready(draft: Draft, event: Event, context: RuleContext, *, approved_by: str | None = None) -> None:
    """Start a Scheduled event if it has no blocker.

    `approved_by` names who gave the last approval if it was not the VM itself.
    """
    is_ready = (
        is_due_or_approved(draft.scope, event, now=draft.clock_at)
        if context.starts_due
        else is_approved(draft.scope, event)
    )
    if is_ready and not external_blockers(draft.scope, event, context):
        _start(draft, event, approved_by)


def start_order(event: Event) -> tuple[datetime, datetime, int]:
    """Return the sort key that puts events, given in the order of creation, into the order in which they start."""
    return event.not_before, event.created_at, event.update_domain


def _start(draft: Draft, event: Event, approved_by: str | None) -> None:
    if not is_approved(draft.scope, event):
        late = draft.clock_at - event.not_before
        draft.apply(event, Trigger.START_DUE, by=CLOCK, why="due", late=format_seconds(late))
    else:
        *others, last = (approval.vm for approval in event.approvals)
        approver = last if approved_by is None else f"{approved_by} in the name of {last}"
        why = f"approved by {', '.join((*others, approver))}"
        draft.apply(event, Trigger.START_APPROVED, by=approved_by or f"vm:{last}", why=why)


def format_seconds(time: timedelta) -> str:
    """Format a duration as seconds for the facts of journal entries."""
    return f"{time.total_seconds():.3f}s"


def end_if_settled(draft: Draft, event_id: str, *, by: str, why: str = "") -> None:
    """End a Started event when all its impacts are settled."""
    event = draft.scope.find_event(event_id)
    if event is None or event.state is not State.STARTED or any(i.state not in SETTLED for i in event.impacts):
        return
    took = format_seconds(draft.now - (event.started_at or draft.now))
    given_up = [impact for impact in event.impacts if impact.state is ImpactState.GIVEN_UP]
    if given_up or not _is_successful(event):
        draft.apply(event, Trigger.GIVE_UP, by=by, why=why or given_up[-1].why, took=took)
    else:
        draft.apply(event, Trigger.COMPLETE, by=by, why=why, took=took)


def _is_successful(event: Event) -> bool:
    """Return whether an impact completed, or VMs that the event was to remove have left in another way."""
    return EVENT_TYPES[event.type].removes_vm or any(impact.state is ImpactState.DONE for impact in event.impacts)
