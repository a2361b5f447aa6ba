"""The work of an event on each of its VMs: begun is saved before the platform touches the VM, the outcome after."""

from datetime import datetime

from forewarn.core.change import Change, Draft, stamp
from forewarn.core.conditions import Conditions
from forewarn.core.errors import IllegalMove, Invalid, NotAffected
from forewarn.core.event import STUCK, Event, Impact, ImpactState, State
from forewarn.core.impact import Done, Failed, Outcome, Retry, Unknown
from forewarn.core.journal import Did
from forewarn.core.leaving import finish_or_remove, leave, relocate
from forewarn.core.progress import end_if_settled, seconds, start_what_may, vms_under_way
from forewarn.core.scope import Scope
from forewarn.core.text import last_part

PLATFORM = "platform"


def to_begin(scope: Scope, *, now: datetime) -> tuple[tuple[Event, Impact], ...]:
    """Return the work that the platform should be given now. Two impacts never run on one VM at a time."""
    under_way = vms_under_way(scope)
    found: list[tuple[Event, Impact]] = []
    for event in scope.events:
        for impact in event.impacts:
            if impact.vm not in under_way and _may_begin(impact, now):
                under_way.add(impact.vm)
                found.append((event, impact))
    return tuple(found)


def _may_begin(impact: Impact, now: datetime) -> bool:
    if impact.state is ImpactState.RETRY:
        return impact.retry_at is not None and now >= impact.retry_at
    return impact.state is ImpactState.PENDING


def begin(scope: Scope, event_id: str, vm: str, *, now: datetime, again: bool = False) -> Change[Impact]:
    """Note that the platform is about to be given the work on a VM. Save this before it is.

    `again`: the work had begun before a crash, and giving it to the platform once more is right.
    """
    draft = Draft(scope, now)
    event, impact = _find(scope, event_id, vm)
    if again:
        may_begin = impact.state is ImpactState.BEGUN
    else:
        may_begin = _may_begin(impact, draft.now) and impact.vm not in vms_under_way(scope)
    if not may_begin:
        raise IllegalMove(event.id, _stand(impact), "be begun there now")
    begun = Impact(vm=impact.vm, state=ImpactState.BEGUN, attempt=impact.attempt + 1, begun_at=draft.now)
    draft.put_impact(event, begun)
    draft.note(Did.IMPACT_BEGUN, by=PLATFORM, event=event, vms=(vm,), attempt=str(begun.attempt))
    return draft.finish(begun)


def settle(
    scope: Scope, event_id: str, vm: str, outcome: Outcome, conditions: Conditions, *, now: datetime
) -> Change[None]:
    """Take what the platform says of the work on a VM that had begun."""
    draft = Draft(scope, now)
    event, impact = _find(scope, event_id, vm)
    if impact.state is not ImpactState.BEGUN:
        raise IllegalMove(event.id, _stand(impact), "take an outcome")
    match outcome:
        case Done():
            _note_done(draft, event, impact, outcome, by=PLATFORM)
        case Retry(after=after, why=why):
            retry_at = draft.now + after
            again = impact.turned(ImpactState.RETRY, retry_at=retry_at, why=why)
            _note_impact(draft, event, again, Did.IMPACT_RETRY, outcome, retry_at=stamp(retry_at))
        case Failed(why=why):
            _note_impact(draft, event, impact.turned(ImpactState.FAILED, why=why), Did.IMPACT_FAILED, outcome)
        case Unknown(why=why):
            _note_impact(draft, event, impact.turned(ImpactState.UNKNOWN, why=why), Did.IMPACT_UNKNOWN, outcome)
    return _close(draft, event.id, conditions, by=PLATFORM)


def retry(scope: Scope, event_id: str, vm: str | None = None, *, by: str, now: datetime, why: str = "") -> Change[None]:
    """Have failed or unknown work done once more, because a person says so: on one VM, or wherever there is such."""
    draft = Draft(scope, now)
    event, stuck = _find_stuck(scope, event_id, vm, "be retried")
    for impact in stuck:
        draft.put_impact(draft.scope.event(event.id), impact.turned(ImpactState.PENDING))
        draft.note(Did.IMPACT_RETRIED, by=by, why=why, event=event, vms=(impact.vm,))
    return draft.finish(None)


