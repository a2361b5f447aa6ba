"""What owners and operators ask for by name: restart, delete, evict, fail, cancel, hold (PROTOCOL §6, DESIGN §3)."""

from collections.abc import Collection
from datetime import datetime, timedelta

import msgspec

from forewarn.core.change import Change, Draft
from forewarn.core.conditions import Conditions
from forewarn.core.errors import Invalid
from forewarn.core.event import EventType, Move, Source, State
from forewarn.core.explain import explain
from forewarn.core.inventory import remove_vm
from forewarn.core.journal import Did
from forewarn.core.once import Once, once, was_answered
from forewarn.core.progress import start_if_it_may, start_what_may, turn
from forewarn.core.schedule import Ask, events_of, request_of, schedule
from forewarn.core.scope import Held, Scope

DELETED = "deleted by its owner"
PREDICTED = "The VM moves to another host because its own is expected to fail."


def restart(vm: str, *, request: str, by: str, why: str = "", key: str | None = None) -> Ask:
    """Restart a VM because its owner asks for it."""
    return Ask(id=request, type=EventType.REBOOT, vms=(vm,), by=by, source=Source.USER, why=why, key=key)


def redeploy(vm: str, *, request: str, by: str, why: str = "", key: str | None = None) -> Ask:
    """Move a VM to another host because its owner asks for it."""
    return Ask(id=request, type=EventType.REDEPLOY, vms=(vm,), by=by, source=Source.USER, why=why, key=key)


def evict(
    vm: str, *, request: str, by: str, notice: timedelta | None = None, why: str = "", key: str | None = None
) -> Ask:
    """Take a low-priority VM away, as the platform does when it needs the capacity."""
    return Ask(id=request, type=EventType.PREEMPT, vms=(vm,), by=by, notice=notice, why=why, key=key)


def fail(
    vms: tuple[str, ...],
    *,
    request: str,
    by: str,
    kind: EventType = EventType.REDEPLOY,
    why: str = "",
    key: str | None = None,
) -> Ask:
    """The hardware under these VMs has failed: no notice, the event appears as Started."""
    return Ask(id=request, type=kind, vms=vms, by=by, failure=True, why=why, key=key)


def predict_failure(
    vms: tuple[str, ...], *, request: str, by: str, ahead: timedelta, why: str = "", key: str | None = None
) -> Ask:
    """The hardware under these VMs is expected to fail: a Redeploy, days ahead."""
    return Ask(
        id=request, type=EventType.REDEPLOY, vms=vms, by=by, notice=ahead, description=PREDICTED, why=why, key=key
    )


def delete(
    scope: Scope,
    vm: str,
    conditions: Conditions,
    *,
    request: str,
    by: str,
    now: datetime,
    why: str = "",
    asked: Once | None = None,
) -> Change[tuple[str, ...]]:
    """Delete a VM: with a Terminate event where it has a terminate profile, else at once and without an event.

    What was asked before is answered as it was then: with the Terminate event, or with nothing.
    """
    if asked is not None and was_answered(scope.answered, asked, now=max(now, scope.changed_at)):
        return Change(scope, (), events_of(scope, request_of(scope, asked.key)))
    if scope.traits_of(scope.vm(vm)).terminate_notice is not None:
        key, digest = (None, "") if asked is None else (asked.key, asked.digest)
        ask = Ask(
            id=request, type=EventType.TERMINATE, vms=(vm,), by=by, source=Source.USER, why=why, key=key, digest=digest
        )
        return schedule(scope, ask, conditions, now=now)
    removed = once(
        scope,
        asked,
        lambda value: remove_vm(value, vm, conditions, by=by, now=now, why=why or DELETED, force=True),
        now=now,
    )
    return Change(removed.scope, removed.entries, ())


def cancel(
    scope: Scope, event_id: str, conditions: Conditions, *, by: str, now: datetime, why: str = ""
) -> Change[None]:
    """Take a Scheduled event back; nothing of it has happened and nothing will."""
    draft = Draft(scope, now)
    draft.move(scope.event(event_id), Move.CANCEL, by=by, why=why)
    start_what_may(draft, conditions)
    return draft.finish(None)


def clear(scope: Scope, events: Collection[str], conditions: Conditions, *, now: datetime) -> Change[tuple[str, ...]]:
    """Let those of a campaign's events start that nothing else holds, and return their ids.

    What is held otherwise is not cleared: whether it may start once that is over, the campaign decides then.
    """
    draft = Draft(scope, now)
    start_what_may(draft, conditions)  # what is due by now has its turn first
    cleared: list[str] = []
    for event in sorted((event for event in draft.scope.events if event.id in events), key=turn):
        if event.state is State.SCHEDULED and event.campaign and not event.cleared:
            free = msgspec.structs.replace(event, cleared=True)
            if not explain(draft.scope, free, conditions, now=draft.now):
                draft.put(free)
                start_if_it_may(draft, free, conditions)
                cleared.append(event.id)
    return draft.finish(tuple(cleared))


def hold(scope: Scope, *, by: str, reason: str, now: datetime) -> Change[None]:
    """Let nothing planned start in this scope until it is released. Failures and evictions go on."""
    if not reason.strip():
        raise Invalid("a hold needs a reason: whoever finds it must know why")
    draft = Draft(scope, now)
    draft.set(held=Held(by=by, at=draft.now, reason=reason))
    draft.note(Did.HELD, by=by, why=reason)
    return draft.finish(None)


def release(scope: Scope, conditions: Conditions, *, by: str, now: datetime, why: str = "") -> Change[None]:
    """End the hold of this scope; what has become due meanwhile starts."""
    draft = Draft(scope, now)
    if scope.held is not None:
        draft.set(held=None)
        draft.note(Did.RELEASED, by=by, why=why)
    start_what_may(draft, conditions)
    return draft.finish(None)
