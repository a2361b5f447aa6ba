"""The reducer: transitions of a handler call, and inputs that change a workflow."""

from datetime import timedelta

import msgspec
import pytest

from forewarn.agent.workflow.reducer import (
    abandon_prepare,
    apply_input,
    infer_ending,
    is_due,
    mark_abandoned,
    mark_started,
    reset_call,
)
from forewarn.agent.workflow.state import (
    Approval,
    ApprovalFailed,
    ApprovalState,
    Approved,
    CallProgress,
    CallState,
    ClockChanged,
    EventRemoved,
    EventSeen,
    HandlerStep,
    PeersChecked,
    PeerState,
    RecoveredLater,
    Restarted,
)
from forewarn.client.changes import Ending
from forewarn.client.document import Status
from tests.agent.handlers.handler_contexts import EVENT
from tests.agent.workflow.test_state import TEN, a_workflow

MINUTE = timedelta(minutes=1)


def test_started_call_counts_its_attempts() -> None:
    first = mark_started(CallProgress(attempt=4, tries=1), TEN, TEN + MINUTE)
    assert first == CallProgress(state=CallState.RUNNING, attempt=5, tries=2, started_at=TEN, until=TEN + MINUTE)
    assert reset_call(first) == CallProgress(attempt=5)


@pytest.mark.parametrize(
    ("progress", "due"),
    [
        (CallProgress(), True),
        (CallProgress(state=CallState.PAUSING, until=TEN), True),
        (CallProgress(state=CallState.PAUSING, until=TEN + MINUTE), False),
        (CallProgress(state=CallState.FAILED, until=TEN), True),
        (CallProgress(state=CallState.FAILED), False),
        (CallProgress(state=CallState.RUNNING, until=TEN), False),
        (CallProgress(state=CallState.DONE), False),
    ],
)
def test_call_is_due_at_first_and_after_its_pause(progress: CallProgress, due: bool) -> None:
    assert is_due(progress, TEN) is due


def test_abandoned_call_is_skipped_or_failed() -> None:
    assert mark_abandoned(CallProgress(), "no time") == CallProgress(state=CallState.SKIPPED, reason="no time")
    tried = CallProgress(state=CallState.PAUSING, attempt=1, until=TEN, reason="busy")
    assert mark_abandoned(tried, "no time") == CallProgress(state=CallState.FAILED, attempt=1, reason="busy; no time")


def test_running_and_ended_calls_are_not_abandoned() -> None:
    states = [CallState.WAITING, CallState.RUNNING, CallState.PAUSING, CallState.DONE, CallState.FAILED]
    steps = tuple(
        HandlerStep(handler=state.value, prepare=CallProgress(state=state, attempt=int(state is not CallState.WAITING)))
        for state in states
    )
    left = abandon_prepare(a_workflow(steps=steps), "no time")
    assert [step.prepare.state for step in left.steps] == [
        CallState.SKIPPED,
        CallState.RUNNING,
        CallState.FAILED,
        CallState.DONE,
        CallState.FAILED,
    ]


def test_removed_event_ends_once() -> None:
    ended = apply_input(a_workflow(), EventRemoved(Ending.FINISHED), now=TEN)
    assert ended.ending is Ending.FINISHED
    again = apply_input(msgspec.structs.replace(ended, reannounced=EVENT), EventRemoved(Ending.WITHDRAWN), now=TEN)
    assert (again.ending, again.reannounced) == (Ending.FINISHED, None)


def test_answers_of_peers_count_while_they_are_asked() -> None:
    answers = PeersChecked((PeerState(name="web_1", is_ready=True),))
    asking = a_workflow(is_asking_peers=True)
    answered = apply_input(asking, answers, now=TEN)
    assert (answered.peers, answered.peers_asked_at, answered.is_asking_peers) == (answers.states, TEN, False)
    assert apply_input(a_workflow(), answers, now=TEN) == a_workflow()


def test_approval_is_given_or_retried_later() -> None:
    sent = a_workflow(approval=Approval(state=ApprovalState.IN_FLIGHT, tries=1))
    assert apply_input(sent, Approved(), now=TEN).approval.state is ApprovalState.GIVEN
    failed = apply_input(sent, ApprovalFailed("no answer"), now=TEN).approval
    assert (failed.state, failed.reason) == (ApprovalState.FAILED, "no answer")
    assert failed.retry_at is not None
    assert failed.retry_at > TEN


