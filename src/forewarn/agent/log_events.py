"""Log events: the changes between two states of a workflow, for log and metrics, and the log line of each."""

import logging
from collections.abc import Iterator
from typing import Any

import msgspec

from forewarn.agent.phases import HandlerCall, Phase
from forewarn.agent.workflow.state import (
    Approval,
    ApprovalState,
    CallProgress,
    CallState,
    EventWorkflow,
    HandlerStep,
    NotifyHandlers,
    WorkflowChange,
)

LOG = logging.getLogger(__name__)

ENDED = frozenset({CallState.PAUSING, CallState.DONE, CallState.FAILED, CallState.UNKNOWN})
LOGGED = ENDED | {CallState.RUNNING, CallState.SKIPPED}

CALL_TEXTS: dict[CallState, tuple[int, str]] = {
    CallState.RUNNING: (logging.INFO, "started"),
    CallState.PAUSING: (logging.WARNING, "failed, retrying"),
    CallState.DONE: (logging.INFO, "done"),
    CallState.FAILED: (logging.ERROR, "failed"),
    CallState.SKIPPED: (logging.WARNING, "skipped"),
    CallState.UNKNOWN: (logging.ERROR, "ended in an unknown state and is not repeated"),
}

APPROVAL_TEXTS: dict[ApprovalState, tuple[int, str]] = {
    ApprovalState.NOT_YET: (logging.WARNING, "not approved"),
    ApprovalState.IN_FLIGHT: (logging.INFO, "approving"),
    ApprovalState.GIVEN: (logging.INFO, "approved"),
    ApprovalState.FAILED: (logging.ERROR, "approval failed"),
}


class PhaseStarted(msgspec.Struct, frozen=True):
    """The workflow has entered a phase, or continues it after a restart."""

    phase: Phase
    attempt: int


class CallChanged(msgspec.Struct, frozen=True):
    """A handler call has reached a state that is logged."""

    handler: str
    call: HandlerCall
    progress: CallProgress


class ApprovalChanged(msgspec.Struct, frozen=True):
    """The state of the approval changed, or the reason why the event is not approved."""

    state: ApprovalState
    reason: str


LogEvent = PhaseStarted | CallChanged | ApprovalChanged


def log_events(before: EventWorkflow | None, change: WorkflowChange) -> Iterator[LogEvent]:
    """Yield the changes in the order in which they happened: ended calls, started phases, started calls."""
    calls = [event for step in change.workflow.steps for event in _call_changes(_previous_step(before, step), step)]
    yield from (event for event in calls if event.progress.state in ENDED)
    yield from (
        PhaseStarted(action.phase, action.attempt) for action in change.actions if isinstance(action, NotifyHandlers)
    )
    yield from (event for event in calls if event.progress.state not in ENDED)
    old, new = before.approval if before else Approval(), change.workflow.approval
    if (new.state, new.reason) != (old.state, old.reason):
        yield ApprovalChanged(new.state, new.reason)


def _previous_step(workflow: EventWorkflow | None, step: HandlerStep) -> HandlerStep | None:
    return None if workflow is None else workflow.step(step.handler)


def _call_changes(before: HandlerStep | None, after: HandlerStep) -> Iterator[CallChanged]:
    for call in HandlerCall:
        old, new = before.progress(call) if before else None, after.progress(call)
        if new.state in LOGGED and (old is None or (old.state, old.attempt) != (new.state, new.attempt)):
            yield CallChanged(after.handler, call, new)


def write_log(workflow: EventWorkflow, log_event: LogEvent, *, dry_run: bool = False) -> None:
    """Write the log line of a log event; in a dry run, it is marked as such."""
    about = f"dry run: {workflow.event.type}" if dry_run else str(workflow.event.type)
    match log_event:
        case PhaseStarted(phase, attempt):
            again = "" if attempt == 1 else ", again after a restart"
            _log(logging.INFO, f"{about}: {phase}{again}", workflow, phase=phase, attempt=attempt)
        case CallChanged(handler, call, progress):
            _write_call(about, workflow, handler, call, progress)
        case ApprovalChanged(state, why):
            level, words = APPROVAL_TEXTS[state]
            _log(level, f"{about}: {words}{_reason_suffix(why)}", workflow, approval=state, why=why)


def _write_call(about: str, workflow: EventWorkflow, handler: str, call: HandlerCall, progress: CallProgress) -> None:
    level, words = CALL_TEXTS[progress.state]
    message = f"{about}: {call} of {handler} {words}{_reason_suffix(progress.reason)}"
    _log(level, message, workflow, handler=handler, half=call, attempt=progress.attempt, state=progress.state)


def _reason_suffix(reason: str) -> str:
    return f": {reason}" if reason else ""


def _log(level: int, message: str, workflow: EventWorkflow, **facts: Any) -> None:
    LOG.log(level, "%s", message, extra={"event": workflow.event.id, "phase": workflow.phase} | facts)
