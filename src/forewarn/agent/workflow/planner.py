"""Planner: advances a workflow through notice → prepare → ready → approve → impact → recover, and returns actions and
wake-up time. Pure.

`reducer` applies inputs; `advance` computes the consequences. The caller saves the new workflow first and then executes
the actions: completed work is always on record, and started work may have to be repeated.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from forewarn.agent.phases import HandlerCall, Phase, PhaseTrigger, next_phase
from forewarn.agent.workflow.approval import (
    ApprovalAllowed,
    ApprovalDelayed,
    ApprovalNotAllowed,
    ApprovalPolicy,
    PeersRequired,
    decide_approval,
)
from forewarn.agent.workflow.deadlines import MARGIN, by_importance, call_deadline, prepare_deadline
from forewarn.agent.workflow.reducer import (
    abandon_prepare,
    apply_input,
    is_due,
    mark_abandoned,
    mark_started,
    reset_call,
)
from forewarn.agent.workflow.state import (
    BEFORE_IMPACT,
    NOT_STARTED,
    Action,
    Approval,
    ApprovalState,
    Approve,
    CallProgress,
    CallState,
    CancelCall,
    CheckPeers,
    EventWorkflow,
    Finish,
    HandlerStep,
    NotifyHandlers,
    Restarted,
    StartCall,
    WorkflowChange,
)
from forewarn.client.document import Event

PENDING = frozenset({CallState.WAITING, CallState.RUNNING, CallState.PAUSING})


class WorkflowContext(NamedTuple):
    """Everything besides the workflow itself that the planner needs to advance it."""

    now: datetime
    vm_name: str
    policy: ApprovalPolicy = ApprovalPolicy()
    peers: frozenset[str] = frozenset()
    """The VMs with a configured agent."""
    still_needed: frozenset[str] = frozenset()
    """The handlers that other workflows still need prepared."""
    busy: frozenset[str] = frozenset()
    """The handlers with a call in flight for other workflows: a handler runs one call at a time."""
    boot: str = ""
    """The machine's boot id; empty if unknown."""


class _Transition(NamedTuple):
    workflow: EventWorkflow
    actions: tuple[Action, ...] = ()


def start(
    event: Event, steps: Iterable[HandlerStep], context: WorkflowContext, *, is_notify_only: bool = False
) -> WorkflowChange:
    """Start the workflow of a new event."""
    ordered = by_importance(tuple({step.handler: step for step in steps}.values()))
    workflow = EventWorkflow(
        event=event,
        vm_name=context.vm_name,
        phase=Phase.NOTICE,
        noticed_at=context.now,
        steps=ordered,
        is_notify_only=is_notify_only,
        boot=context.boot,
    )
    change = advance(workflow, context)
    return replace(change, actions=(NotifyHandlers(Phase.NOTICE, 1), *change.actions))


def resume(workflow: EventWorkflow, *, now: datetime, at_most_once: frozenset[str] = frozenset()) -> WorkflowChange:
    """Resume a stored workflow, and notify the handlers of its current phase again.

    Everything else waits until the agent knows whether the event still exists.
    """
    workflow = apply_input(workflow, Restarted(at_most_once), now=now)
    return WorkflowChange(workflow=workflow, actions=(NotifyHandlers(workflow.phase, workflow.restarts + 1),))


def handlers_in_use(id_: str, workflows: Iterable[EventWorkflow]) -> tuple[frozenset[str], frozenset[str]]:
    """Return which handlers other workflows still need prepared, and which have a call in flight for them."""
    steps = [(other, step) for other in workflows if other.id != id_ for step in other.steps]
    still_needed = (step.handler for other, step in steps if other.ending is None and step.needs_recovery)
    busy = (step.handler for _, step in steps if CallState.RUNNING in {step.prepare.state, step.recover.state})
    return frozenset(still_needed), frozenset(busy)


def advance(workflow: EventWorkflow, context: WorkflowContext) -> WorkflowChange:
    """Advance the workflow as far as possible, and return the actions and the time of the next check."""
    actions: list[Action] = []
    while (transition := _transition(workflow, context)) != (workflow, ()):
        workflow = transition.workflow
        actions += transition.actions
    if _is_finished(workflow):
        return WorkflowChange(workflow=workflow, actions=(*actions, Finish()))
    return WorkflowChange(
        workflow=workflow,
        actions=(*actions, *_calls_to_cancel(workflow, context.now)),
        wake_at=_wake_at(workflow, context),
    )


