"""Handler calls and notifications of a running agent: order, time limits, cancellation and errors."""

import asyncio
from pathlib import Path

import pytest

from forewarn.agent.handlers.base import CallResult, Done, Failed, HandlerCall, HandlerContext, Phase, Retry
from forewarn.agent.workflow.state import CallEnded, CallState, EventRemoved
from forewarn.client import Ending
from tests.agent.harness import ID, AgentHarness, FakeService, RecordingHandler, event, seconds

pytestmark = pytest.mark.usefixtures("no_stray_errors")


async def test_recovery_notification_shows_whether_a_call_follows(tmp_path: Path, diary: list[str]) -> None:
    drain, never = RecordingHandler("drain", diary, importance=10), RecordingHandler("never", diary)
    drain.gate.clear()
    harness = AgentHarness(tmp_path, FakeService(), [drain, never])
    async with harness.run_agent():
        await harness.show(event())
        await harness.show()
        assert [(context.phase, context.call) for context in drain.notifications] == [
            ("notice", None),
            ("prepare", None),
            ("recover", HandlerCall.RECOVER),
        ]
        assert [(context.phase, context.call) for context in never.notifications] == [
            ("notice", None),
            ("prepare", None),
            ("recover", None),
        ]


async def test_hanging_or_failing_notification_blocks_nothing(
    tmp_path: Path, diary: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    class FailingHandler(RecordingHandler):
        async def notify(self, context: HandlerContext) -> CallResult:
            self.notifications.append(context)
            if context.phase is Phase.NOTICE:
                await asyncio.Event().wait()
            if context.phase is Phase.PREPARE:
                raise RuntimeError("deaf")
            return Failed("no ears")

    deaf = FailingHandler("deaf", diary, time_limit=5)
    harness = AgentHarness(tmp_path, FakeService(), [deaf])
    async with harness.run_agent() as agent:
        await harness.show(event())
        assert agent.workflows[ID].phase is Phase.APPROVE
        assert [context.phase for context in deaf.notifications] == ["notice"]
        await harness.advance(seconds(5))
        assert [context.phase for context in deaf.notifications] == ["notice", "prepare", "ready", "approve"]
    assert "deaf: notification of notice timed out" in caplog.messages
    assert "deaf: notification of ready failed: no ears" in caplog.messages


async def test_call_cancelled_before_its_first_turn_is_reported_as_ended(tmp_path: Path, diary: list[str]) -> None:
    drain, late = RecordingHandler("drain", diary, importance=10), RecordingHandler("late", diary)
    drain.gate.clear()
    harness = AgentHarness(tmp_path, FakeService(), [drain, late])
    async with harness.run_agent() as agent:
        await harness.show(event())
        agent._on_input(ID, CallEnded("drain", HandlerCall.PREPARE, 1, Done()))
        agent._on_input(ID, EventRemoved(Ending.WITHDRAWN))
        drain.gate.set()
        await harness.settle()
        assert late.attempts(HandlerCall.PREPARE) == []
        assert late.attempts(HandlerCall.RECOVER) == [1]
        assert not agent.workflows


async def test_call_over_its_time_limit_is_cancelled_and_retried(tmp_path: Path, diary: list[str]) -> None:
    slow = RecordingHandler("slow", diary, time_limit=20, retries=1, pause=5)
    slow.gate.clear()
    harness = AgentHarness(tmp_path, FakeService(), [slow])
    async with harness.run_agent() as agent:
        await harness.show(event())
        await harness.advance(seconds(60))
        assert diary == ["slow prepare 1", "slow prepare cut", "slow prepare 2", "slow prepare cut"]
        step = agent.workflows[ID].steps[0]
        assert (step.prepare.state, step.prepare.reason) == (CallState.FAILED, "timed out after 20 s")
        assert not agent.workflows[ID].is_ready
        assert not harness.service.approvals
        assert "slow failed" in agent.workflows[ID].approval.reason


async def test_call_that_ignores_cancellation_is_abandoned(tmp_path: Path, diary: list[str]) -> None:
    class Stubborn(RecordingHandler):
        async def prepare(self, context: HandlerContext) -> None:  # type: ignore[override]  # it never returns
            diary.append("begun")
            while not self.gate.is_set():
                try:
                    await self.gate.wait()
                except asyncio.CancelledError:
                    diary.append("ignored")

    stubborn, other = Stubborn("stubborn", diary, importance=1, time_limit=5), RecordingHandler("other", diary)
    stubborn.gate.clear()
    harness = AgentHarness(tmp_path, FakeService(), [stubborn, other])
    async with harness.run_agent() as agent:
        await harness.show(event())
        await harness.advance(seconds(20))
        assert diary == ["begun", "ignored", "other prepare 1", "other prepare ends"]
        assert agent.workflows[ID].steps[0].prepare.reason == "timed out after 5 s; it did not stop when cancelled"
        stubborn.gate.set()
        await harness.settle()
        assert agent.workflows[ID].steps[0].prepare.state is CallState.FAILED


async def test_exception_in_a_handler_counts_as_failure(tmp_path: Path, diary: list[str]) -> None:
    bad = RecordingHandler("bad", diary, importance=1)
    bad.results = [RuntimeError("oops")]
    good = RecordingHandler("good", diary)
    harness = AgentHarness(tmp_path, FakeService(), [bad, good])
    async with harness.run_agent() as agent:
        await harness.show(event())
        assert agent.workflows[ID].steps[0].prepare.reason == "RuntimeError: oops"
        assert good.attempts(HandlerCall.PREPARE) == [1]
        await harness.show()
        assert not agent.workflows
        assert bad.attempts(HandlerCall.RECOVER) == [1]


async def test_undecodable_reason_is_sanitized(tmp_path: Path, diary: list[str]) -> None:
    bad = RecordingHandler("bad", diary, retries=1)
    bad.results = [Retry("\udcff" * 2000), Failed("\udcff")]
    harness = AgentHarness(tmp_path, FakeService(), [bad])
    async with harness.run_agent() as agent:
        await harness.show(event())
        assert agent.workflows[ID].steps[0].prepare.reason == "?" * 1000
        await harness.advance(seconds(1))
        assert agent.workflows[ID].steps[0].prepare.reason == "?"
        assert agent.status().problems == ()


async def test_removed_handler_fails_recovery_until_it_is_configured_again(
    tmp_path: Path, diary: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    drain = RecordingHandler("drain", diary)
    harness = AgentHarness(tmp_path, FakeService(event()), [drain])
    async with harness.run_agent():
        pass
    harness.handlers = {}
    harness.service.show()
    async with harness.run_agent() as agent:
        assert agent.workflows[ID].steps[0].recover.reason == "no handler of this name is configured now"
    harness.handlers = {"drain": drain}
    async with harness.run_agent() as agent:
        assert drain.attempts(HandlerCall.RECOVER) == [2]
        assert not agent.workflows


async def test_dry_run_logs_calls_and_changes_nothing(
    tmp_path: Path, diary: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    harness = AgentHarness(tmp_path / "state", FakeService(), [RecordingHandler("drain", diary)], dry_run=True)
    async with harness.run_agent() as agent:
        await harness.show(event())
        assert agent.workflows[ID].phase is Phase.APPROVE
        await harness.show()
    assert not diary
    assert not harness.service.approvals
    assert not (tmp_path / "state").exists()
    assert [text for text in caplog.messages if "would" in text] == [
        "would prepare with drain",
        "would recover with drain",
    ]


@pytest.mark.parametrize(
    ("result", "state"),
    [(Failed("half done"), CallState.UNKNOWN), (Retry("not now"), CallState.FAILED), (Done(), None)],
    ids=["failed", "asks for a retry", "done"],
)
async def test_recovery_at_most_once_is_repeated_only_on_request(
    tmp_path: Path, diary: list[str], result: CallResult, state: CallState | None
) -> None:
    once = RecordingHandler("once", diary, recovers_at_most_once=True)
    harness = AgentHarness(tmp_path, FakeService(), [once])
    async with harness.run_agent() as agent:
        await harness.show(event())
        once.results = [result]
        await harness.show()
        states = [workflow.steps[0].recover.state for workflow in agent.workflows.values()]
        assert states == ([] if state is None else [state])
        await harness.advance(seconds(3600))
        assert once.attempts(HandlerCall.RECOVER) == ([1, 2] if state is CallState.FAILED else [1])
        assert len(agent.workflows) == (1 if state is CallState.UNKNOWN else 0)


async def test_recovery_at_most_once_is_unknown_after_its_time_limit(tmp_path: Path, diary: list[str]) -> None:
    once = RecordingHandler("once", diary, recovers_at_most_once=True, time_limit=5, retries=3)
    harness = AgentHarness(tmp_path, FakeService(), [once])
    async with harness.run_agent() as agent:
        await harness.show(event())
        once.gate.clear()
        await harness.show()
        await harness.advance(seconds(3600))
        recover = agent.workflows[ID].steps[0].recover
        assert (recover.state, recover.attempt, recover.reason) == (CallState.UNKNOWN, 1, "timed out after 5 s")
