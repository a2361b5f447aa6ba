"""A running agent with a fake service, recording handlers and a manual clock."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from forewarn.agent import daemon
from forewarn.agent.handlers.base import Failed, HandlerCall, Phase, Retry
from forewarn.agent.lock import StateDirectoryInUse
from forewarn.agent.settings import ApprovalMode, ApprovalSettings
from forewarn.agent.workflow.approval import ApprovalPolicy
from forewarn.agent.workflow.planner import WorkflowContext, advance
from forewarn.agent.workflow.state import ApprovalState, CallState, EventWorkflow, WorkflowChange
from forewarn.client import Document, Unreachable
from tests.agent.harness import (
    ID,
    NOON,
    OTHER_ID,
    AgentHarness,
    FakeService,
    RecordingHandler,
    event,
    seconds,
    started,
    until,
)

pytestmark = pytest.mark.usefixtures("no_stray_errors")


async def test_event_is_prepared_approved_and_recovered(tmp_path: Path, diary: list[str]) -> None:
    drain, stop = RecordingHandler("drain", diary, importance=10), RecordingHandler("stop", diary, importance=5)
    harness = AgentHarness(tmp_path, FakeService(), [stop, drain])
    async with harness.run_agent() as agent:
        await harness.show(event())
        assert diary == ["drain prepare 1", "drain prepare ends", "stop prepare 1", "stop prepare ends"]
        assert harness.service.approvals == [ID]
        assert agent.workflows[ID].phase is Phase.APPROVE
        await harness.show(started(event()))
        assert agent.workflows[ID].phase is Phase.IMPACT
        await harness.show()
        assert diary[4:] == ["stop recover 1", "stop recover ends", "drain recover 1", "drain recover ends"]
        assert not agent.workflows
    assert [context.phase for context in drain.notifications] == list(Phase)
    assert not list((tmp_path / "journal").iterdir())


async def test_event_of_other_vms_is_ignored(tmp_path: Path, diary: list[str]) -> None:
    harness = AgentHarness(tmp_path, FakeService(), [RecordingHandler("drain", diary)])
    async with harness.run_agent() as agent:
        await harness.show(event(resources=("web_1",)))
        assert not agent.workflows
        assert not diary
        assert not harness.service.approvals


async def test_withdrawn_event_is_recovered(tmp_path: Path, diary: list[str]) -> None:
    drain, never = RecordingHandler("drain", diary, importance=10), RecordingHandler("never", diary)
    drain.gate.clear()
    harness = AgentHarness(tmp_path, FakeService(), [drain, never])
    async with harness.run_agent() as agent:
        await harness.show(event())
        await harness.show()
        drain.gate.set()
        await harness.settle()
        assert diary == ["drain prepare 1", "drain prepare cut", "drain recover 1", "drain recover ends"]
        assert not agent.workflows


async def test_event_is_approved_once_even_if_it_changes_often(tmp_path: Path, diary: list[str]) -> None:
    harness = AgentHarness(tmp_path, FakeService(), [])
    async with harness.run_agent():
        for number in range(5):
            await harness.show(event(description=f"text {number}"))
            await harness.advance(seconds(10))
        assert harness.service.approvals == [ID]


async def test_failed_approval_is_retried(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, FakeService(), [])
    harness.service.approval_errors = [Unreachable("http://169.254.169.254", "refused"), RuntimeError("a bug")]
    async with harness.run_agent() as agent:
        await harness.show(event())
        assert agent.workflows[ID].approval.state is ApprovalState.FAILED
        await harness.advance(seconds(30))
        assert harness.service.approvals == [ID] * 3
        assert agent.workflows[ID].approval.state is ApprovalState.GIVEN


async def test_recovery_is_retried_until_it_succeeds(tmp_path: Path, diary: list[str]) -> None:
    bad, good = RecordingHandler("bad", diary, importance=1), RecordingHandler("good", diary, importance=2)
    harness = AgentHarness(tmp_path, FakeService(), [bad, good])
    async with harness.run_agent() as agent:
        await harness.show(event())
        bad.results = [Failed("no"), Failed("no"), Retry("no"), Failed("no")]
        await harness.show()
        assert good.attempts(HandlerCall.RECOVER) == [1]
        assert agent.workflows[ID].steps[1].recover.state is CallState.FAILED
        await harness.advance(timedelta(hours=1))
        assert bad.attempts(HandlerCall.RECOVER) == [1, 2, 3, 4, 5]
        assert not agent.workflows


async def test_several_events_are_handled_in_parallel_while_handlers_run(tmp_path: Path, diary: list[str]) -> None:
    slow = RecordingHandler("slow", diary)
    slow.gate.clear()
    harness = AgentHarness(tmp_path, FakeService(), [slow])
    harness.handlers["fast"] = RecordingHandler("fast", diary, importance=-1)
    async with harness.run_agent() as agent:
        await harness.show(event())
        await harness.show(event(), event(OTHER_ID, type="Freeze"))
        assert set(agent.workflows) == {ID, OTHER_ID}
        await harness.show(event(), started(event(OTHER_ID, type="Freeze")))
        assert agent.workflows[OTHER_ID].phase is Phase.IMPACT
        slow.gate.set()
        await harness.settle()
        assert agent.workflows[ID].phase is Phase.APPROVE


async def test_handler_needed_by_another_event_is_not_recovered(tmp_path: Path, diary: list[str]) -> None:
    drain = RecordingHandler("drain", diary)
    harness = AgentHarness(tmp_path, FakeService(), [drain])
    async with harness.run_agent() as agent:
        await harness.show(event(), event(OTHER_ID))
        assert drain.attempts(HandlerCall.PREPARE) == [1, 1]
        await harness.show(event(OTHER_ID))
        assert drain.attempts(HandlerCall.RECOVER) == []
        assert agent.workflows[ID].phase is Phase.RECOVER
        await harness.show()
        assert drain.attempts(HandlerCall.RECOVER) == [1, 1]
        assert not agent.workflows


async def test_event_announced_again_during_recovery_is_prepared_again(tmp_path: Path, diary: list[str]) -> None:
    drain = RecordingHandler("drain", diary)
    harness = AgentHarness(tmp_path, FakeService(), [drain])
    async with harness.run_agent() as agent:
        await harness.show(event())
        drain.gate.clear()
        await harness.show()
        await harness.show(event())
        drain.gate.set()
        await harness.settle()
        assert (drain.attempts(HandlerCall.PREPARE), drain.attempts(HandlerCall.RECOVER)) == ([1, 2], [1])
        assert agent.workflows[ID].phase is Phase.APPROVE
        assert harness.service.approvals == [ID, ID]
        await harness.show()
        assert drain.attempts(HandlerCall.RECOVER) == [1, 2]
        assert not agent.workflows


@pytest.mark.parametrize("is_there", [True, False], ids=["still announced", "gone"])
async def test_restart_resumes_stored_workflows(tmp_path: Path, diary: list[str], *, is_there: bool) -> None:
    drain = RecordingHandler("drain", diary)
    harness = AgentHarness(tmp_path, FakeService(), [drain])
    drain.gate.clear()
    async with harness.run_agent():
        await harness.show(event())
    assert diary == ["drain prepare 1", "drain prepare cut"]
    drain.gate.set()
    diary.clear()
    if not is_there:
        harness.service.show()
    async with harness.run_agent() as agent:
        assert diary == [
            f"drain {'prepare 2' if is_there else 'recover 1'}",
            f"drain {'prepare' if is_there else 'recover'} ends",
        ]
        assert bool(agent.workflows) is is_there
        assert harness.service.approvals == [ID] * is_there
    assert [(context.phase, context.attempt) for context in drain.notifications][2] == ("prepare", 2)


async def test_stopping_the_agent_undoes_nothing(tmp_path: Path, diary: list[str]) -> None:
    drain = RecordingHandler("drain", diary)
    harness = AgentHarness(tmp_path, FakeService(event()), [drain])
    async with harness.run_agent():
        pass
    assert drain.attempts(HandlerCall.RECOVER) == []
    harness.service.show(started(event()))
    async with harness.run_agent() as agent:
        assert agent.workflows[ID].phase is Phase.IMPACT
        assert drain.attempts(HandlerCall.PREPARE) == [1]
        await harness.show()
        assert drain.attempts(HandlerCall.RECOVER) == [1]


async def test_approval_in_flight_at_a_restart_is_resent_and_a_given_one_is_not(tmp_path: Path) -> None:
    class Hanging(FakeService):
        hangs = True

        async def approve(self, event: object) -> None:
            self.approvals.append(ID)
            if self.hangs:
                await asyncio.Event().wait()

    service = Hanging(event())
    harness = AgentHarness(tmp_path, service, [])
    for _ in range(2):
        async with harness.run_agent() as agent:
            assert agent.workflows[ID].approval.state is ApprovalState.IN_FLIGHT
    service.hangs = False
    for _ in range(3):
        async with harness.run_agent() as agent:
            assert agent.workflows[ID].approval.state is ApprovalState.GIVEN
    assert service.approvals == [ID] * 3


async def test_empty_first_document_does_not_end_events(tmp_path: Path, diary: list[str]) -> None:
    drain = RecordingHandler("drain", diary)
    harness = AgentHarness(tmp_path, FakeService(event()), [drain])
    async with harness.run_agent():
        pass
    harness.service.show_empty_body()
    async with harness.run_agent() as agent:
        await harness.advance(seconds(60))
        assert drain.attempts(HandlerCall.RECOVER) == []
        await harness.show(started(event()))
        await harness.advance(seconds(10))
        assert agent.workflows[ID].phase is Phase.IMPACT


async def test_empty_document_ends_events_after_the_enable_timeout(tmp_path: Path, diary: list[str]) -> None:
    drain = RecordingHandler("drain", diary)
    harness = AgentHarness(tmp_path, FakeService(event()), [drain])
    async with harness.run_agent():
        pass
    harness.service.show_empty_body()
    async with harness.run_agent() as agent:
        await harness.advance(timedelta(minutes=5))
        assert drain.attempts(HandlerCall.RECOVER) == [1]
        assert not agent.workflows


async def test_recovery_does_not_wait_for_a_service_that_does_not_answer(tmp_path: Path, diary: list[str]) -> None:
    class Deaf(FakeService):
        is_deaf = False

        async def name(self) -> str:
            if self.is_deaf:
                raise Unreachable(self.endpoint, "refused")
            return await super().name()

    service, drain = Deaf(event()), RecordingHandler("drain", diary)
    harness = AgentHarness(tmp_path, service, [drain])
    async with harness.run_agent():
        drain.gate.clear()
        await harness.show()
    drain.gate.set()
    service.is_deaf = True
    async with harness.run_agent() as agent:
        assert drain.attempts(HandlerCall.RECOVER) == [1, 2]
        assert drain.contexts[-1].name == "web_0"
        assert not agent.workflows


async def test_handlers_are_notified_after_a_restart_even_if_the_service_does_not_answer(
    tmp_path: Path, diary: list[str]
) -> None:
    class Deaf(FakeService):
        is_deaf = False

        async def get(self) -> Document:
            if self.is_deaf:
                raise Unreachable(self.endpoint, "refused")
            return await super().get()

    service, drain = Deaf(event()), RecordingHandler("drain", diary)
    harness = AgentHarness(tmp_path, service, [drain])
    drain.gate.clear()
    async with harness.run_agent():
        pass
    service.is_deaf = True
    async with harness.run_agent() as agent:
        assert (drain.notifications[-1].phase, drain.notifications[-1].attempt) == (Phase.PREPARE, 2)
        assert drain.attempts(HandlerCall.PREPARE) == [1]
        service.is_deaf = False
        await harness.advance(seconds(5))
        assert drain.attempts(HandlerCall.PREPARE) == [1, 2]
        assert set(agent.workflows) == {ID}


async def test_handler_needed_by_another_event_is_not_recovered_after_a_restart(
    tmp_path: Path, diary: list[str]
) -> None:
    drain = RecordingHandler("drain", diary)
    harness = AgentHarness(tmp_path, FakeService(event(), event(OTHER_ID)), [drain])
    async with harness.run_agent():
        await harness.show(event(OTHER_ID))
    async with harness.run_agent() as agent:
        assert agent.workflows[ID].phase is Phase.RECOVER
        assert drain.attempts(HandlerCall.RECOVER) == []


async def test_event_started_while_no_agent_ran_is_not_prepared(tmp_path: Path, diary: list[str]) -> None:
    drain = RecordingHandler("drain", diary)
    drain.gate.clear()
    harness = AgentHarness(tmp_path, FakeService(event(), event(OTHER_ID)), [drain])
    async with harness.run_agent():
        pass
    harness.service.show(started(event()), started(event(OTHER_ID)))
    async with harness.run_agent() as agent:
        assert {workflow.phase for workflow in agent.workflows.values()} == {Phase.IMPACT}
        assert drain.attempts(HandlerCall.PREPARE) == [1]


async def test_watch_restarts_after_an_internal_error(tmp_path: Path, diary: list[str]) -> None:
    drain = RecordingHandler("drain", diary)
    harness = AgentHarness(tmp_path, FakeService(), [drain])
    harness.service.watch_errors = [TypeError("a bug")] * 3
    async with harness.run_agent() as agent:
        await harness.show(event())
        await harness.advance(seconds(60))
        assert agent.workflows[ID].phase is Phase.APPROVE
        assert drain.attempts(HandlerCall.PREPARE) == [1]


async def test_internal_error_in_one_workflow_does_not_affect_another(
    tmp_path: Path, diary: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(workflow: EventWorkflow, context: WorkflowContext) -> WorkflowChange:
        if workflow.id == ID:
            raise RuntimeError("a bug")
        return advance(workflow, context)

    harness = AgentHarness(tmp_path, FakeService(event()), [RecordingHandler("drain", diary)])
    async with harness.run_agent() as agent:
        monkeypatch.setattr(daemon, "advance", faulty)
        await harness.show(event(description="new"), event(OTHER_ID))
        assert agent.workflows[OTHER_ID].phase is Phase.APPROVE


async def test_exception_while_choosing_handlers_chooses_none(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, FakeService(), [])
    harness.handlers = {}
    async with harness.run_agent() as agent:
        agent._context = agent._context.__class__(
            client=harness.service, handlers={}, choose=_raise, state_directory=tmp_path, clock=harness.clock
        )
        await harness.show(event())
        assert agent.workflows[ID].steps == ()
        assert not harness.service.approvals


async def test_event_without_matching_rule_is_notified_and_not_approved(tmp_path: Path, diary: list[str]) -> None:
    log = RecordingHandler("log", diary)
    harness = AgentHarness(tmp_path, FakeService(), [log], may_approve=lambda _: False)
    async with harness.run_agent() as agent:
        await harness.show(event())
        assert [context.phase for context in log.notifications] == ["notice", "prepare", "ready"]
        assert agent.workflows[ID].approval.reason == "no rule matches this event; handlers are only notified"
        assert not harness.service.approvals


def _raise(_: object) -> list[str]:
    raise ValueError("a bug")


async def test_preempt_prepares_the_most_important_handlers_first(
    tmp_path: Path, diary: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = RecordingHandler("checkpoint", diary, importance=10, time_limit=20)
    upload, tidy = RecordingHandler("upload", diary, importance=5, time_limit=60), RecordingHandler("tidy", diary)
    upload.gate.clear()
    harness = AgentHarness(tmp_path, FakeService(), [tidy, upload, checkpoint])
    async with harness.run_agent() as agent:
        await harness.show(event(type="Preempt", at=NOON + seconds(30)))
        await harness.advance(seconds(29))
        assert diary == ["checkpoint prepare 1", "checkpoint prepare ends", "upload prepare 1", "upload prepare cut"]
        assert upload.contexts[0].time_limit == seconds(29)
        assert [step.prepare.state for step in agent.workflows[ID].steps] == ["done", "failed", "skipped"]
    assert "Preempt: prepare of tidy skipped: no time left before the event" in caplog.messages


async def test_unreadable_workflow_files_stay_in_the_status(tmp_path: Path) -> None:
    (tmp_path / "journal").touch()
    harness = AgentHarness(tmp_path, FakeService(event()), [])
    async with harness.run_agent() as agent:
        (tmp_path / "journal").unlink()
        await harness.advance(daemon.RETRY_INTERVAL)
        assert agent.status().problems == (
            "cannot read the workflow files: File exists; check whether something is still prepared",
        )


async def test_two_agents_do_not_share_a_state_directory(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, FakeService(), [])
    async with harness.run_agent():
        with pytest.raises(StateDirectoryInUse, match="another agent uses"):
            async with harness.run_agent():
                raise AssertionError("not reached")


async def test_clock_set_back_does_not_delay_recovery(
    tmp_path: Path, diary: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "CLOCK_CHECK_INTERVAL", 0.0)
    drain = RecordingHandler("drain", diary)
    harness = AgentHarness(tmp_path, FakeService(event()), [drain])
    async with harness.run_agent() as agent:
        drain.results = [Failed("not yet")]
        await harness.show()
        assert drain.attempts(HandlerCall.RECOVER) == [1]
        harness.clock._now -= timedelta(hours=2)
        await until(lambda: any("was set back by 7200 s" in message for message in caplog.messages))
        await harness.advance(seconds(30))
        assert drain.attempts(HandlerCall.RECOVER) == [1, 2]
        assert not agent.workflows


async def test_clock_set_back_does_not_delay_retries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(FakeService):
        asked = 0

        async def name(self) -> str:
            self.asked += 1
            if self.asked == 1:
                raise Unreachable(self.endpoint, "refused")
            return await super().name()

    monkeypatch.setattr(daemon, "CLOCK_CHECK_INTERVAL", 0.0)
    service = Late()
    harness = AgentHarness(tmp_path, service, [])
    async with harness.run_agent():
        assert service.asked == 1
        harness.clock._now -= timedelta(hours=2)
        await until(lambda: service.asked == 2)


async def test_start_and_stop_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    harness = AgentHarness(tmp_path, FakeService(event()), [])
    async with harness.run_agent():
        assert "this VM is web_0; polling http://169.254.169.254" in caplog.messages
    assert caplog.messages[-1] == "agent stopping; events to resume at the next start: 1"


async def test_dry_run_marks_approvals_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    harness = AgentHarness(tmp_path, FakeService(event()), [], dry_run=True)
    async with harness.run_agent():
        assert harness.service.approvals == []
    said = [message for message in caplog.messages if "approved" in message]
    assert said == ["dry run: Reboot: approved: this VM is ready, and no other VM is affected"]


async def test_scheduled_event_is_prepared_again_after_a_reboot(tmp_path: Path, diary: list[str]) -> None:
    drain, late = RecordingHandler("drain", diary, importance=9), RecordingHandler("late", diary)
    harness = AgentHarness(
        tmp_path,
        FakeService(),
        [drain, late],
        boot="first",
        policy=ApprovalPolicy(settings=ApprovalSettings(policy=ApprovalMode.NEVER)),
    )
    late.results = [Failed("no")]
    async with harness.run_agent():
        await harness.show(event())
    async with harness.run_agent() as agent:
        assert drain.attempts(HandlerCall.PREPARE) == [1]
        assert not agent.workflows[ID].is_ready
    harness.more["boot"] = "second"
    async with harness.run_agent() as agent:
        assert (drain.attempts(HandlerCall.PREPARE), late.attempts(HandlerCall.PREPARE)) == ([1, 2], [1, 2])
        assert agent.workflows[ID].is_ready
        await harness.show()
        assert (drain.attempts(HandlerCall.RECOVER), late.attempts(HandlerCall.RECOVER)) == ([1], [1])
        assert not agent.workflows


@pytest.mark.parametrize("boots", [("first", "second"), ("", "second"), ("first", "")], ids=repr)
async def test_announced_reboot_is_not_prepared_again_after_the_reboot(
    tmp_path: Path, diary: list[str], boots: tuple[str, str]
) -> None:
    drain = RecordingHandler("drain", diary)
    harness = AgentHarness(tmp_path, FakeService(), [drain], boot=boots[0])
    async with harness.run_agent():
        await harness.show(event())
    if all(boots):
        harness.service.show(started(event()))
    harness.more["boot"] = boots[1]
    async with harness.run_agent() as agent:
        assert drain.attempts(HandlerCall.PREPARE) == [1]
        assert agent.workflows[ID].steps[0].prepare.state is CallState.DONE
        await harness.show()
        assert drain.attempts(HandlerCall.RECOVER) == [1]
        assert not agent.workflows