def _transition(workflow: EventWorkflow, context: WorkflowContext) -> _Transition:
    if workflow.ending is not None and workflow.phase is not Phase.RECOVER:
        return _enter(abandon_prepare(workflow, f"the event is {workflow.ending.value}"), PhaseTrigger.REMOVED)
    if workflow.phase in BEFORE_IMPACT and workflow.event.is_started:
        return _enter(abandon_prepare(workflow, "the event has started"), PhaseTrigger.STARTED)
    if workflow.boot != context.boot:
        return _Transition(_prepare_after_reboot(workflow, context.boot))
    match workflow.phase:
        case Phase.NOTICE:
            return _enter(workflow, PhaseTrigger.NOTIFIED)
        case Phase.PREPARE:
            return _prepare(workflow, context)
        case Phase.READY | Phase.APPROVE:
            return _approve(workflow, context)
        case Phase.IMPACT:
            return _Transition(workflow)
        case Phase.RECOVER:
            return _recover(workflow, context)


def _enter(workflow: EventWorkflow, trigger: PhaseTrigger) -> _Transition:
    phase = next_phase(workflow.phase, trigger)
    return _Transition(replace(workflow, phase=phase), (NotifyHandlers(phase, 1),))


def _prepare_after_reboot(workflow: EventWorkflow, boot: str) -> EventWorkflow:
    """Reset prepare calls if the machine rebooted before the event: the boot may have undone what they did."""
    is_known = bool(workflow.boot and boot)
    workflow = replace(workflow, boot=boot)
    if not is_known or workflow.phase not in BEFORE_IMPACT:
        return workflow
    steps = tuple(
        replace(step, prepare=reset_call(step.prepare)) if step.prepare.attempt else step for step in workflow.steps
    )
    return replace(workflow, phase=next_phase(workflow.phase, PhaseTrigger.REBOOTED), steps=steps, ready_at=None)


def _prepare(workflow: EventWorkflow, context: WorkflowContext) -> _Transition:
    for _, group in groupby(workflow.steps, key=lambda step: step.importance):
        equals = tuple(group)
        if any(step.prepare.state in PENDING for step in equals):
            return _start_calls(
                workflow, HandlerCall.PREPARE, (_start_prepare(workflow, step, context) for step in equals)
            )
    if waiting := [step for step in workflow.steps if step.is_blocking]:
        reason = "; ".join(f"{step.handler} failed: {step.prepare.reason}" for step in waiting)
        return _Transition(
            replace(workflow, approval=replace(workflow.approval, reason=f"this VM is not ready: {reason}"))
        )
    return _enter(replace(workflow, ready_at=context.now), PhaseTrigger.PREPARED)


def _start_prepare(workflow: EventWorkflow, step: HandlerStep, context: WorkflowContext) -> HandlerStep:
    if not is_due(step.prepare, context.now):
        return step
    until = call_deadline(prepare_deadline(workflow.event, workflow.noticed_at), step.time_limit, now=context.now)
    if until is None:
        return replace(step, prepare=mark_abandoned(step.prepare, "no time left before the event"))
    return (
        step if step.handler in context.busy else replace(step, prepare=mark_started(step.prepare, context.now, until))
    )


def _approve(workflow: EventWorkflow, context: WorkflowContext) -> _Transition:
    approval = workflow.approval
    is_settled = approval.state in {ApprovalState.GIVEN, ApprovalState.IN_FLIGHT}
    if is_settled or workflow.is_asking_peers or _is_later(approval.retry_at, context.now):
        return _Transition(workflow)
    match decide_approval(workflow, policy=context.policy, peers=context.peers, now=context.now):
        case ApprovalAllowed(why):
            in_flight = Approval(state=ApprovalState.IN_FLIGHT, tries=approval.tries + 1, reason=why)
            approving = _Transition(replace(workflow, approval=in_flight))
            if workflow.phase is Phase.READY:
                approving = _enter(approving.workflow, PhaseTrigger.APPROVAL_ALLOWED)
            return _Transition(approving.workflow, (*approving.actions, Approve()))
        case PeersRequired(names):
            return _Transition(replace(workflow, is_asking_peers=True), (CheckPeers(names),))
        case ApprovalDelayed(why) | ApprovalNotAllowed(why):
            return _Transition(replace(workflow, approval=replace(approval, reason=why)))


def _recover(workflow: EventWorkflow, context: WorkflowContext) -> _Transition:
    """Recover in reverse order. A handler that another workflow needs, or whose call failed, blocks no other."""
    if workflow.reannounced is not None and not _has_running_calls(workflow):
        return _restart(workflow, workflow.reannounced, context.now)
    for _, group in groupby(reversed(workflow.steps), key=lambda step: step.importance):
        equals = [step for step in group if step.needs_recovery and step.handler not in context.still_needed]
        if any(_is_pending(step, context.now) for step in equals):
            return _start_calls(workflow, HandlerCall.RECOVER, (_start_recover(step, context) for step in equals))
    return _Transition(workflow)


