"""Reducer: applies one input to a workflow and returns the new workflow; also the transitions of a handler call. Pure.

The planner then decides what follows.
"""

from datetime import datetime, timedelta

from msgspec.structs import replace

from forewarn.agent.handlers.base import CallResult, Done, Failed, Retry, Unknown
from forewarn.agent.phases import HandlerCall, Phase, PhaseTrigger, next_phase
from forewarn.agent.workflow.deadlines import MARGIN, prepare_deadline
from forewarn.agent.workflow.state import (
    BEFORE_IMPACT,
    NOT_STARTED,
    Approval,
    ApprovalFailed,
    ApprovalState,
    Approved,
    CallEnded,
    CallProgress,
    CallState,
    ClockChanged,
    EventRemoved,
    EventSeen,
    EventWorkflow,
    HandlerStep,
    Input,
    PeersChecked,
    RecoveredLater,
    Restarted,
)
from forewarn.client.changes import Ending
from forewarn.client.document import Event
from forewarn.core.backoff import pause_after

FIRST_RECOVERY_RETRY, LONGEST_RECOVERY_RETRY = timedelta(seconds=30), timedelta(minutes=10)
"""Failed recovery is retried without limit, with an exponential backoff from the first to the longest pause."""

FIRST_APPROVAL_RETRY, LONGEST_APPROVAL_RETRY = timedelta(seconds=5), timedelta(minutes=1)
"""The same for a failed approval, until the event starts."""


def mark_started(progress: CallProgress, now: datetime, until: datetime) -> CallProgress:
    """Return the progress with its next attempt running until `until`."""
    return CallProgress(
        state=CallState.RUNNING, attempt=progress.attempt + 1, tries=progress.tries + 1, started_at=now, until=until
    )


def is_due(progress: CallProgress, now: datetime) -> bool:
    """Return whether the next attempt may start: the first one, or one whose pause after a failure is over."""
    if progress.state is CallState.WAITING:
        return True
    return (
        progress.state in {CallState.PAUSING, CallState.FAILED} and progress.until is not None and progress.until <= now
    )


def abandon_prepare(workflow: EventWorkflow, reason: str) -> EventWorkflow:
    """Skip the prepare calls that have not started. Running calls continue."""
    waits = {CallState.WAITING, CallState.PAUSING}
    steps = (
        replace(step, prepare=mark_abandoned(step.prepare, reason)) if step.prepare.state in waits else step
        for step in workflow.steps
    )
    return replace(workflow, steps=tuple(steps))


def mark_abandoned(progress: CallProgress, reason: str) -> CallProgress:
    """Return the progress without further attempts: skipped if there was none, else failed."""
    if not progress.attempt:
        return CallProgress(state=CallState.SKIPPED, reason=reason)
    return replace(
        progress,
        state=CallState.FAILED,
        until=None,
        reason=f"{progress.reason}; {reason}" if progress.reason else reason,
    )


def reset_call(progress: CallProgress) -> CallProgress:
    """Return the progress with all retries available again; the attempt number is kept."""
    return CallProgress(attempt=progress.attempt)


def apply_input(workflow: EventWorkflow, input_: Input, *, now: datetime) -> EventWorkflow:
    """Apply an input to the workflow and return the new one. An outdated input changes nothing."""
    match input_:
        case EventSeen(event):
            return _event_seen(workflow, event)
        case EventRemoved(how):
            return replace(workflow, reannounced=None) if workflow.ending else replace(workflow, ending=how)
        case CallEnded():
            return _call_ended(workflow, input_, now)
        case RecoveredLater(handler):
            settled = (
                replace(step, recover=replace(step.recover, state=CallState.DONE))
                if step.handler == handler and step.recover.state is CallState.UNKNOWN
                else step
                for step in workflow.steps
            )
            return replace(workflow, steps=tuple(settled))
        case PeersChecked(words):
            if not workflow.is_asking_peers:
                return workflow
            return replace(workflow, peers=words, peers_asked_at=now, is_asking_peers=False)
        case Approved():
            return _approval_ended(workflow, replace(workflow.approval, state=ApprovalState.GIVEN, retry_at=None))
        case ApprovalFailed(why):
            retry_at = now + pause_after(workflow.approval.tries, FIRST_APPROVAL_RETRY, LONGEST_APPROVAL_RETRY)
            return _approval_ended(
                workflow, replace(workflow.approval, state=ApprovalState.FAILED, retry_at=retry_at, reason=why)
            )
        case Restarted(at_most_once):
            return _restarted(workflow, at_most_once)
        case ClockChanged(by):
            return _shift_clock(workflow, by)


def infer_ending(workflow: EventWorkflow, *, now: datetime) -> Ending:
    """Infer the ending of an event that disappeared while no agent was running.

    If it was due, approved or started, it has most likely happened.
    """
    deadline = workflow.event.deadline
    is_due = deadline is not None and now >= deadline
    has_happened = workflow.event.is_started or workflow.approval.state is ApprovalState.GIVEN or is_due
    return Ending.FINISHED if has_happened else Ending.WITHDRAWN


def _event_seen(workflow: EventWorkflow, event: Event) -> EventWorkflow:
    if workflow.ending is not None:
        return replace(workflow, reannounced=event)
    if event == workflow.event:
        return workflow
    is_postponed = _is_postponed(workflow.event, event)
    by = prepare_deadline(event, workflow.noticed_at)
    steps = tuple(_reschedule(step, by, is_postponed=is_postponed) for step in workflow.steps)
    # The peers' answers were about the event before this change.
    workflow = replace(workflow, event=event, steps=steps, peers=(), peers_asked_at=None)
    has_more_to_do = any(step.prepare.state is CallState.WAITING for step in steps)
    return (
        replace(workflow, phase=next_phase(workflow.phase, PhaseTrigger.POSTPONED), ready_at=None)
        if has_more_to_do and _may_prepare_again(workflow)
        else workflow
    )


