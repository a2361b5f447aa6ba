"""The agent as it runs, with a service and handlers that do what the test says, on a clock that the test moves."""

import asyncio
import logging
from datetime import timedelta
from pathlib import Path

import pytest

from forewarn.agent import daemon
from forewarn.agent.handlers.base import CallResult, Done, Failed, HandlerCall, HandlerContext, Phase, Retry
from forewarn.agent.lock import StateDirectoryInUse
from forewarn.agent.settings import ApprovalMode
from forewarn.agent.workflow.approval import ApprovalPolicy
from forewarn.agent.workflow.planner import WorkflowContext, advance
from forewarn.agent.workflow.state import (
    ApprovalState,
    CallEnded,
    CallState,
    EventRemoved,
    EventWorkflow,
    WorkflowChange,
)
from forewarn.client import Document, Ending, Unreachable
from tests.agent.stage import ID, NOON, OTHER_ID, Recorded, Service, Stage, event, seconds, started, until

pytestmark = pytest.mark.usefixtures("no_stray_errors")


@pytest.fixture
def no_stray_errors(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="forewarn.agent")


@pytest.fixture
def diary() -> list[str]:
    return []


async def test_an_event_is_prepared_for_approved_and_recovered(tmp_path: Path, diary: list[str]) -> None:
    drain, stop = Recorded("drain", diary, importance=10), Recorded("stop", diary, importance=5)
    stage = Stage(tmp_path, Service(), [stop, drain])
    async with stage.agent_running() as agent:
        await stage.show(event())
        assert diary == ["drain prepare 1", "drain prepare ends", "stop prepare 1", "stop prepare ends"]
        assert stage.service.approvals == [ID]
        assert agent.workflows[ID].phase is Phase.APPROVE
        await stage.show(started(event()))
        assert agent.workflows[ID].phase is Phase.IMPACT
        await stage.show()
        assert diary[4:] == ["stop recover 1", "stop recover ends", "drain recover 1", "drain recover ends"]
        assert not agent.workflows
    assert [errand.phase for errand in drain.told] == list(Phase)
    assert not list((tmp_path / "journal").iterdir())


async def test_an_event_of_other_vms_is_nothing_to_this_one(tmp_path: Path, diary: list[str]) -> None:
    stage = Stage(tmp_path, Service(), [Recorded("drain", diary)])
    async with stage.agent_running() as agent:
        await stage.show(event(resources=("web_1",)))
        assert not agent.workflows
        assert not diary
        assert not stage.service.approvals


async def test_a_withdrawn_event_is_recovered(tmp_path: Path, diary: list[str]) -> None:
    drain, never = Recorded("drain", diary, importance=10), Recorded("never", diary)
    drain.gate.clear()
    stage = Stage(tmp_path, Service(), [drain, never])
    async with stage.agent_running() as agent:
        await stage.show(event())
        await stage.show()
        drain.gate.set()
        await stage.settled()
        assert diary == ["drain prepare 1", "drain prepare cut", "drain recover 1", "drain recover ends"]
        assert not agent.workflows


async def test_who_is_told_of_recovery_knows_whether_his_half_follows(tmp_path: Path, diary: list[str]) -> None:
    drain, never = Recorded("drain", diary, importance=10), Recorded("never", diary)
    drain.gate.clear()
    stage = Stage(tmp_path, Service(), [drain, never])
    async with stage.agent_running():
        await stage.show(event())
        await stage.show()
        assert [(errand.phase, errand.call) for errand in drain.told] == [
            ("notice", None),
            ("prepare", None),
            ("recover", HandlerCall.RECOVER),
        ]
        assert [(errand.phase, errand.call) for errand in never.told] == [
            ("notice", None),
            ("prepare", None),
            ("recover", None),
        ]


