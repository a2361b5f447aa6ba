"""The planner and the reducer: single transitions, and random sequences of inputs."""

from collections import Counter
from datetime import datetime, timedelta

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forewarn.agent.handlers.base import Done, Failed, Retry
from forewarn.agent.phases import HandlerCall, Phase
from forewarn.agent.settings import ApprovalMode, ApprovalSettings
from forewarn.agent.workflow.approval import ApprovalPolicy
from forewarn.agent.workflow.planner import WorkflowContext, advance, handlers_in_use, resume, start
from forewarn.agent.workflow.reducer import apply_input, infer_ending
from forewarn.agent.workflow.state import (
    Action,
    ApprovalFailed,
    ApprovalState,
    Approve,
    Approved,
    CallEnded,
    CallState,
    CancelCall,
    CheckPeers,
    ClockChanged,
    EventRemoved,
    EventSeen,
    EventWorkflow,
    Finish,
    HandlerStep,
    NotifyHandlers,
    PeersChecked,
    PeerState,
    StartCall,
    WorkflowChange,
)
from forewarn.agent.workflow.store import decode_workflow, encode_workflow
from forewarn.client import Ending, Event
from tests.agent.harness import ID, NOON, OTHER_ID, event, seconds, started
from tests.support.examples import examples


def context(at: float = 0, **more: object) -> WorkflowContext:
    return WorkflowContext(now=NOON + seconds(at), vm_name="web_0", **more)  # type: ignore[arg-type]  # fields of the context


def after(workflow: EventWorkflow, *inputs: object, at: float = 0, **more: object) -> WorkflowChange:
    """Apply all inputs, and advance the workflow."""
    for input_ in inputs:
        workflow = apply_input(workflow, input_, now=NOON + seconds(at))  # type: ignore[arg-type]  # an input
    return advance(workflow, context(at, **more))


def handler_calls(following: WorkflowChange) -> list[tuple[str, str, int]]:
    return [(do.handler, do.call.value, do.attempt) for do in following.actions if isinstance(do, StartCall)]


TWO = (
    HandlerStep(handler="low"),
    HandlerStep(handler="high", importance=9),
    HandlerStep(handler="high2", importance=9),
)


def test_handlers_start_by_importance_and_equal_ones_together() -> None:
    first = start(event(), TWO, context())
    assert first.actions == (
        NotifyHandlers(Phase.NOTICE, 1),
        NotifyHandlers(Phase.PREPARE, 1),
        StartCall("high", HandlerCall.PREPARE, 1, NOON + seconds(30)),
        StartCall("high2", HandlerCall.PREPARE, 1, NOON + seconds(30)),
    )
    assert first.wake_at == NOON + seconds(30)
    second = after(first.workflow, CallEnded("high", HandlerCall.PREPARE, 1, Done()))
    assert second.actions == ()
    third = after(second.workflow, CallEnded("high2", HandlerCall.PREPARE, 1, Done()), at=3)
    assert third.actions == (StartCall("low", HandlerCall.PREPARE, 1, NOON + seconds(33)),)
    ready = after(third.workflow, CallEnded("low", HandlerCall.PREPARE, 1, Done()), at=5)
    assert ready.actions == (NotifyHandlers(Phase.READY, 1), NotifyHandlers(Phase.APPROVE, 1), Approve())
    assert ready.workflow.ready_at == NOON + seconds(5)


def test_handler_chosen_twice_has_one_step() -> None:
    workflow = start(
        event(), (HandlerStep(handler="a"), HandlerStep(handler="b"), HandlerStep(handler="a")), context()
    ).workflow
    assert [step.handler for step in workflow.steps] == ["a", "b"]


def test_event_without_handlers_is_ready_immediately() -> None:
    assert start(event(), (), context()).actions == (
        NotifyHandlers(Phase.NOTICE, 1),
        NotifyHandlers(Phase.PREPARE, 1),
        NotifyHandlers(Phase.READY, 1),
        NotifyHandlers(Phase.APPROVE, 1),
        Approve(),
    )