def _may_prepare_again(workflow: EventWorkflow) -> bool:
    """Return whether the workflow may go back to prepare: not after an approval that the service may have received."""
    is_refused = workflow.phase is Phase.APPROVE and workflow.approval.state is ApprovalState.FAILED
    return workflow.phase is Phase.READY or is_refused


def _is_postponed(before: Event, event: Event) -> bool:
    if before.deadline is None or event.is_started:
        return False
    return event.deadline is None or event.deadline > before.deadline


def _reschedule(step: HandlerStep, deadline: datetime | None, *, is_postponed: bool) -> HandlerStep:
    """Fit a step to the new deadline: a running call ends earlier or later, a skipped one may run after all."""
    prepare = step.prepare
    if prepare.state is CallState.SKIPPED and is_postponed:
        return replace(step, prepare=NOT_STARTED)
    if prepare.state is CallState.RUNNING and prepare.started_at is not None and deadline is not None:
        until = min(prepare.started_at + step.time_limit, deadline - MARGIN)
        return replace(step, prepare=replace(prepare, until=until))
    return step


def _call_ended(workflow: EventWorkflow, ended: CallEnded, now: datetime) -> EventWorkflow:
    step = workflow.step(ended.handler)
    if step is None:
        return workflow
    progress = step.progress(ended.call)
    if progress.state is not CallState.RUNNING or progress.attempt != ended.attempt:
        return workflow
    if ended.call is HandlerCall.PREPARE:
        may_try_again = workflow.ending is None and workflow.phase is Phase.PREPARE
        changed = replace(step, prepare=_next_progress(step, progress, ended.result, now, may_try_again=may_try_again))
    else:
        progress = _retry_recovery(_next_progress(step, progress, ended.result, now, may_try_again=True), now)
        changed = replace(step, recover=progress)
    return replace(workflow, steps=tuple(changed if step.handler == ended.handler else step for step in workflow.steps))


def _next_progress(
    step: HandlerStep, progress: CallProgress, result: CallResult, now: datetime, *, may_try_again: bool
) -> CallProgress:
    match result:
        case Done():
            return replace(progress, state=CallState.DONE, until=None)
        case Retry(why) if may_try_again and progress.tries <= step.retries:
            return replace(progress, state=CallState.PAUSING, until=now + step.pause, reason=why)
        case Unknown(why):
            return replace(progress, state=CallState.UNKNOWN, until=None, reason=why)
        case Retry(why) | Failed(why):
            return replace(progress, state=CallState.FAILED, until=None, reason=why)


def _retry_recovery(recover: CallProgress, now: datetime) -> CallProgress:
    """Schedule another attempt after a failure: recovery is never given up."""
    if recover.state is not CallState.FAILED:
        return recover
    return replace(
        recover, tries=0, until=now + pause_after(recover.attempt, FIRST_RECOVERY_RETRY, LONGEST_RECOVERY_RETRY)
    )


def _approval_ended(workflow: EventWorkflow, approval: Approval) -> EventWorkflow:
    return replace(workflow, approval=approval) if workflow.approval.state is ApprovalState.IN_FLIGHT else workflow


def _restarted(workflow: EventWorkflow, at_most_once: frozenset[str]) -> EventWorkflow:
    approval = workflow.approval
    if approval.state is not ApprovalState.GIVEN:
        state = ApprovalState.NOT_YET if approval.state is ApprovalState.NOT_YET else ApprovalState.FAILED
        approval = replace(approval, state=state, retry_at=None)
    resumed = replace(
        workflow,
        restarts=workflow.restarts + 1,
        steps=tuple(_resume_step(step, at_most_once) for step in workflow.steps),
        approval=approval,
        peers=(),
        peers_asked_at=None,
        is_asking_peers=False,
    )
    return resumed if workflow.phase in BEFORE_IMPACT else abandon_prepare(resumed, "the agent was restarted")


def _resume_step(step: HandlerStep, at_most_once: frozenset[str]) -> HandlerStep:
    under_way = {CallState.RUNNING, CallState.PAUSING}
    prepare = reset_call(step.prepare) if step.prepare.state in under_way else step.prepare
    recover = reset_call(step.recover) if step.recover.state in under_way | {CallState.FAILED} else step.recover
    if step.recover.state is CallState.RUNNING and step.handler in at_most_once:
        reason = "the agent ended during recovery; check whether it succeeded"
        recover = replace(step.recover, state=CallState.UNKNOWN, until=None, reason=reason)
    return replace(step, prepare=prepare, recover=recover)


def _shift_clock(workflow: EventWorkflow, by: timedelta) -> EventWorkflow:
    """Shift every time that came from the machine's clock. The times of the event come from the service and stay."""
    steps = tuple(
        replace(step, prepare=_shift_progress(step.prepare, by), recover=_shift_progress(step.recover, by))
        for step in workflow.steps
    )
    return replace(
        workflow,
        noticed_at=workflow.noticed_at - by,
        steps=steps,
        approval=replace(workflow.approval, retry_at=_shift(workflow.approval.retry_at, by)),
        ready_at=_shift(workflow.ready_at, by),
        peers_asked_at=_shift(workflow.peers_asked_at, by),
    )


def _shift_progress(progress: CallProgress, by: timedelta) -> CallProgress:
    return replace(progress, started_at=_shift(progress.started_at, by), until=_shift(progress.until, by))


def _shift(moment: datetime | None, by: timedelta) -> datetime | None:
    return None if moment is None else moment - by