async def test_one_that_hangs_or_raises_when_it_is_told_holds_nothing_up(
    tmp_path: Path, diary: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    class Deaf(Recorded):
        async def notify(self, errand: HandlerContext) -> CallResult:
            self.told.append(errand)
            if errand.phase is Phase.NOTICE:
                await asyncio.Event().wait()
            if errand.phase is Phase.PREPARE:
                raise RuntimeError("deaf")
            return Failed("no ears")

    deaf = Deaf("deaf", diary, time_limit=5)
    stage = Stage(tmp_path, Service(), [deaf])
    async with stage.agent_running() as agent:
        await stage.show(event())
        assert agent.workflows[ID].phase is Phase.APPROVE
        assert [errand.phase for errand in deaf.told] == ["notice"]
        await stage.pass_time(seconds(5))
        assert [errand.phase for errand in deaf.told] == ["notice", "prepare", "ready", "approve"]
    assert "deaf took too long to hear of notice" in caplog.messages
    assert "deaf could not be told of ready: no ears" in caplog.messages


async def test_one_that_is_cut_short_before_its_first_turn_has_ended_too(tmp_path: Path, diary: list[str]) -> None:
    drain, late = Recorded("drain", diary, importance=10), Recorded("late", diary)
    drain.gate.clear()
    stage = Stage(tmp_path, Service(), [drain, late])
    async with stage.agent_running() as agent:
        await stage.show(event())
        agent._on_input(ID, CallEnded("drain", HandlerCall.PREPARE, 1, Done()))
        agent._on_input(ID, EventRemoved(Ending.WITHDRAWN))
        drain.gate.set()
        await stage.settled()
        assert late.halves(HandlerCall.PREPARE) == []
        assert late.halves(HandlerCall.RECOVER) == [1]
        assert not agent.workflows


async def test_approval_happens_once_however_often_the_event_changes(tmp_path: Path, diary: list[str]) -> None:
    stage = Stage(tmp_path, Service(), [])
    async with stage.agent_running():
        for number in range(5):
            await stage.show(event(description=f"text {number}"))
            await stage.pass_time(seconds(10))
        assert stage.service.approvals == [ID]


async def test_an_approval_that_failed_is_sent_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Service(), [])
    stage.service.fails_with = [Unreachable("http://169.254.169.254", "refused"), RuntimeError("a bug")]
    async with stage.agent_running() as agent:
        await stage.show(event())
        assert agent.workflows[ID].approval.state is ApprovalState.FAILED
        await stage.pass_time(seconds(30))
        assert stage.service.approvals == [ID] * 3
        assert agent.workflows[ID].approval.state is ApprovalState.GIVEN


async def test_a_half_that_takes_too_long_is_cut_and_tried_again(tmp_path: Path, diary: list[str]) -> None:
    slow = Recorded("slow", diary, time_limit=20, retries=1, pause=5)
    slow.gate.clear()
    stage = Stage(tmp_path, Service(), [slow])
    async with stage.agent_running() as agent:
        await stage.show(event())
        await stage.pass_time(seconds(60))
        assert diary == ["slow prepare 1", "slow prepare cut", "slow prepare 2", "slow prepare cut"]
        step = agent.workflows[ID].steps[0]
        assert (step.prepare.state, step.prepare.reason) == (CallState.FAILED, "its time was over after 20 s")
        assert not agent.workflows[ID].is_ready
        assert not stage.service.approvals
        assert "slow failed" in agent.workflows[ID].approval.reason


async def test_one_that_does_not_stop_is_left_to_itself(tmp_path: Path, diary: list[str]) -> None:
    class Stubborn(Recorded):
        async def prepare(self, errand: HandlerContext) -> None:  # type: ignore[override]  # it never ends
            diary.append("begun")
            while not self.gate.is_set():
                try:
                    await self.gate.wait()
                except asyncio.CancelledError:
                    diary.append("ignored")

    stubborn, other = Stubborn("stubborn", diary, importance=1, time_limit=5), Recorded("other", diary)
    stubborn.gate.clear()
    stage = Stage(tmp_path, Service(), [stubborn, other])
    async with stage.agent_running() as agent:
        await stage.show(event())
        await stage.pass_time(seconds(20))
        assert diary == ["begun", "ignored", "other prepare 1", "other prepare ends"]
        assert agent.workflows[ID].steps[0].prepare.reason == "its time was over after 5 s; and it does not stop"
        stubborn.gate.set()
        await stage.settled()
        assert agent.workflows[ID].steps[0].prepare.state is CallState.FAILED


