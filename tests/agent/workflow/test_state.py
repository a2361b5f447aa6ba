"""State of a workflow: what follows from it, and how it is stored."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from forewarn.agent.phases import HandlerCall, Phase
from forewarn.agent.workflow.state import (
    Approval,
    ApprovalState,
    CallProgress,
    CallState,
    EventWorkflow,
    HandlerStep,
    PeerState,
    WorkflowState,
)
from forewarn.client.changes import Ending
from forewarn.client.document import Status
from tests.agent.handlers.handler_contexts import EVENT

TEN = datetime(2026, 11, 16, 10, tzinfo=UTC)


def a_workflow(**fields: Any) -> EventWorkflow:
    values: dict[str, Any] = {"event": EVENT, "vm_name": "web_0", "phase": Phase.PREPARE, "noticed_at": TEN}
    return EventWorkflow(**values | fields)


@pytest.mark.parametrize(
    ("state", "despite_failure", "blocks"),
    [
        (CallState.WAITING, False, True),
        (CallState.RUNNING, False, True),
        (CallState.PAUSING, False, True),
        (CallState.DONE, False, False),
        (CallState.SKIPPED, False, False),
        (CallState.FAILED, False, True),
        (CallState.FAILED, True, False),
    ],
)
def test_vm_is_not_ready_while_a_step_blocks(state: CallState, despite_failure: bool, blocks: bool) -> None:
    step = HandlerStep(handler="x", ready_despite_failure=despite_failure, prepare=CallProgress(state=state))
    assert step.is_blocking is blocks


def test_step_needs_recovery_once_it_was_tried_until_that_is_done() -> None:
    tried, done = CallProgress(attempt=1), CallProgress(state=CallState.DONE, attempt=1)
    assert [
        step.needs_recovery
        for step in (
            HandlerStep(handler="x"),
            HandlerStep(handler="x", prepare=tried),
            HandlerStep(handler="x", prepare=tried, recover=CallProgress(state=CallState.FAILED)),
            HandlerStep(handler="x", prepare=tried, recover=done),
        )
    ] == [False, True, True, False]
    step = HandlerStep(handler="x", prepare=tried, recover=done)
    assert [step.progress(call) for call in HandlerCall] == [tried, done]


def test_workflow_is_ready_until_its_event_has_ended() -> None:
    assert [
        workflow.is_ready
        for workflow in (a_workflow(), a_workflow(ready_at=TEN), a_workflow(ready_at=TEN, ending=Ending.FINISHED))
    ] == [False, True, False]


def test_event_is_scheduled_until_it_starts_or_ends() -> None:
    started = msgspec.structs.replace(EVENT, status=Status.STARTED)
    assert [
        workflow.is_scheduled
        for workflow in (a_workflow(), a_workflow(event=started), a_workflow(ending=Ending.WITHDRAWN))
    ] == [True, False, False]


def test_workflow_has_the_id_of_its_event_in_upper_case_and_finds_its_steps() -> None:
    step = HandlerStep(handler="x")
    workflow = a_workflow(event=msgspec.structs.replace(EVENT, id=EVENT.id.lower()), steps=(step,))
    assert (workflow.id, workflow.step("x"), workflow.step("y")) == (EVENT.id, step, None)


def test_state_is_stored_under_its_first_names_and_decoded_as_it_was() -> None:
    """State files outlive an upgrade of the agent."""
    workflow = a_workflow(
        steps=(HandlerStep(handler="x", prepare=CallProgress(started_at=TEN, reason="no")),),
        approval=Approval(state=ApprovalState.FAILED, retry_at=TEN, reason="no"),
        peers=(PeerState(name="web_1", is_ready=False, reason="busy"),),
        ending=Ending.FINISHED,
        is_notify_only=True,
    )
    stored = msgspec.to_builtins(workflow)
    assert (stored["me"], stored["is_only_told"], stored["gone"]) == ("web_0", True, Ending.FINISHED.value)
    assert {"begun_at", "why"} <= stored["steps"][0]["prepare"].keys()
    assert {"asked", "again_at", "why"} <= stored["approval"].keys()
    decoded = msgspec.convert(stored, WorkflowState)
    fields = WorkflowState.__struct_fields__
    assert {name: getattr(decoded, name) for name in fields} == {name: getattr(workflow, name) for name in fields}