def test_event_that_appears_as_started_is_only_notified() -> None:
    first = start(started(event()), TWO, context())
    assert first.actions == (NotifyHandlers(Phase.NOTICE, 1), NotifyHandlers(Phase.IMPACT, 1))
    assert {step.prepare.state for step in first.workflow.steps} == {CallState.SKIPPED}
    gone = after(first.workflow, EventRemoved(Ending.FINISHED))
    assert gone.actions == (NotifyHandlers(Phase.RECOVER, 1), Finish())


def test_running_call_keeps_its_slice_when_the_event_starts() -> None:
    first = start(event(), TWO, context())
    impact = after(first.workflow, EventSeen(started(event())), at=10)
    assert impact.actions == (NotifyHandlers(Phase.IMPACT, 1),)
    assert [step.prepare.state for step in impact.workflow.steps] == [
        CallState.RUNNING,
        CallState.RUNNING,
        CallState.SKIPPED,
    ]
    late = advance(impact.workflow, context(30))
    assert [type(do) for do in late.actions] == [CancelCall, CancelCall]
    assert (
        not after(late.workflow, CallEnded("high", HandlerCall.PREPARE, 1, Retry("busy")), at=30)
        .workflow.steps[0]
        .prepare.until
    )


def test_retry_follows_after_a_pause_and_failure_is_final() -> None:
    steps = (HandlerStep(handler="a", retries=1, pause=seconds(5)), HandlerStep(handler="b", retries=1))
    first = start(event(), steps, context()).workflow
    second = after(
        first,
        CallEnded("a", HandlerCall.PREPARE, 1, Retry("busy")),
        CallEnded("b", HandlerCall.PREPARE, 1, Failed("no")),
    )
    assert (second.actions, second.wake_at) == ((), NOON + seconds(5))
    third = advance(second.workflow, context(5))
    assert handler_calls(third) == [("a", "prepare", 2)]
    last = after(third.workflow, CallEnded("a", HandlerCall.PREPARE, 2, Retry("busy")), at=6)
    assert [step.prepare.state for step in last.workflow.steps] == [CallState.FAILED, CallState.FAILED]
    assert last.workflow.approval.reason == "this VM is not ready: a failed: busy; b failed: no"
    assert not last.workflow.is_ready


def test_ready_despite_failure_does_not_block() -> None:
    first = start(event(), (HandlerStep(handler="a", ready_despite_failure=True),), context()).workflow
    assert Approve() in after(first, CallEnded("a", HandlerCall.PREPARE, 1, Failed("no"))).actions


def test_outdated_or_foreign_input_changes_nothing() -> None:
    workflow = start(event(), TWO, context()).workflow
    strange = (
        CallEnded("high", HandlerCall.PREPARE, 7, Done()),
        CallEnded("high", HandlerCall.RECOVER, 0, Done()),
        CallEnded("nobody", HandlerCall.PREPARE, 1, Done()),
        PeersChecked((PeerState(name="web_1", is_ready=True),)),
        Approved(),
        ApprovalFailed("late"),
        EventSeen(event()),
    )
    for input_ in strange:
        assert apply_input(workflow, input_, now=NOON) == workflow


def test_earlier_deadline_cancels_calls_and_later_deadline_restores_skipped_ones() -> None:
    workflow = start(event(), TWO, context()).workflow
    sooner = event(at=NOON + seconds(11))
    hurried = after(workflow, EventSeen(sooner), at=5)
    assert [step.prepare.until for step in hurried.workflow.steps[:2]] == [NOON + seconds(10)] * 2
    ended = [CallEnded(name, HandlerCall.PREPARE, 1, Done()) for name in ("high", "high2")]
    skipped = after(hurried.workflow, *ended, at=10)
    assert skipped.workflow.step("low") == HandlerStep(
        handler="low",
        prepare=msgspec.structs.replace(HandlerStep(handler="x").prepare, state=CallState.SKIPPED, reason=NO_TIME),
    )
    postponed = after(msgspec.structs.replace(skipped.workflow, phase=Phase.READY), EventSeen(event()), at=10)
    assert handler_calls(postponed) == [("low", "prepare", 1)]
    assert not postponed.workflow.is_ready


NO_TIME = "no time left before the event"