def test_ending_of_an_event_that_was_not_observed_is_inferred() -> None:
    started = a_workflow(event=msgspec.structs.replace(EVENT, status=Status.STARTED))
    approved = a_workflow(approval=Approval(state=ApprovalState.GIVEN))
    assert infer_ending(a_workflow(), now=TEN) is Ending.WITHDRAWN
    assert {infer_ending(workflow, now=TEN) for workflow in (started, approved)} == {Ending.FINISHED}
    assert infer_ending(a_workflow(), now=TEN + 15 * MINUTE) is Ending.FINISHED


def test_restart_repeats_what_was_under_way_and_does_not_trust_an_approval_in_flight() -> None:
    running = CallProgress(state=CallState.RUNNING, attempt=2, tries=2, started_at=TEN, until=TEN)
    done = CallProgress(state=CallState.DONE, attempt=1)
    workflow = a_workflow(
        steps=(HandlerStep(handler="a", prepare=running), HandlerStep(handler="b", prepare=done)),
        approval=Approval(state=ApprovalState.IN_FLIGHT, retry_at=TEN),
        is_asking_peers=True,
    )
    resumed = apply_input(workflow, Restarted(), now=TEN)
    assert [step.prepare for step in resumed.steps] == [CallProgress(attempt=2), done]
    assert (resumed.approval.state, resumed.approval.retry_at) == (ApprovalState.FAILED, None)
    assert (resumed.restarts, resumed.is_asking_peers) == (1, False)
    assert apply_input(a_workflow(), Restarted(), now=TEN).approval.state is ApprovalState.NOT_YET


def test_recovery_at_most_once_is_unknown_after_a_restart_until_a_later_one_succeeds() -> None:
    running = CallProgress(state=CallState.RUNNING, attempt=1, tries=1, started_at=TEN, until=TEN)
    steps = tuple(HandlerStep(handler=name, recover=running) for name in ("once", "again"))
    resumed = apply_input(a_workflow(steps=steps), Restarted(frozenset({"once"})), now=TEN)
    assert [(step.recover.state, step.recover.attempt) for step in resumed.steps] == [
        (CallState.UNKNOWN, 1),
        (CallState.WAITING, 1),
    ]
    assert apply_input(resumed, RecoveredLater("again"), now=TEN) == resumed
    settled = apply_input(resumed, RecoveredLater("once"), now=TEN)
    assert [step.recover.state for step in settled.steps] == [CallState.DONE, CallState.WAITING]


def test_clock_that_was_set_back_shifts_the_times_of_the_machine_only() -> None:
    progress = CallProgress(state=CallState.RUNNING, attempt=1, started_at=TEN, until=TEN + MINUTE)
    workflow = a_workflow(steps=(HandlerStep(handler="a", prepare=progress),), ready_at=TEN)
    shifted = apply_input(workflow, ClockChanged(MINUTE), now=TEN)
    assert (shifted.noticed_at, shifted.ready_at, shifted.event) == (TEN - MINUTE, TEN - MINUTE, workflow.event)
    assert (shifted.steps[0].prepare.started_at, shifted.steps[0].prepare.until) == (TEN - MINUTE, TEN)


@pytest.mark.parametrize(
    ("later", "state"), [(MINUTE, CallState.WAITING), (-MINUTE, CallState.SKIPPED), (0 * MINUTE, CallState.SKIPPED)]
)
def test_skipped_call_may_run_after_all_if_the_event_is_postponed(later: timedelta, state: CallState) -> None:
    assert EVENT.not_before is not None
    skipped = HandlerStep(handler="a", prepare=CallProgress(state=CallState.SKIPPED))
    moved = msgspec.structs.replace(EVENT, not_before=EVENT.not_before + later)
    seen = apply_input(a_workflow(steps=(skipped,)), EventSeen(moved), now=TEN)
    assert (seen.event, seen.steps[0].prepare.state) == (moved, state)