def resolve(
    scope: Scope,
    event_id: str,
    conditions: Conditions,
    *,
    by: str,
    why: str,
    now: datetime,
    done: bool = False,
    vm: str | None = None,
) -> Change[None]:
    """End what is failed or unknown of an event, because a person says so: as done after all, or given up."""
    if not why.strip():
        raise Invalid("resolving needs a reason: it ends what nobody else will look at again")
    draft = Draft(scope, now)
    event, stuck = _find_stuck(scope, event_id, vm, "be resolved")
    for impact in stuck:
        current = draft.scope.event(event.id)
        if done:
            _note_done(draft, current, impact, Done(), by=by, why=why)
        else:
            draft.put_impact(current, impact.turned(ImpactState.GIVEN_UP, why=f"given up by {by}: {why}"))
            draft.note(Did.IMPACT_GIVEN_UP, by=by, why=why, event=current, vms=(impact.vm,))
    return _close(draft, event.id, conditions, by=by, why=why)


def _close(draft: Draft, event_id: str, conditions: Conditions, *, by: str, why: str = "") -> Change[None]:
    end_if_settled(draft, event_id, by=by, why=why)
    start_what_may(draft, conditions)
    return finish_or_remove(draft, by=by)


def _note_done(draft: Draft, event: Event, impact: Impact, outcome: Done, *, by: str, why: str = "") -> None:
    draft.put_impact(event, impact.turned(ImpactState.DONE))
    took = seconds(draft.now - (impact.begun_at or draft.now))
    draft.note(Did.IMPACT_DONE, by=by, why=why, event=event, vms=(impact.vm,), took=took, **_printed(outcome))
    vm = draft.scope.vm(impact.vm)
    if event.type.takes_away:
        leave(draft, vm, by=by, why=f"{event.type.value} {event.id}")
    elif outcome.host is not None and outcome.host != vm.host:
        relocate(draft, vm, outcome.host, by=by)


def _note_impact(
    draft: Draft, event: Event, impact: Impact, did: Did, outcome: Failed | Retry | Unknown, **facts: str
) -> None:
    draft.put_impact(event, impact)
    facts |= {"attempt": str(impact.attempt)} | _printed(outcome)
    draft.note(did, by=PLATFORM, why=outcome.why, event=event, vms=(impact.vm,), **facts)


def _printed(outcome: Outcome) -> dict[str, str]:
    """Return what a program printed as a fact for the journal, if it did."""
    return {"output": output} if (output := last_part(outcome.output)) else {}


def _find(scope: Scope, event_id: str, vm: str) -> tuple[Event, Impact]:
    event = scope.event(event_id)
    if event.state is not State.STARTED:
        raise IllegalMove(event.id, event.state.value, "be worked on")
    impact = event.impact(vm)
    if impact is None:
        raise NotAffected(vm, event.id)
    return event, impact


def _find_stuck(scope: Scope, event_id: str, vm: str | None, move: str) -> tuple[Event, tuple[Impact, ...]]:
    """Return the failed and unknown work of an event, on one VM or on all; refuse where there is none."""
    if vm is not None:
        known = scope.roster.find(vm)
        event, impact = _find(scope, event_id, known.name if known is not None else vm)
        if impact.state not in STUCK:
            raise IllegalMove(event.id, _stand(impact), move)
        return event, (impact,)
    event = scope.event(event_id)
    stuck = tuple(impact for impact in event.impacts if impact.state in STUCK)
    if not stuck:
        raise IllegalMove(event.id, f"{event.state.value} with nothing failed or unknown", move)
    return event, stuck


def _stand(impact: Impact) -> str:
    return f"at '{impact.state.value}' on {impact.vm}"