def test_skipped_call_runs_when_the_deadline_becomes_unknown() -> None:
    never = ApprovalPolicy(settings=ApprovalSettings(policy=ApprovalMode.NEVER))
    late = start(event(at=NOON + seconds(1)), (HandlerStep(handler="a"),), context(policy=never)).workflow
    assert late.steps[0].prepare.state is CallState.SKIPPED
    assert handler_calls(after(late, EventSeen(event(at=None)), policy=never)) == [("a", "prepare", 1)]


def test_overdue_event_is_prepared_but_not_approved() -> None:
    """Other events may start before it, or the clock of this machine is ahead."""
    late = start(event(at=NOON - seconds(60)), (HandlerStep(handler="a"),), context())
    assert late.workflow.steps[0].prepare.until == NOON + seconds(30)
    changed = after(late.workflow, EventSeen(event(at=NOON - seconds(60), description="another one")), at=20)
    assert (changed.workflow.steps[0].prepare.until, changed.actions) == (NOON + seconds(30), ())
    ready = after(changed.workflow, CallEnded("a", HandlerCall.PREPARE, 1, Done()), at=25)
    assert (ready.workflow.is_ready, ready.actions) == (True, (NotifyHandlers(Phase.READY, 1),))
    back = after(ready.workflow, ClockChanged(seconds(3600)), at=25 - 3600)
    assert Approve() in back.actions


def test_pausing_prepare_call_fails_when_the_event_starts() -> None:
    workflow = start(event(), (HandlerStep(handler="a", retries=9),), context()).workflow
    busy = CallEnded("a", HandlerCall.PREPARE, 1, Retry("busy"))
    for input_ in (EventSeen(started(event())), EventRemoved(Ending.WITHDRAWN)):
        assert after(workflow, input_, busy).workflow.steps[0].prepare.state is CallState.FAILED


def test_peers_are_asked_again_about_a_changed_event() -> None:
    both = event(resources=("web_0", "web_1"))
    first = start(both, (), context(peers=PEERS))
    assert CheckPeers(("web_1",)) in first.actions
    refused = after(first.workflow, PeersChecked((PeerState(name="web_1", is_ready=False),)), peers=PEERS)
    assert refused.actions == ()
    changed = msgspec.structs.replace(both, description="another one")
    assert after(refused.workflow, EventSeen(changed), at=1, peers=PEERS).actions == (CheckPeers(("web_1",)),)


def test_reboot_repeats_prepare_but_not_approval() -> None:
    workflow = start(event(), (HandlerStep(handler="a"),), context(boot="first")).workflow
    approved = after(workflow, CallEnded("a", HandlerCall.PREPARE, 1, Done()), boot="first")
    approved = after(approved.workflow, Approved(), boot="first")
    again = advance(resume(approved.workflow, now=NOON).workflow, context(boot="second"))
    assert (handler_calls(again), again.workflow.is_ready) == ([("a", "prepare", 2)], False)
    ready = after(again.workflow, CallEnded("a", HandlerCall.PREPARE, 2, Done()), boot="second")
    assert ready.actions == (NotifyHandlers(Phase.READY, 1),)
    assert (ready.workflow.is_ready, ready.workflow.approval.state) == (True, ApprovalState.GIVEN)


def test_failed_recovery_restarts_with_all_retries() -> None:
    workflow = start(event(), (HandlerStep(handler="a", retries=1),), context()).workflow
    workflow = after(workflow, CallEnded("a", HandlerCall.PREPARE, 1, Done()), EventRemoved(Ending.FINISHED)).workflow
    states = []
    for attempt, at in enumerate((0, 10, 300), start=1):
        workflow = after(workflow, CallEnded("a", HandlerCall.RECOVER, attempt, Retry("busy")), at=at).workflow
        states.append(workflow.steps[0].recover.state)
        workflow = advance(workflow, context(at + 250)).workflow
    assert states == [CallState.PAUSING, CallState.FAILED, CallState.PAUSING]


def test_recovering_vm_is_not_ready() -> None:
    ready = start(event(), (HandlerStep(handler="a"),), context()).workflow
    ready = after(ready, CallEnded("a", HandlerCall.PREPARE, 1, Done())).workflow
    assert (ready.is_ready, after(ready, EventRemoved(Ending.WITHDRAWN)).workflow.is_ready) == (True, False)