async def test_a_handler_that_raises_is_a_handler_that_failed(tmp_path: Path, diary: list[str]) -> None:
    bad = Recorded("bad", diary, importance=1)
    bad.ends = [RuntimeError("oops")]
    good = Recorded("good", diary)
    stage = Stage(tmp_path, Service(), [bad, good])
    async with stage.agent_running() as agent:
        await stage.show(event())
        assert agent.workflows[ID].steps[0].prepare.reason == "RuntimeError: oops"
        assert good.halves(HandlerCall.PREPARE) == [1]
        await stage.show()
        assert not agent.workflows
        assert bad.halves(HandlerCall.RECOVER) == [1]


async def test_a_reason_that_is_no_text_is_kept_as_text(tmp_path: Path, diary: list[str]) -> None:
    bad = Recorded("bad", diary, retries=1)
    bad.ends = [Retry("\udcff" * 2000), Failed("\udcff")]
    stage = Stage(tmp_path, Service(), [bad])
    async with stage.agent_running() as agent:
        await stage.show(event())
        assert agent.workflows[ID].steps[0].prepare.reason == "?" * 1000
        await stage.pass_time(seconds(1))
        assert agent.workflows[ID].steps[0].prepare.reason == "?"
        assert agent.status().troubles == ()


async def test_recovery_is_tried_until_it_succeeds(tmp_path: Path, diary: list[str]) -> None:
    bad, good = Recorded("bad", diary, importance=1), Recorded("good", diary, importance=2)
    stage = Stage(tmp_path, Service(), [bad, good])
    async with stage.agent_running() as agent:
        await stage.show(event())
        bad.ends = [Failed("no"), Failed("no"), Retry("no"), Failed("no")]
        await stage.show()
        assert good.halves(HandlerCall.RECOVER) == [1]
        assert agent.workflows[ID].steps[1].recover.state is CallState.FAILED
        await stage.pass_time(timedelta(hours=1))
        assert bad.halves(HandlerCall.RECOVER) == [1, 2, 3, 4, 5]
        assert not agent.workflows


async def test_it_watches_while_handlers_run_and_walks_several_events_at_a_time(
    tmp_path: Path, diary: list[str]
) -> None:
    slow = Recorded("slow", diary)
    slow.gate.clear()
    stage = Stage(tmp_path, Service(), [slow])
    stage.handlers["fast"] = Recorded("fast", diary, importance=-1)
    async with stage.agent_running() as agent:
        await stage.show(event())
        await stage.show(event(), event(OTHER_ID, type="Freeze"))
        assert set(agent.workflows) == {ID, OTHER_ID}
        await stage.show(event(), started(event(OTHER_ID, type="Freeze")))
        assert agent.workflows[OTHER_ID].phase is Phase.IMPACT
        slow.gate.set()
        await stage.settled()
        assert agent.workflows[ID].phase is Phase.APPROVE


async def test_what_another_event_needs_prepared_is_not_recovered_before(tmp_path: Path, diary: list[str]) -> None:
    drain = Recorded("drain", diary)
    stage = Stage(tmp_path, Service(), [drain])
    async with stage.agent_running() as agent:
        await stage.show(event(), event(OTHER_ID))
        assert drain.halves(HandlerCall.PREPARE) == [1, 1]
        await stage.show(event(OTHER_ID))
        assert drain.halves(HandlerCall.RECOVER) == []
        assert agent.workflows[ID].phase is Phase.RECOVER
        await stage.show()
        assert drain.halves(HandlerCall.RECOVER) == [1, 1]
        assert not agent.workflows


