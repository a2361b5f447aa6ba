"""Operations: restart, redeploy, evict, fail, delete, cancel, clear, hold, release (PROTOCOL §6, DESIGN §3)."""

from collections.abc import Collection
from datetime import datetime, timedelta

import msgspec

from forewarn.core.change import Change, Draft
from forewarn.core.event import EventType, Source, State, Trigger
from forewarn.core.event_type import DEFAULT_FAILURE_TYPE, EVENT_TYPES, PREDICTED_FAILURE_TYPE
from forewarn.core.explain import explain
from forewarn.core.idempotency import IdempotencyKey, apply_once, is_repeated_request
from forewarn.core.inventory import remove_vm
from forewarn.core.journal import EntryKind
from forewarn.core.lifecycle import start_if_ready, start_order, start_ready_events
from forewarn.core.policy import RuleContext
from forewarn.core.schedule import ScheduleRequest, events_of_request, request_of_key, schedule
from forewarn.core.scope import Scope, new_hold

DELETED_REASON = "deleted by its owner"


def restart(
    vm: str, *, request: str, by: str, notice: timedelta | None = None, why: str = "", key: str | None = None
) -> ScheduleRequest:
    """Restart a VM on request of its owner."""
    return ScheduleRequest(
        id=request, type=EventType.REBOOT, vms=(vm,), by=by, source=Source.USER, notice=notice, why=why, key=key
    )


def redeploy(
    vm: str, *, request: str, by: str, notice: timedelta | None = None, why: str = "", key: str | None = None
) -> ScheduleRequest:
    """Move a VM to another host on request of its owner."""
    return ScheduleRequest(
        id=request, type=EventType.REDEPLOY, vms=(vm,), by=by, source=Source.USER, notice=notice, why=why, key=key
    )


def evict(
    vm: str, *, request: str, by: str, notice: timedelta | None = None, why: str = "", key: str | None = None
) -> ScheduleRequest:
    """Evict a low-priority VM, as the platform does when it needs the capacity."""
    return ScheduleRequest(id=request, type=EventType.PREEMPT, vms=(vm,), by=by, notice=notice, why=why, key=key)


def fail(
    vms: tuple[str, ...],
    *,
    request: str,
    by: str,
    kind: EventType = DEFAULT_FAILURE_TYPE,
    why: str = "",
    key: str | None = None,
) -> ScheduleRequest:
    """Report a hardware failure of these VMs: no notice, the event appears as Started."""
    return ScheduleRequest(id=request, type=kind, vms=vms, by=by, failure=True, why=why, key=key)


def predict_failure(
    vms: tuple[str, ...], *, request: str, by: str, ahead: timedelta, why: str = "", key: str | None = None
) -> ScheduleRequest:
    """Predict a hardware failure of these VMs: schedule an event days ahead."""
    return ScheduleRequest(
        id=request,
        type=PREDICTED_FAILURE_TYPE,
        vms=vms,
        by=by,
        notice=ahead,
        description=EVENT_TYPES[PREDICTED_FAILURE_TYPE].predicted_description or "",
        why=why,
        key=key,
    )


def delete(
    scope: Scope,
    vm: str,
    context: RuleContext,
    *,
    request: str,
    by: str,
    now: datetime,
    why: str = "",
    at_once: bool = False,
    unannounced: bool = False,
    poll_version: str | None = None,
    idempotency_key: IdempotencyKey | None = None,
) -> Change[tuple[str, ...]]:
    """Delete a VM: with a Terminate event if it has a terminate profile, else at once and without an event.

    A repeated request gets the original answer: the Terminate event, or none.
    """
    if idempotency_key is not None and is_repeated_request(
        scope.seen_keys, idempotency_key, now=max(now, scope.changed_at)
    ):
        return Change(
            scope, (), events_of_request(scope, request_of_key(scope, idempotency_key.key, idempotency_key.caller))
        )
    if scope.traits_of(scope.vm(vm)).terminate_notice is not None:
        schedule_request = ScheduleRequest(
            id=request,
            type=EventType.TERMINATE,
            vms=(vm,),
            by=by,
            source=Source.USER,
            why=why,
            at_once=at_once,
            unannounced=unannounced,
        ).with_key(idempotency_key)
        return schedule(scope, schedule_request, context, now=now, poll_version=poll_version)
    removed = apply_once(
        scope,
        idempotency_key,
        lambda value: remove_vm(value, vm, context, by=by, now=now, why=why or DELETED_REASON, force=True),
        now=now,
    )
    return Change(removed.scope, removed.entries, ())


def cancel(scope: Scope, event_id: str, context: RuleContext, *, by: str, now: datetime, why: str = "") -> Change[None]:
    """Cancel a Scheduled event; it will not happen."""
    draft = Draft(scope, now)
    draft.apply(scope.event(event_id), Trigger.CANCEL, by=by, why=why)
    start_ready_events(draft, context)
    return draft.finish(None)


def clear(scope: Scope, events: Collection[str], context: RuleContext, *, now: datetime) -> Change[tuple[str, ...]]:
    """Clear and start those of a campaign's events that have no other blocker, and return their ids.

    Events with another blocker are not cleared; the campaign decides again when that blocker is gone.
    """
    draft = Draft(scope, now)
    start_ready_events(draft, context)  # events that are due already take their turn first
    cleared: list[str] = []
    for event in sorted((event for event in draft.scope.events if event.id in events), key=start_order):
        if event.state is State.SCHEDULED and event.campaign and not event.cleared:
            free = msgspec.structs.replace(event, cleared=True)
            if not explain(draft.scope, free, context, now=draft.clock_at):
                draft.put(free)
                start_if_ready(draft, free, context)
                cleared.append(event.id)
    return draft.finish(tuple(cleared))


def hold(scope: Scope, *, by: str, reason: str, now: datetime) -> Change[None]:
    """Hold planned maintenance of this scope until it is released. Failures and evictions still happen."""
    draft = Draft(scope, now)
    draft.set(hold=new_hold(by=by, reason=reason, now=draft.now))
    draft.add_entry(EntryKind.HELD, by=by, why=reason)
    return draft.finish(None)


def release(scope: Scope, context: RuleContext, *, by: str, now: datetime, why: str = "") -> Change[None]:
    """Release the hold of this scope; events that became due meanwhile start."""
    draft = Draft(scope, now)
    if scope.hold is not None:
        draft.set(hold=None)
        draft.add_entry(EntryKind.RELEASED, by=by, why=why)
    start_ready_events(draft, context)
    return draft.finish(None)
