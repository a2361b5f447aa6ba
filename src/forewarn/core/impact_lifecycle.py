"""Lifecycle of impacts: begin, settle, retry and resolve.

"Begun" is saved before the platform touches the VM, the outcome afterwards.
"""

from datetime import datetime
from typing import NamedTuple

from forewarn.core.change import Change, Draft, format_timestamp
from forewarn.core.errors import EventVmNotFound, Invalid, InvalidTransition, WrongHost
from forewarn.core.event import Event, State
from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.impact import STUCK, Done, Failed, Impact, ImpactOutcome, ImpactState, Retry, Unknown
from forewarn.core.inventory import detach_vm, finish_or_remove, relocate_vm
from forewarn.core.journal import EntryKind
from forewarn.core.lifecycle import end_if_settled, format_seconds, start_ready_events, vms_in_progress
from forewarn.core.policy import RuleContext
from forewarn.core.scope import Scope
from forewarn.core.text import tail_text

PLATFORM = "platform"


class Worker(NamedTuple):
    """The process that carries out an impact: its host and its term there. Without hosts one process has all VMs."""

    host: str | None = None
    term: int = 0


LOCAL = Worker()


def impacts_to_begin(scope: Scope, *, now: datetime) -> tuple[tuple[Event, Impact], ...]:
    """Return the impacts that the platform can begin now. Two impacts never run on one VM at the same time."""
    in_progress = vms_in_progress(scope)
    found: list[tuple[Event, Impact]] = []
    for event in scope.events:
        for impact in event.impacts:
            if impact.vm not in in_progress and _may_begin(impact, now):
                in_progress.add(impact.vm)
                found.append((event, impact))
    return tuple(found)


def _may_begin(impact: Impact, now: datetime) -> bool:
    if impact.state is ImpactState.RETRY:
        return impact.retry_at is not None and now >= impact.retry_at
    return impact.state is ImpactState.PENDING


def begin(
    scope: Scope, event_id: str, vm: str, *, now: datetime, again: bool = False, worker: Worker = LOCAL
) -> Change[Impact]:
    """Record that the platform is about to begin the work on a VM. Save this before calling the platform.

    `again`: the work had begun before a crash, and the platform may be asked to do it once more. The `worker` keeps
    the impact: no other host may report its outcome.
    """
    draft = Draft(scope, now)
    event, impact = _find(scope, event_id, vm)
    _check_worker(scope, impact, worker)
    if again:
        may_begin = impact.state is ImpactState.BEGUN
    else:
        may_begin = _may_begin(impact, now) and impact.vm not in vms_in_progress(scope)
    if not may_begin:
        raise InvalidTransition(event.id, _format_state(impact), "be begun there now")
    begun = Impact(
        vm=impact.vm,
        state=ImpactState.BEGUN,
        attempt=impact.attempt + 1,
        begun_at=draft.now,
        host=worker.host,
        term=worker.term,
    )
    draft.put_impact(event, begun)
    draft.add_entry(EntryKind.IMPACT_BEGUN, by=PLATFORM, event=event, vms=(vm,), attempt=str(begun.attempt))
    return draft.finish(begun)


def settle(
    scope: Scope,
    event_id: str,
    vm: str,
    outcome: ImpactOutcome,
    context: RuleContext,
    *,
    now: datetime,
    worker: Worker = LOCAL,
) -> Change[None]:
    """Apply the outcome that the platform of the worker reports for an impact that had begun."""
    draft = Draft(scope, now)
    event, impact = _find(scope, event_id, vm)
    _check_worker(scope, impact, worker)
    if impact.state is not ImpactState.BEGUN:
        raise InvalidTransition(event.id, _format_state(impact), "take an outcome")
    match outcome:
        case Done():
            _record_done(draft, event, impact, outcome, by=PLATFORM)
        case Retry(after=after, why=why):
            retry_at = draft.now + after
            again = impact.with_state(ImpactState.RETRY, retry_at=retry_at, why=why)
            _record_impact(draft, event, again, EntryKind.IMPACT_RETRY, outcome, retry_at=format_timestamp(retry_at))
        case Failed(why=why):
            _record_impact(
                draft, event, impact.with_state(ImpactState.FAILED, why=why), EntryKind.IMPACT_FAILED, outcome
            )
        case Unknown(why=why):
            _record_impact(
                draft, event, impact.with_state(ImpactState.UNKNOWN, why=why), EntryKind.IMPACT_UNKNOWN, outcome
            )
    return _close(draft, event.id, context, by=PLATFORM)


def check_abandon_reason(why: str) -> None:
    """Refuse to give up a host without a reason."""
    if not why.strip():
        raise Invalid("giving up a host needs a reason: it records why the host cannot be asked any more")


def abandon_host(
    scope: Scope, host: str, context: RuleContext, *, before_term: int, by: str, why: str, now: datetime
) -> Change[int]:
    """Turn the begun impacts of a host that is gone to unknown, on request of a person; return how many they were.

    No process can probe them any more, so a person decides about each. Impacts that a process began in `before_term`
    or later are its own: it has taken the host over since.
    """
    check_abandon_reason(why)
    draft = Draft(scope, now)
    begun = [
        (event, impact)
        for event in scope.events
        for impact in event.impacts
        if impact.state is ImpactState.BEGUN and impact.host == host and impact.term < before_term
    ]
    for event, impact in begun:
        unknown = Unknown(f"host {host} is gone: {why}")
        lost = impact.with_state(ImpactState.UNKNOWN, why=unknown.why)
        _record_impact(draft, draft.scope.event(event.id), lost, EntryKind.IMPACT_UNKNOWN, unknown, by=by)
    if begun:
        start_ready_events(draft, context)
    return draft.finish(len(begun))