async def test_an_event_that_comes_back_while_it_is_recovered_is_prepared_for_again(
    tmp_path: Path, diary: list[str]
) -> None:
    drain = Recorded("drain", diary)
    stage = Stage(tmp_path, Service(), [drain])
    async with stage.agent_running() as agent:
        await stage.show(event())
        drain.gate.clear()
        await stage.show()
        await stage.show(event())
        drain.gate.set()
        await stage.settled()
        assert (drain.halves(HandlerCall.PREPARE), drain.halves(HandlerCall.RECOVER)) == ([1, 2], [1])
        assert agent.workflows[ID].phase is Phase.APPROVE
        assert stage.service.approvals == [ID, ID]
        await stage.show()
        assert drain.halves(HandlerCall.RECOVER) == [1, 2]
        assert not agent.workflows


@pytest.mark.parametrize("is_there", [True, False], ids=["still announced", "gone"])
async def test_a_restart_goes_on_where_the_journal_says(tmp_path: Path, diary: list[str], *, is_there: bool) -> None:
    drain = Recorded("drain", diary)
    stage = Stage(tmp_path, Service(), [drain])
    drain.gate.clear()
    async with stage.agent_running():
        await stage.show(event())
    assert diary == ["drain prepare 1", "drain prepare cut"]
    drain.gate.set()
    diary.clear()
    if not is_there:
        stage.service.show()
    async with stage.agent_running() as agent:
        assert diary == [
            f"drain {'prepare 2' if is_there else 'recover 1'}",
            f"drain {'prepare' if is_there else 'recover'} ends",
        ]
        assert bool(agent.workflows) is is_there
        assert stage.service.approvals == [ID] * is_there
    assert [(errand.phase, errand.attempt) for errand in drain.told][2] == ("prepare", 2)


async def test_stopping_undoes_nothing(tmp_path: Path, diary: list[str]) -> None:
    drain = Recorded("drain", diary)
    stage = Stage(tmp_path, Service(event()), [drain])
    async with stage.agent_running():
        pass
    assert drain.halves(HandlerCall.RECOVER) == []
    stage.service.show(started(event()))
    async with stage.agent_running() as agent:
        assert agent.workflows[ID].phase is Phase.IMPACT
        assert drain.halves(HandlerCall.PREPARE) == [1]
        await stage.show()
        assert drain.halves(HandlerCall.RECOVER) == [1]


async def test_an_approval_whose_end_nobody_saw_is_sent_again_and_one_that_was_taken_is_not(tmp_path: Path) -> None:
    class Hanging(Service):
        hangs = True

        async def approve(self, event: object) -> None:
            self.approvals.append(ID)
            if self.hangs:
                await asyncio.Event().wait()

    service = Hanging(event())
    stage = Stage(tmp_path, service, [])
    for _ in range(2):
        async with stage.agent_running() as agent:
            assert agent.workflows[ID].approval.state is ApprovalState.IN_FLIGHT
    service.hangs = False
    for _ in range(3):
        async with stage.agent_running() as agent:
            assert agent.workflows[ID].approval.state is ApprovalState.GIVEN
    assert service.approvals == [ID] * 3


async def test_a_service_that_says_nothing_yet_does_not_mean_that_all_is_gone(tmp_path: Path, diary: list[str]) -> None:
    drain = Recorded("drain", diary)
    stage = Stage(tmp_path, Service(event()), [drain])
    async with stage.agent_running():
        pass
    stage.service.say_nothing()
    async with stage.agent_running() as agent:
        await stage.pass_time(seconds(60))
        assert drain.halves(HandlerCall.RECOVER) == []
        await stage.show(started(event()))
        await stage.pass_time(seconds(10))
        assert agent.workflows[ID].phase is Phase.IMPACT


async def test_a_service_that_never_says_more_is_believed_in_the_end(tmp_path: Path, diary: list[str]) -> None:
    drain = Recorded("drain", diary)
    stage = Stage(tmp_path, Service(event()), [drain])
    async with stage.agent_running():
        pass
    stage.service.say_nothing()
    async with stage.agent_running() as agent:
        await stage.pass_time(timedelta(minutes=5))
        assert drain.halves(HandlerCall.RECOVER) == [1]
        assert not agent.workflows