def test_recovery_runs_in_reverse_order_without_handlers_that_never_started() -> None:
    workflow = start(event(), TWO, context()).workflow
    gone = after(workflow, EventRemoved(Ending.WITHDRAWN))
    assert gone.actions == (
        NotifyHandlers(Phase.RECOVER, 1),
        CancelCall("high", HandlerCall.PREPARE, 1, "the event is withdrawn"),
        CancelCall("high2", HandlerCall.PREPARE, 1, "the event is withdrawn"),
    )
    ended = [CallEnded(name, HandlerCall.PREPARE, 1, Retry("cut")) for name in ("high", "high2")]
    recovering = after(gone.workflow, *ended)
    assert handler_calls(recovering) == [("high2", "recover", 1), ("high", "recover", 1)]
    over = after(recovering.workflow, *(CallEnded(name, HandlerCall.RECOVER, 1, Done()) for name in ("high", "high2")))
    assert over.actions == (Finish(),)


def test_handlers_of_other_workflows_are_needed_or_busy() -> None:
    one = start(event(), (HandlerStep(handler="a"), HandlerStep(handler="b", importance=-1)), context()).workflow
    assert handlers_in_use(OTHER_ID, [one]) == (frozenset({"a"}), frozenset({"a"}))
    assert handlers_in_use(ID, [one]) == (frozenset(), frozenset())
    done = after(one, CallEnded("a", HandlerCall.PREPARE, 1, Done())).workflow
    assert handlers_in_use(OTHER_ID, [done]) == (frozenset({"a", "b"}), frozenset({"b"}))
    assert handlers_in_use(OTHER_ID, [after(done, EventRemoved(Ending.FINISHED)).workflow]) == (
        frozenset(),
        frozenset({"b"}),
    )


def test_busy_handler_is_waited_for_until_there_is_no_time() -> None:
    first = start(event(at=NOON + seconds(30)), (HandlerStep(handler="a"),), context(busy=frozenset({"a"})))
    assert handler_calls(first) == []
    assert first.wake_at == NOON + seconds(29)
    assert handler_calls(advance(first.workflow, context(10))) == [("a", "prepare", 1)]
    late = advance(first.workflow, context(29, busy=frozenset({"a"})))
    assert late.workflow.steps[0].prepare.state is CallState.SKIPPED


@pytest.mark.parametrize(
    ("workflow_event", "approval", "at", "how"),
    [
        (event(), ApprovalState.NOT_YET, 0, Ending.WITHDRAWN),
        (event(), ApprovalState.FAILED, 0, Ending.WITHDRAWN),
        (event(), ApprovalState.GIVEN, 0, Ending.FINISHED),
        (event(), ApprovalState.NOT_YET, 900, Ending.FINISHED),
        (started(event()), ApprovalState.NOT_YET, 0, Ending.FINISHED),
    ],
    ids=["too early", "approval failed", "approved", "due", "started"],
)
def test_ending_of_an_unobserved_event_is_inferred(
    workflow_event: Event, approval: ApprovalState, at: float, how: Ending
) -> None:
    workflow = start(workflow_event, (), context()).workflow
    workflow = msgspec.structs.replace(workflow, approval=msgspec.structs.replace(workflow.approval, state=approval))
    assert infer_ending(workflow, now=NOON + seconds(at)) is how


def test_restart_during_the_impact_prepares_nothing() -> None:
    workflow = after(start(event(), TWO, context()).workflow, EventSeen(started(event()))).workflow
    again = resume(workflow, now=NOON)
    assert again.actions == (NotifyHandlers(Phase.IMPACT, 2),)
    assert advance(again.workflow, context()).actions == ()
    assert [step.prepare.state for step in again.workflow.steps] == [
        CallState.FAILED,
        CallState.FAILED,
        CallState.SKIPPED,
    ]


HANDLERS = (
    HandlerStep(handler="drain", importance=9, retries=1, pause=seconds(3)),
    HandlerStep(handler="stop", importance=5, time_limit=seconds(10)),
    HandlerStep(handler="log", importance=5, ready_despite_failure=True),
    HandlerStep(handler="tidy", time_limit=seconds(100)),
)
IDS = (ID, OTHER_ID)
PEERS = frozenset({"web_1"})
ENDS = st.sampled_from([Done(), Done(), Retry("busy"), Failed("broken")])