def _is_pending(step: HandlerStep, now: datetime) -> bool:
    recover = step.recover
    return step.prepare.state is CallState.RUNNING or recover.state in PENDING or is_due(recover, now)


def _start_recover(step: HandlerStep, context: WorkflowContext) -> HandlerStep:
    if step.prepare.state is CallState.RUNNING or step.handler in context.busy or not is_due(step.recover, context.now):
        return step
    return replace(step, recover=mark_started(step.recover, context.now, context.now + step.time_limit))


def _restart(workflow: EventWorkflow, event: Event, now: datetime) -> _Transition:
    """Restart the workflow of an event that was announced again during recovery. What is still prepared stays so."""
    steps = tuple(_reset_recovered(step) for step in workflow.steps)
    restarted = EventWorkflow(
        event=event,
        vm_name=workflow.vm_name,
        phase=next_phase(workflow.phase, PhaseTrigger.REANNOUNCED),
        noticed_at=now,
        steps=steps,
        is_notify_only=workflow.is_notify_only,
        restarts=workflow.restarts,
        boot=workflow.boot,
    )
    return _Transition(restarted, (NotifyHandlers(Phase.NOTICE, workflow.restarts + 1),))


def _reset_recovered(step: HandlerStep) -> HandlerStep:
    if step.prepare.state is CallState.DONE and step.recover == NOT_STARTED:
        return step
    return replace(step, prepare=reset_call(step.prepare), recover=reset_call(step.recover))


def _start_calls(workflow: EventWorkflow, call: HandlerCall, steps: Iterable[HandlerStep]) -> _Transition:
    changed = {step.handler: step for step in steps}
    old = {step.handler: step for step in workflow.steps}
    actions = tuple(
        _start_call(step, call) for name, step in changed.items() if step != old[name] and _is_running(step, call)
    )
    return _Transition(
        replace(workflow, steps=tuple(changed.get(step.handler, step) for step in workflow.steps)), actions
    )


def _start_call(step: HandlerStep, call: HandlerCall) -> StartCall:
    progress = step.progress(call)
    if progress.until is None:
        raise ValueError("a running call must have an end time")
    return StartCall(step.handler, call, progress.attempt, progress.until)


def _is_running(step: HandlerStep, call: HandlerCall) -> bool:
    return step.progress(call).state is CallState.RUNNING


def _has_running_calls(workflow: EventWorkflow) -> bool:
    return any(CallState.RUNNING in {step.prepare.state, step.recover.state} for step in workflow.steps)


def _is_finished(workflow: EventWorkflow) -> bool:
    is_recovered = not any(step.needs_recovery for step in workflow.steps)
    return workflow.phase is Phase.RECOVER and is_recovered and not _has_running_calls(workflow)


def _calls_to_cancel(workflow: EventWorkflow, now: datetime) -> Iterator[CancelCall]:
    for step in workflow.steps:
        for call in HandlerCall:
            progress = step.progress(call)
            if progress.state is CallState.RUNNING and (reason := _cancel_reason(workflow, progress, call, now)):
                yield CancelCall(step.handler, call, progress.attempt, reason)


def _cancel_reason(workflow: EventWorkflow, progress: CallProgress, call: HandlerCall, now: datetime) -> str:
    if call is HandlerCall.PREPARE and workflow.ending is not None:
        return f"the event is {workflow.ending.value}"
    if progress.until is None or progress.started_at is None or now < progress.until:
        return ""
    return f"timed out after {(progress.until - progress.started_at).total_seconds():.0f} s"


def _wake_at(workflow: EventWorkflow, context: WorkflowContext) -> datetime | None:
    return min((moment for moment in _wake_times(workflow, context) if moment > context.now), default=None)


def _wake_times(workflow: EventWorkflow, context: WorkflowContext) -> Iterator[datetime]:
    """Yield every time at which time alone may change something."""
    ends = (progress.until for step in workflow.steps for progress in (step.prepare, step.recover))
    yield from (end for end in ends if end is not None)
    if not workflow.is_scheduled:
        return
    if (deadline := workflow.event.deadline) is not None:
        yield from (deadline - MARGIN, deadline)
    if workflow.approval.retry_at is not None:
        yield workflow.approval.retry_at
    decision = decide_approval(workflow, policy=context.policy, peers=context.peers, now=context.now)
    if isinstance(decision, ApprovalDelayed) and decision.until is not None:
        yield decision.until


def _is_later(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and moment > now