async def test_recovery_does_not_wait_for_a_service_that_does_not_answer(tmp_path: Path, diary: list[str]) -> None:
    class Deaf(Service):
        is_deaf = False

        async def name(self) -> str:
            if self.is_deaf:
                raise Unreachable(self.endpoint, "nobody there")
            return await super().name()

    service, drain = Deaf(event()), Recorded("drain", diary)
    stage = Stage(tmp_path, service, [drain])
    async with stage.agent_running():
        drain.gate.clear()
        await stage.show()
    drain.gate.set()
    service.is_deaf = True
    async with stage.agent_running() as agent:
        assert drain.halves(HandlerCall.RECOVER) == [1, 2]
        assert drain.errands[-1].name == "web_0"
        assert not agent.workflows


async def test_handlers_are_told_at_once_after_a_restart_even_if_the_service_does_not_answer(
    tmp_path: Path, diary: list[str]
) -> None:
    class Deaf(Service):
        is_deaf = False

        async def get(self) -> Document:
            if self.is_deaf:
                raise Unreachable(self.endpoint, "nobody there")
            return await super().get()

    service, drain = Deaf(event()), Recorded("drain", diary)
    stage = Stage(tmp_path, service, [drain])
    drain.gate.clear()
    async with stage.agent_running():
        pass
    service.is_deaf = True
    async with stage.agent_running() as agent:
        assert (drain.told[-1].phase, drain.told[-1].attempt) == (Phase.PREPARE, 2)
        assert drain.halves(HandlerCall.PREPARE) == [1]
        service.is_deaf = False
        await stage.pass_time(seconds(5))
        assert drain.halves(HandlerCall.PREPARE) == [1, 2]
        assert set(agent.workflows) == {ID}


async def test_after_a_restart_too_nothing_is_recovered_that_another_event_needs(
    tmp_path: Path, diary: list[str]
) -> None:
    drain = Recorded("drain", diary)
    stage = Stage(tmp_path, Service(event(), event(OTHER_ID)), [drain])
    async with stage.agent_running():
        await stage.show(event(OTHER_ID))
    async with stage.agent_running() as agent:
        assert agent.workflows[ID].phase is Phase.RECOVER
        assert drain.halves(HandlerCall.RECOVER) == []


async def test_what_started_while_nobody_looked_is_not_prepared_for(tmp_path: Path, diary: list[str]) -> None:
    drain = Recorded("drain", diary)
    drain.gate.clear()
    stage = Stage(tmp_path, Service(event(), event(OTHER_ID)), [drain])
    async with stage.agent_running():
        pass
    stage.service.show(started(event()), started(event(OTHER_ID)))
    async with stage.agent_running() as agent:
        assert {walk.phase for walk in agent.workflows.values()} == {Phase.IMPACT}
        assert drain.halves(HandlerCall.PREPARE) == [1]


async def test_watching_begins_anew_after_any_mistake(tmp_path: Path, diary: list[str]) -> None:
    drain = Recorded("drain", diary)
    stage = Stage(tmp_path, Service(), [drain])
    stage.service.breaks_with = [TypeError("a bug")] * 3
    async with stage.agent_running() as agent:
        await stage.show(event())
        await stage.pass_time(seconds(60))
        assert agent.workflows[ID].phase is Phase.APPROVE
        assert drain.halves(HandlerCall.PREPARE) == [1]