def retry(
    scope: Scope,
    event_id: str,
    vm: str | None = None,
    *,
    by: str,
    now: datetime,
    why: str = "",
    seen: int | None = None,
) -> Change[None]:
    """Retry failed or unknown impacts on request of a person: on one VM, or on all VMs that have one.

    `seen`: the scope's last journal entry when it was requested; impacts that became stuck later are not retried.
    """
    draft = Draft(scope, now)
    event, stuck = _find_stuck(scope, event_id, vm, "be retried")
    for impact in stuck:
        if impact.is_stuck(seen):
            draft.put_impact(draft.scope.event(event.id), impact.with_state(ImpactState.PENDING))
            draft.add_entry(EntryKind.IMPACT_RETRIED, by=by, why=why, event=event, vms=(impact.vm,))
    return draft.finish(None)


def resolve(
    scope: Scope,
    event_id: str,
    context: RuleContext,
    *,
    by: str,
    why: str,
    now: datetime,
    done: bool = False,
    vm: str | None = None,
) -> Change[None]:
    """End failed or unknown impacts on request of a person: as completed after all, or as given up."""
    if not why.strip():
        raise Invalid("resolving an impact needs a reason: it records why the outcome was decided by hand")
    draft = Draft(scope, now)
    event, stuck = _find_stuck(scope, event_id, vm, "be resolved")
    for impact in stuck:
        current = draft.scope.event(event.id)
        if done:
            _record_done(draft, current, impact, Done(), by=by, why=why)
        else:
            draft.put_impact(current, impact.with_state(ImpactState.GIVEN_UP, why=f"given up by {by}: {why}"))
            draft.add_entry(EntryKind.IMPACT_GIVEN_UP, by=by, why=why, event=current, vms=(impact.vm,))
    return _close(draft, event.id, context, by=by, why=why)


def _close(draft: Draft, event_id: str, context: RuleContext, *, by: str, why: str = "") -> Change[None]:
    end_if_settled(draft, event_id, by=by, why=why)
    start_ready_events(draft, context)
    return finish_or_remove(draft, by=by)


def _record_done(draft: Draft, event: Event, impact: Impact, outcome: Done, *, by: str, why: str = "") -> None:
    draft.put_impact(event, impact.with_state(ImpactState.DONE))
    took = format_seconds(draft.now - (impact.begun_at or draft.now))
    draft.add_entry(
        EntryKind.IMPACT_DONE, by=by, why=why, event=event, vms=(impact.vm,), took=took, **_output_fact(outcome)
    )
    vm = draft.scope.vm(impact.vm)
    if EVENT_TYPES[event.type].removes_vm:
        detach_vm(draft, vm, by=by, why=f"{event.type.value} {event.id}")
    elif outcome.host is not None and outcome.host != vm.host:
        relocate_vm(draft, vm, outcome.host, by=by)


def _record_impact(
    draft: Draft,
    event: Event,
    impact: Impact,
    entry_kind: EntryKind,
    outcome: Failed | Retry | Unknown,
    *,
    by: str = PLATFORM,
    **facts: str,
) -> None:
    draft.put_impact(event, impact)
    facts |= {"attempt": str(impact.attempt)} | _output_fact(outcome)
    if not isinstance(outcome, Unknown) and outcome.unavailable:
        facts["unavailable"] = "the platform cannot work on the host"
    draft.add_entry(entry_kind, by=by, why=outcome.why, event=event, vms=(impact.vm,), **facts)


def _output_fact(outcome: ImpactOutcome) -> dict[str, str]:
    """Return the program's output as a fact for the journal; empty if there is none."""
    return {"output": output} if (output := tail_text(outcome.output)) else {}


def _check_worker(scope: Scope, impact: Impact, worker: Worker) -> None:
    """Refuse a host that neither has the VM nor has begun the impact, and a process that was replaced by a later one.

    The process of a service without hosts has all VMs.
    """
    if worker.host is None:
        return
    owner = impact.host if impact.state is ImpactState.BEGUN and impact.host is not None else scope.vm(impact.vm).host
    if owner != worker.host or (impact.host == worker.host and worker.term < impact.term):
        raise WrongHost(f"{scope.id}/{impact.vm}", worker.host, worker.term)


def _find(scope: Scope, event_id: str, vm: str) -> tuple[Event, Impact]:
    event = scope.event(event_id)
    if event.state is not State.STARTED:
        raise InvalidTransition(event.id, event.state.value, "be worked on")
    impact = event.impact(vm)
    if impact is None:
        raise EventVmNotFound(vm, event.id)
    return event, impact


def _find_stuck(scope: Scope, event_id: str, vm: str | None, action: str) -> tuple[Event, tuple[Impact, ...]]:
    """Return the failed and unknown impacts of an event, on one VM or on all; raise if there is none."""
    if vm is not None:
        known = scope.roster.find(vm)
        event, impact = _find(scope, event_id, known.name if known is not None else vm)
        if impact.state not in STUCK:
            raise InvalidTransition(event.id, _format_state(impact), action)
        return event, (impact,)
    event = scope.event(event_id)
    stuck = tuple(impact for impact in event.impacts if impact.state in STUCK)
    if not stuck:
        raise InvalidTransition(event.id, f"{event.state.value} with no failed or unknown impact", action)
    return event, stuck


def _format_state(impact: Impact) -> str:
    return f"at '{impact.state.value}' on {impact.vm}"