class WorkflowStateMachine(RuleBasedStateMachine):
    """Model of an agent: a disk, a service with a changing document, handlers, peers, time and crashes."""

    @initialize(by=st.sampled_from(ApprovalMode))
    def begin(self, by: ApprovalMode) -> None:
        self.policy = ApprovalPolicy(settings=ApprovalSettings(policy=by, deputy_after=seconds(20)))
        self.now = NOON
        self.boot = ""
        self.document: dict[str, Event] = {}
        self.workflows: dict[str, EventWorkflow] = {}
        self.disk: dict[str, bytes] = {}
        self.running: dict[tuple[str, str, HandlerCall], int] = {}
        self.prepared: set[tuple[str, str]] = set()
        self.attempts: Counter[tuple[str, str, HandlerCall]] = Counter()
        self.posts: Counter[str] = Counter()
        self.may_post: Counter[str] = Counter()
        self.posting: set[str] = set()
        self.asking: set[str] = set()

    @rule(
        id_=st.sampled_from(IDS),
        notice=st.sampled_from([5, 30, 900, None]),
        names=st.sampled_from([("web_0",), ("web_0", "web_1"), ("web_1", "web_0"), ("web_2", "web_1", "web_0")]),
    )
    def announce(self, id_: str, notice: int | None, names: tuple[str, ...]) -> None:
        at = None if notice is None else self.now + seconds(notice)
        self.document[id_] = event(id_, at=at, resources=names)
        self.poll()

    @precondition(lambda self: self.document)
    @rule(data=st.data())
    def event_starts(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.document)))
        self.document[id_] = started(self.document[id_])
        self.poll()

    @precondition(lambda self: self.document)
    @rule(data=st.data())
    def event_ends(self, data: st.DataObject) -> None:
        del self.document[data.draw(st.sampled_from(sorted(self.document)))]
        self.poll()

    @rule(time=st.sampled_from([0.5, 3, 10, 31, 700]))
    def time_passes(self, time: float) -> None:
        end = self.now + seconds(time)
        while (
            wake := min((at for workflow in self.workflows.values() if (at := self.wake_at(workflow))), default=end)
        ) < end:
            assert wake > self.now, "wake_at is not in the future"
            self.now = wake
            self.settle()
        self.now = end
        self.settle()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), ends=st.lists(ENDS, min_size=1, max_size=5))
    def calls_end(self, data: st.DataObject, ends: list[Done | Retry | Failed]) -> None:
        for ended in ends:
            if self.running:
                self.end(data.draw(st.sampled_from(sorted(self.running))), ended)

    @precondition(lambda self: self.posting)
    @rule(data=st.data(), is_taken=st.booleans())
    def approval_ends(self, data: st.DataObject, is_taken: bool) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.posting)))
        self.posting.discard(id_)
        if not is_taken:
            self.may_post[id_] += 1
        self.on_input(id_, Approved() if is_taken else ApprovalFailed("refused"))

    @precondition(lambda self: self.asking)
    @rule(data=st.data(), is_ready=st.booleans())
    def peers_answer(self, data: st.DataObject, is_ready: bool) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.asking)))
        self.asking.discard(id_)
        self.on_input(id_, PeersChecked((PeerState(name="web_1", is_ready=is_ready, reason="so"),)))

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """Lose everything except the disk; while no agent runs, the document may change."""
        for id_ in sorted(self.document):
            if data.draw(st.booleans()):
                del self.document[id_]
        for id_ in self.posting:
            self.may_post[id_] += 1
        self.running, self.posting, self.asking = {}, set(), set()
        self.workflows = {}
        self.boot = data.draw(st.sampled_from(["", "first", "second"]))
        for text in tuple(self.disk.values()):
            self.apply(resume(decode_workflow(text), now=self.now))
        shown = {id_ for id_, each in self.document.items() if each.affects("web_0")}
        for id_, workflow in self.workflows.items():
            if workflow.ending is None and id_ not in shown:
                self.workflows[id_] = apply_input(
                    workflow, EventRemoved(infer_ending(workflow, now=self.now)), now=self.now
                )
        self.poll()
        self.settle()

    def poll(self) -> None:
        for id_, shown in self.document.items():
            workflow = self.workflows.get(id_)
            if workflow is None:
                self.posts[id_] = self.may_post[id_] = 0
                self.apply(start(shown, HANDLERS, self.workflow_context(id_)))
                self.settle()
            else:
                self.on_input(id_, EventSeen(shown))
        for id_ in set(self.workflows) - set(self.document):
            workflow = self.workflows.get(id_)
            if workflow is not None and (workflow.ending is None or workflow.reannounced is not None):
                self.on_input(id_, EventRemoved(Ending.FINISHED))

    def on_input(self, id_: str, input_: object) -> None:
        if id_ in self.workflows:
            self.workflows[id_] = apply_input(self.workflows[id_], input_, now=self.now)  # type: ignore[arg-type]  # an input
            self.settle()

    def settle(self) -> None:
        for _ in range(100):
            before = dict(self.workflows)
            for id_ in sorted(before):
                self.apply(advance(self.workflows[id_], self.workflow_context(id_)))
            if self.workflows == before:
                return
        raise AssertionError("the workflows never settle")

    def workflow_context(self, id_: str) -> WorkflowContext:
        held, busy = handlers_in_use(id_, self.workflows.values())
        return WorkflowContext(
            now=self.now, vm_name="web_0", policy=self.policy, peers=PEERS, still_needed=held, busy=busy, boot=self.boot
        )

    def wake_at(self, workflow: EventWorkflow) -> datetime | None:
        return advance(workflow, self.workflow_context(workflow.id)).wake_at

    def apply(self, following: WorkflowChange) -> None:
        workflow = following.workflow
        before = self.workflows.get(workflow.id)
        if before is not None and before.ending is not None and workflow.ending is None:  # announced again
            self.posts[workflow.id] = self.may_post[workflow.id] = 0
        self.workflows[workflow.id] = workflow
        self.disk[workflow.id] = encode_workflow(workflow)
        for do in following.actions:
            self.do(workflow, do)

    def do(self, workflow: EventWorkflow, do: Action) -> None:
        match do:
            case StartCall(handler, call, attempt, until):
                key = (workflow.id, handler, call)
                assert not [other for other in self.running if other[1] == handler], "a handler runs two calls at once"
                assert attempt > self.attempts[key], "an attempt is repeated"
                assert until > self.now
                self.attempts[key] = attempt
                self.running[key] = attempt
                if call is HandlerCall.PREPARE:
                    self.prepared.add((workflow.id, handler))
                else:
                    others = [
                        other for other in self.workflows.values() if other.id != workflow.id and other.ending is None
                    ]
                    assert not any((other.id, handler) in self.prepared for other in others), "another event needs it"
            case CancelCall(handler, call, attempt):
                assert self.running[workflow.id, handler, call] == attempt
            case Approve():
                assert workflow.is_ready
                assert workflow.event.status == "Scheduled"
                assert self.policy.settings.policy is not ApprovalMode.NEVER
                assert workflow.event.deadline is None or self.now < workflow.event.deadline
                self.posts[workflow.id] += 1
                self.posting.add(workflow.id)
                self.check_peers(workflow)
            case CheckPeers(names):
                assert names == tuple(name for name in workflow.event.resources if name != "web_0")
                self.asking.add(workflow.id)
            case Finish():
                del self.workflows[workflow.id], self.disk[workflow.id]
                left = {pair for pair in self.prepared if pair[0] == workflow.id}
                assert not left, f"{left} stays prepared"
                for key in [key for key in self.attempts if key[0] == workflow.id]:
                    del self.attempts[key]
            case NotifyHandlers():
                pass

    def check_peers(self, workflow: EventWorkflow) -> None:
        if self.policy.settings.policy is ApprovalMode.LEADER and len(workflow.event.resources) > 1:
            assert workflow.event.resources != ("web_2", "web_1", "web_0"), "neither leader nor deputy"
            assert all(word.is_ready for word in workflow.peers)
            assert workflow.peers

    def end(self, key: tuple[str, str, HandlerCall], ended: Done | Retry | Failed) -> None:
        attempt = self.running.pop(key)
        id_, handler, call = key
        if call is HandlerCall.RECOVER and isinstance(ended, Done):
            self.prepared.discard((id_, handler))
        self.on_input(id_, CallEnded(handler, call, attempt, ended))

    @invariant()
    def approvals_are_not_repeated(self) -> None:
        for id_ in self.workflows:
            assert self.posts[id_] <= 1 + self.may_post[id_]

    @invariant()
    def everything_prepared_is_known(self) -> None:
        for id_, handler in self.prepared:
            step = self.workflows[id_].step(handler)
            assert step is not None
            assert step.needs_recovery

    @invariant()
    def running_state_matches_running_calls(self) -> None:
        begun = {
            (workflow.id, step.handler, call): step.progress(call).attempt
            for workflow in self.workflows.values()
            for step in workflow.steps
            for call in HandlerCall
            if step.progress(call).state is CallState.RUNNING
        }
        assert begun == self.running

    @invariant()
    def disk_matches_memory(self) -> None:
        assert {id_: encode_workflow(workflow) for id_, workflow in self.workflows.items()} == self.disk

    def teardown(self) -> None:
        """After all events have ended and every handler has succeeded, nothing stays prepared."""
        if not hasattr(self, "document"):
            return
        self.document = {}
        self.poll()
        failed = set()
        for _ in range(200):
            if not self.workflows:
                break
            if self.running:
                key = min(self.running)
                self.end(key, Done() if key in failed else Failed("not yet"))
                failed.add(key)
            else:
                self.time_passes(700)
        assert not self.workflows
        assert not self.prepared