async def test_a_mistake_about_one_event_does_not_keep_the_agent_from_another(
    tmp_path: Path, diary: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(walk: EventWorkflow, world: WorkflowContext) -> WorkflowChange:
        if walk.id == ID:
            raise RuntimeError("a bug")
        return advance(walk, world)

    stage = Stage(tmp_path, Service(event()), [Recorded("drain", diary)])
    async with stage.agent_running() as agent:
        monkeypatch.setattr(daemon, "advance", faulty)
        await stage.show(event(description="new"), event(OTHER_ID))
        assert agent.workflows[OTHER_ID].phase is Phase.APPROVE


async def test_rules_that_raise_choose_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Service(), [])
    stage.handlers = {}
    async with stage.agent_running() as agent:
        agent._context = agent._context.__class__(
            client=stage.service, handlers={}, choose=_raise, state_directory=tmp_path, clock=stage.clock
        )
        await stage.show(event())
        assert agent.workflows[ID].steps == ()
        assert not stage.service.approvals


async def test_what_no_rule_matches_is_told_and_not_approved(tmp_path: Path, diary: list[str]) -> None:
    log = Recorded("log", diary)
    stage = Stage(tmp_path, Service(), [log], may_approve=lambda _: False)
    async with stage.agent_running() as agent:
        await stage.show(event())
        assert [errand.phase for errand in log.told] == ["notice", "prepare", "ready"]
        assert agent.workflows[ID].approval.reason == "no rule matches this event, so it is only told"
        assert not stage.service.approvals


def _raise(_: object) -> list[str]:
    raise ValueError("a bug")


async def test_a_preempt_gets_its_most_important_steps_done(
    tmp_path: Path, diary: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = Recorded("checkpoint", diary, importance=10, time_limit=20)
    upload, tidy = Recorded("upload", diary, importance=5, time_limit=60), Recorded("tidy", diary)
    upload.gate.clear()
    stage = Stage(tmp_path, Service(), [tidy, upload, checkpoint])
    async with stage.agent_running() as agent:
        await stage.show(event(type="Preempt", at=NOON + seconds(30)))
        await stage.pass_time(seconds(29))
        assert diary == ["checkpoint prepare 1", "checkpoint prepare ends", "upload prepare 1", "upload prepare cut"]
        assert upload.errands[0].time_limit == seconds(29)
        assert [step.prepare.state for step in agent.workflows[ID].steps] == ["done", "failed", "skipped"]
    assert "Preempt: prepare of tidy is skipped: no time is left before the event" in caplog.messages


async def test_a_handler_that_is_configured_no_more_is_said_and_stays_to_be_recovered(
    tmp_path: Path, diary: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    drain = Recorded("drain", diary)
    stage = Stage(tmp_path, Service(event()), [drain])
    async with stage.agent_running():
        pass
    stage.handlers = {}
    stage.service.show()
    async with stage.agent_running() as agent:
        assert agent.workflows[ID].steps[0].recover.reason == "no handler of this name is configured any more"
    stage.handlers = {"drain": drain}
    async with stage.agent_running() as agent:
        assert drain.halves(HandlerCall.RECOVER) == [2]
        assert not agent.workflows


async def test_a_journal_that_cannot_be_read_is_not_forgotten(tmp_path: Path) -> None:
    (tmp_path / "journal").touch()
    stage = Stage(tmp_path, Service(event()), [])
    async with stage.agent_running() as agent:
        (tmp_path / "journal").unlink()
        await stage.pass_time(daemon.RETRY_INTERVAL)
        assert agent.status().troubles == (
            "the journal cannot be read: File exists; look whether something is left prepared",
        )


async def test_two_agents_do_not_share_a_state_directory(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Service(), [])
    async with stage.agent_running():
        with pytest.raises(StateDirectoryInUse, match="another agent works with"):
            async with stage.agent_running():
                raise AssertionError("not reached")


async def test_a_dry_run_does_nothing_and_says_everything(
    tmp_path: Path, diary: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(tmp_path / "state", Service(), [Recorded("drain", diary)], dry_run=True)
    async with stage.agent_running() as agent:
        await stage.show(event())
        assert agent.workflows[ID].phase is Phase.APPROVE
        await stage.show()
    assert not diary
    assert not stage.service.approvals
    assert not (tmp_path / "state").exists()
    assert [text for text in caplog.messages if "would" in text] == [
        "would prepare with drain",
        "would recover with drain",
    ]


async def test_a_clock_that_is_set_back_keeps_nobody_waiting(
    tmp_path: Path, diary: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "CLOCK_CHECK_INTERVAL", 0.0)
    drain = Recorded("drain", diary)
    stage = Stage(tmp_path, Service(event()), [drain])
    async with stage.agent_running() as agent:
        drain.ends = [Failed("not yet")]
        await stage.show()
        assert drain.halves(HandlerCall.RECOVER) == [1]
        stage.clock._now -= timedelta(hours=2)
        await until(lambda: any("was set back by 7200 s" in message for message in caplog.messages))
        await stage.pass_time(seconds(30))
        assert drain.halves(HandlerCall.RECOVER) == [1, 2]
        assert not agent.workflows


async def test_a_clock_that_is_set_back_does_not_keep_the_agent_from_asking_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(Service):
        asked = 0

        async def name(self) -> str:
            self.asked += 1
            if self.asked == 1:
                raise Unreachable(self.endpoint, "refused")
            return await super().name()

    monkeypatch.setattr(daemon, "CLOCK_CHECK_INTERVAL", 0.0)
    service = Late()
    stage = Stage(tmp_path, service, [])
    async with stage.agent_running():
        assert service.asked == 1
        stage.clock._now -= timedelta(hours=2)
        await until(lambda: service.asked == 2)


async def test_the_log_says_whose_events_are_watched_and_what_is_left_to_the_next_agent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(tmp_path, Service(event()), [])
    async with stage.agent_running():
        assert "this VM is web_0; http://169.254.169.254 is asked for its events" in caplog.messages
    assert caplog.messages[-1] == "the agent ends; events that the next one goes on with: 1"


async def test_a_dry_run_does_not_say_that_anything_was_approved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(tmp_path, Service(event()), [], dry_run=True)
    async with stage.agent_running():
        assert stage.service.approvals == []
    said = [message for message in caplog.messages if "approved" in message]
    assert said == ["dry run: Reboot: approved: this VM is ready, and no other is affected"]


async def test_what_was_prepared_before_a_reboot_is_prepared_anew_while_the_event_is_still_to_come(
    tmp_path: Path, diary: list[str]
) -> None:
    drain, late = Recorded("drain", diary, importance=9), Recorded("late", diary)
    stage = Stage(tmp_path, Service(), [drain, late], boot="first", policy=ApprovalPolicy(mode=ApprovalMode.NEVER))
    late.ends = [Failed("no")]
    async with stage.agent_running():
        await stage.show(event())
    async with stage.agent_running() as agent:
        assert drain.halves(HandlerCall.PREPARE) == [1]
        assert not agent.workflows[ID].is_ready
    stage.more["boot"] = "second"
    async with stage.agent_running() as agent:
        assert (drain.halves(HandlerCall.PREPARE), late.halves(HandlerCall.PREPARE)) == ([1, 2], [1, 2])
        assert agent.workflows[ID].is_ready
        await stage.show()
        assert (drain.halves(HandlerCall.RECOVER), late.halves(HandlerCall.RECOVER)) == ([1], [1])
        assert not agent.workflows


@pytest.mark.parametrize("boots", [("first", "second"), ("", "second"), ("first", "")], ids=repr)
async def test_after_the_reboot_that_was_announced_nothing_is_prepared(
    tmp_path: Path, diary: list[str], boots: tuple[str, str]
) -> None:
    drain = Recorded("drain", diary)
    stage = Stage(tmp_path, Service(), [drain], boot=boots[0])
    async with stage.agent_running():
        await stage.show(event())
    if all(boots):
        stage.service.show(started(event()))
    stage.more["boot"] = boots[1]
    async with stage.agent_running() as agent:
        assert drain.halves(HandlerCall.PREPARE) == [1]
        assert agent.workflows[ID].steps[0].prepare.state is CallState.DONE
        await stage.show()
        assert drain.halves(HandlerCall.RECOVER) == [1]
        assert not agent.workflows