WorkflowStateMachine.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40)
TestWorkflowStateMachine = WorkflowStateMachine.TestCase


def test_clock_set_back_delays_nothing() -> None:
    workflow = start(event(), (HandlerStep(handler="drain"),), context()).workflow
    workflow = after(
        workflow, CallEnded("drain", HandlerCall.PREPARE, 1, Done()), EventRemoved(Ending.WITHDRAWN)
    ).workflow
    failed = after(workflow, CallEnded("drain", HandlerCall.RECOVER, 1, Failed("not yet")), at=10)
    assert failed.wake_at == NOON + seconds(40)
    set_back = after(failed.workflow, ClockChanged(seconds(7200)), at=-7190)
    assert set_back.wake_at == NOON + seconds(-7160)
    assert handler_calls(after(set_back.workflow, at=-7160)) == [("drain", "recover", 2)]


def test_clock_set_back_does_not_shift_the_event() -> None:
    workflow = start(event(resources=("web_1", "web_0")), (), context()).workflow
    set_back = after(workflow, ClockChanged(seconds(60)), at=-60).workflow
    assert set_back.event == workflow.event
    assert set_back.ready_at == NOON + seconds(-60)


def test_postponed_event_is_prepared_again_after_a_failed_approval() -> None:
    soon = event(at=NOON + seconds(1.5))
    asked = start(soon, (HandlerStep(handler="drain"),), context())
    assert Approve() in asked.actions
    refused = after(asked.workflow, ApprovalFailed("503"), at=0.1).workflow
    later = after(refused, EventSeen(event()), at=0.2)
    assert handler_calls(later) == [("drain", "prepare", 1)]
    assert not later.workflow.is_ready
    again = after(later.workflow, CallEnded("drain", HandlerCall.PREPARE, 1, Done()), at=9)
    assert Approve() in again.actions


def test_recovery_backoff_doubles_up_to_ten_minutes() -> None:
    workflow = start(event(), (HandlerStep(handler="a"),), context()).workflow
    workflow = after(workflow, CallEnded("a", HandlerCall.PREPARE, 1, Done()), EventRemoved(Ending.FINISHED)).workflow
    pauses, now = [], NOON
    for attempt in range(1, 8):
        failed = advance(
            apply_input(workflow, CallEnded("a", HandlerCall.RECOVER, attempt, Failed("no")), now=now),
            WorkflowContext(now=now, vm_name="web_0"),
        )
        assert failed.wake_at is not None
        pauses.append(failed.wake_at - now)
        now = failed.wake_at
        workflow = advance(failed.workflow, WorkflowContext(now=now, vm_name="web_0")).workflow
    assert pauses == [seconds(number) for number in (30, 60, 120, 240, 480)] + [timedelta(minutes=10)] * 2
