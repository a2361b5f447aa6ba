"""The rules of a walk: tables of single moves, and any order of anything that can happen."""

from collections import Counter
from datetime import datetime, timedelta

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forewarn.agent.approving import Policy
from forewarn.agent.handlers.port import Again, Done, Failed
from forewarn.agent.journal import walk_in, write_page
from forewarn.agent.phases import Half, Phase
from forewarn.agent.settings import By
from forewarn.agent.taking import ending_of, take
from forewarn.agent.walk import (
    ApprovalFailed,
    Approve,
    Approved,
    Asked,
    AskPeers,
    CutShort,
    Do,
    Finish,
    HalfEnded,
    Next,
    PeersSaid,
    PeerWord,
    RunHalf,
    Seen,
    SetBack,
    State,
    Step,
    Tell,
    Walk,
    Went,
)
from forewarn.agent.walking import World, advance, around, resume, start
from forewarn.client import Ending, Event
from tests.agent.stage import ID, NOON, OTHER_ID, event, seconds, started


def world(at: float = 0, **more: object) -> World:
    return World(now=NOON + seconds(at), me="web_0", **more)  # type: ignore[arg-type]  # a test's own words


def after(walk: Walk, *happenings: object, at: float = 0, **more: object) -> Next:
    """Write everything down, and go on."""
    for happening in happenings:
        walk = take(walk, happening, now=NOON + seconds(at))  # type: ignore[arg-type]  # a test's own words
    return advance(walk, world(at, **more))


def halves(following: Next) -> list[tuple[str, str, int]]:
    return [(do.handler, do.half.value, do.attempt) for do in following.todo if isinstance(do, RunHalf)]


TWO = (Step(handler="low"), Step(handler="high", importance=9), Step(handler="high2", importance=9))


def test_the_most_important_begin_and_equals_begin_together() -> None:
    first = start(event(), TWO, world())
    assert first.todo == (
        Tell(Phase.NOTICE, 1),
        Tell(Phase.PREPARE, 1),
        RunHalf("high", Half.PREPARE, 1, NOON + seconds(30)),
        RunHalf("high2", Half.PREPARE, 1, NOON + seconds(30)),
    )
    assert first.wake_at == NOON + seconds(30)
    second = after(first.walk, HalfEnded("high", Half.PREPARE, 1, Done()))
    assert second.todo == ()
    third = after(second.walk, HalfEnded("high2", Half.PREPARE, 1, Done()), at=3)
    assert third.todo == (RunHalf("low", Half.PREPARE, 1, NOON + seconds(33)),)
    ready = after(third.walk, HalfEnded("low", Half.PREPARE, 1, Done()), at=5)
    assert ready.todo == (Tell(Phase.READY, 1), Tell(Phase.APPROVE, 1), Approve())
    assert ready.walk.ready_at == NOON + seconds(5)


def test_a_handler_that_is_chosen_twice_has_one_step() -> None:
    walk = start(event(), (Step(handler="a"), Step(handler="b"), Step(handler="a")), world()).walk
    assert [step.handler for step in walk.steps] == ["a", "b"]


def test_an_event_without_handlers_is_ready_at_once() -> None:
    assert start(event(), (), world()).todo == (
        Tell(Phase.NOTICE, 1),
        Tell(Phase.PREPARE, 1),
        Tell(Phase.READY, 1),
        Tell(Phase.APPROVE, 1),
        Approve(),
    )


def test_an_event_that_appears_started_is_only_told() -> None:
    first = start(started(event()), TWO, world())
    assert first.todo == (Tell(Phase.NOTICE, 1), Tell(Phase.IMPACT, 1))
    assert {step.prepare.state for step in first.walk.steps} == {State.SKIPPED}
    gone = after(first.walk, Went(Ending.FINISHED))
    assert gone.todo == (Tell(Phase.RECOVER, 1), Finish())


def test_what_runs_when_the_event_starts_runs_to_the_end_of_its_slice() -> None:
    first = start(event(), TWO, world())
    impact = after(first.walk, Seen(started(event())), at=10)
    assert impact.todo == (Tell(Phase.IMPACT, 1),)
    assert [step.prepare.state for step in impact.walk.steps] == [State.BEGUN, State.BEGUN, State.SKIPPED]
    late = advance(impact.walk, world(30))
    assert [type(do) for do in late.todo] == [CutShort, CutShort]
    assert not after(late.walk, HalfEnded("high", Half.PREPARE, 1, Again("busy")), at=30).walk.steps[0].prepare.until


def test_again_is_tried_after_a_pause_and_failed_is_not() -> None:
    steps = (Step(handler="a", retries=1, pause=seconds(5)), Step(handler="b", retries=1))
    first = start(event(), steps, world()).walk
    second = after(first, HalfEnded("a", Half.PREPARE, 1, Again("busy")), HalfEnded("b", Half.PREPARE, 1, Failed("no")))
    assert (second.todo, second.wake_at) == ((), NOON + seconds(5))
    third = advance(second.walk, world(5))
    assert halves(third) == [("a", "prepare", 2)]
    last = after(third.walk, HalfEnded("a", Half.PREPARE, 2, Again("busy")), at=6)
    assert [step.prepare.state for step in last.walk.steps] == [State.FAILED, State.FAILED]
    assert last.walk.approval.why == "this VM is not ready: a failed: busy; b failed: no"
    assert not last.walk.is_ready


def test_failure_that_does_not_matter_does_not_hold_back() -> None:
    first = start(event(), (Step(handler="a", ready_despite_failure=True),), world()).walk
    assert Approve() in after(first, HalfEnded("a", Half.PREPARE, 1, Failed("no"))).todo


def test_what_is_late_or_not_ours_changes_nothing() -> None:
    walk = start(event(), TWO, world()).walk
    strange = (
        HalfEnded("high", Half.PREPARE, 7, Done()),
        HalfEnded("high", Half.RECOVER, 0, Done()),
        HalfEnded("nobody", Half.PREPARE, 1, Done()),
        PeersSaid((PeerWord(name="web_1", is_ready=True),)),
        Approved(),
        ApprovalFailed("late"),
        Seen(event()),
    )
    for happening in strange:
        assert take(walk, happening, now=NOON) == walk


def test_time_that_is_taken_away_cuts_what_runs_and_time_that_is_given_brings_back_what_was_skipped() -> None:
    walk = start(event(), TWO, world()).walk
    sooner = event(at=NOON + seconds(11))
    hurried = after(walk, Seen(sooner), at=5)
    assert [step.prepare.until for step in hurried.walk.steps[:2]] == [NOON + seconds(10)] * 2
    ended = [HalfEnded(name, Half.PREPARE, 1, Done()) for name in ("high", "high2")]
    skipped = after(hurried.walk, *ended, at=10)
    assert skipped.walk.step("low") == Step(
        handler="low", prepare=msgspec.structs.replace(Step(handler="x").prepare, state=State.SKIPPED, why=NO_TIME)
    )
    postponed = after(msgspec.structs.replace(skipped.walk, phase=Phase.READY), Seen(event()), at=10)
    assert halves(postponed) == [("low", "prepare", 1)]
    assert not postponed.walk.is_ready


NO_TIME = "no time is left before the event"


def test_what_was_skipped_has_its_turn_when_nobody_knows_the_time_any_more() -> None:
    never = Policy(by=By.NEVER)
    late = start(event(at=NOON + seconds(1)), (Step(handler="a"),), world(policy=never)).walk
    assert late.steps[0].prepare.state is State.SKIPPED
    assert halves(after(late, Seen(event(at=None)), policy=never)) == [("a", "prepare", 1)]


def test_event_that_waits_beyond_its_time_is_prepared_for_but_not_approved() -> None:
    """Others may be served before it; or the clock of this machine is ahead."""
    late = start(event(at=NOON - seconds(60)), (Step(handler="a"),), world())
    assert late.walk.steps[0].prepare.until == NOON + seconds(30)
    changed = after(late.walk, Seen(event(at=NOON - seconds(60), description="another one")), at=20)
    assert (changed.walk.steps[0].prepare.until, changed.todo) == (NOON + seconds(30), ())
    ready = after(changed.walk, HalfEnded("a", Half.PREPARE, 1, Done()), at=25)
    assert (ready.walk.is_ready, ready.todo) == (True, (Tell(Phase.READY, 1),))
    back = after(ready.walk, SetBack(seconds(3600)), at=25 - 3600)
    assert Approve() in back.todo


def test_who_could_not_prepare_now_has_failed_once_there_is_nothing_to_prepare_for() -> None:
    walk = start(event(), (Step(handler="a", retries=9),), world()).walk
    busy = HalfEnded("a", Half.PREPARE, 1, Again("busy"))
    for happening in (Seen(started(event())), Went(Ending.WITHDRAWN)):
        assert after(walk, happening, busy).walk.steps[0].prepare.state is State.FAILED


def test_peers_are_asked_anew_about_an_event_that_changed() -> None:
    both = event(resources=("web_0", "web_1"))
    first = start(both, (), world(peers=PEERS))
    assert AskPeers(("web_1",)) in first.todo
    refused = after(first.walk, PeersSaid((PeerWord(name="web_1", is_ready=False),)), peers=PEERS)
    assert refused.todo == ()
    changed = msgspec.structs.replace(both, description="another one")
    assert after(refused.walk, Seen(changed), at=1, peers=PEERS).todo == (AskPeers(("web_1",)),)


def test_after_a_reboot_all_is_prepared_anew_but_not_approved_again() -> None:
    walk = start(event(), (Step(handler="a"),), world(boot="first")).walk
    approved = after(walk, HalfEnded("a", Half.PREPARE, 1, Done()), boot="first")
    approved = after(approved.walk, Approved(), boot="first")
    again = advance(resume(approved.walk, now=NOON).walk, world(boot="second"))
    assert (halves(again), again.walk.is_ready) == ([("a", "prepare", 2)], False)
    ready = after(again.walk, HalfEnded("a", Half.PREPARE, 2, Done()), boot="second")
    assert ready.todo == (Tell(Phase.READY, 1),)
    assert (ready.walk.is_ready, ready.walk.approval.asked) == (True, Asked.GIVEN)


def test_recovery_that_failed_begins_again_with_all_its_retries() -> None:
    walk = start(event(), (Step(handler="a", retries=1),), world()).walk
    walk = after(walk, HalfEnded("a", Half.PREPARE, 1, Done()), Went(Ending.FINISHED)).walk
    states = []
    for attempt, at in enumerate((0, 10, 300), start=1):
        walk = after(walk, HalfEnded("a", Half.RECOVER, attempt, Again("busy")), at=at).walk
        states.append(walk.steps[0].recover.state)
        walk = advance(walk, world(at + 250)).walk
    assert states == [State.PAUSING, State.FAILED, State.PAUSING]


def test_who_recovers_is_not_ready() -> None:
    ready = start(event(), (Step(handler="a"),), world()).walk
    ready = after(ready, HalfEnded("a", Half.PREPARE, 1, Done())).walk
    assert (ready.is_ready, after(ready, Went(Ending.WITHDRAWN)).walk.is_ready) == (True, False)


def test_recovery_goes_backwards_and_leaves_alone_what_never_began() -> None:
    walk = start(event(), TWO, world()).walk
    gone = after(walk, Went(Ending.WITHDRAWN))
    assert gone.todo == (
        Tell(Phase.RECOVER, 1),
        CutShort("high", Half.PREPARE, 1, "the event is withdrawn"),
        CutShort("high2", Half.PREPARE, 1, "the event is withdrawn"),
    )
    ended = [HalfEnded(name, Half.PREPARE, 1, Again("cut")) for name in ("high", "high2")]
    recovering = after(gone.walk, *ended)
    assert halves(recovering) == [("high2", "recover", 1), ("high", "recover", 1)]
    over = after(recovering.walk, *(HalfEnded(name, Half.RECOVER, 1, Done()) for name in ("high", "high2")))
    assert over.todo == (Finish(),)


def test_handlers_of_other_walks_are_held_or_busy() -> None:
    one = start(event(), (Step(handler="a"), Step(handler="b", importance=-1)), world()).walk
    assert around(OTHER_ID, [one]) == (frozenset({"a"}), frozenset({"a"}))
    assert around(ID, [one]) == (frozenset(), frozenset())
    done = after(one, HalfEnded("a", Half.PREPARE, 1, Done())).walk
    assert around(OTHER_ID, [done]) == (frozenset({"a", "b"}), frozenset({"b"}))
    assert around(OTHER_ID, [after(done, Went(Ending.FINISHED)).walk]) == (frozenset(), frozenset({"b"}))


def test_a_busy_handler_is_waited_for_until_there_is_no_time() -> None:
    first = start(event(at=NOON + seconds(30)), (Step(handler="a"),), world(busy=frozenset({"a"})))
    assert halves(first) == []
    assert first.wake_at == NOON + seconds(29)
    assert halves(advance(first.walk, world(10))) == [("a", "prepare", 1)]
    late = advance(first.walk, world(29, busy=frozenset({"a"})))
    assert late.walk.steps[0].prepare.state is State.SKIPPED


@pytest.mark.parametrize(
    ("walk_event", "approval", "at", "how"),
    [
        (event(), Asked.NOT_YET, 0, Ending.WITHDRAWN),
        (event(), Asked.FAILED, 0, Ending.WITHDRAWN),
        (event(), Asked.GIVEN, 0, Ending.FINISHED),
        (event(), Asked.NOT_YET, 900, Ending.FINISHED),
        (started(event()), Asked.NOT_YET, 0, Ending.FINISHED),
    ],
    ids=["too early", "approval failed", "approved", "due", "started"],
)
def test_how_an_event_went_that_nobody_saw_go(walk_event: Event, approval: Asked, at: float, how: Ending) -> None:
    walk = start(walk_event, (), world()).walk
    walk = msgspec.structs.replace(walk, approval=msgspec.structs.replace(walk.approval, asked=approval))
    assert ending_of(walk, now=NOON + seconds(at)) is how


def test_a_restart_in_the_impact_prepares_nothing_more() -> None:
    walk = after(start(event(), TWO, world()).walk, Seen(started(event()))).walk
    again = resume(walk, now=NOON)
    assert again.todo == (Tell(Phase.IMPACT, 2),)
    assert advance(again.walk, world()).todo == ()
    assert [step.prepare.state for step in again.walk.steps] == [State.FAILED, State.FAILED, State.SKIPPED]


HANDLERS = (
    Step(handler="drain", importance=9, retries=1, pause=seconds(3)),
    Step(handler="stop", importance=5, time_limit=seconds(10)),
    Step(handler="log", importance=5, ready_despite_failure=True),
    Step(handler="tidy", time_limit=seconds(100)),
)
IDS = (ID, OTHER_ID)
PEERS = frozenset({"web_1"})
ENDS = st.sampled_from([Done(), Done(), Again("busy"), Failed("broken")])


class AnyOrder(RuleBasedStateMachine):
    """An agent as its rules see it: a disk, a service that changes its mind, handlers, peers, time, and crashes."""

    @initialize(by=st.sampled_from(By))
    def begin(self, by: By) -> None:
        self.policy = Policy(by=by, deputy_after=seconds(20))
        self.now = NOON
        self.boot = ""
        self.document: dict[str, Event] = {}
        self.walks: dict[str, Walk] = {}
        self.disk: dict[str, bytes] = {}
        self.running: dict[tuple[str, str, Half], int] = {}
        self.prepared: set[tuple[str, str]] = set()
        self.attempts: Counter[tuple[str, str, Half]] = Counter()
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
        self.look()

    @precondition(lambda self: self.document)
    @rule(data=st.data())
    def begins(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.document)))
        self.document[id_] = started(self.document[id_])
        self.look()

    @precondition(lambda self: self.document)
    @rule(data=st.data())
    def goes(self, data: st.DataObject) -> None:
        del self.document[data.draw(st.sampled_from(sorted(self.document)))]
        self.look()

    @rule(time=st.sampled_from([0.5, 3, 10, 31, 700]))
    def time_passes(self, time: float) -> None:
        end = self.now + seconds(time)
        while (wake := min((at for walk in self.walks.values() if (at := self.wake_at(walk))), default=end)) < end:
            assert wake > self.now, "it wants to be woken for nothing"
            self.now = wake
            self.settle()
        self.now = end
        self.settle()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), ends=st.lists(ENDS, min_size=1, max_size=5))
    def halves_end(self, data: st.DataObject, ends: list[Done | Again | Failed]) -> None:
        for ended in ends:
            if self.running:
                self.end(data.draw(st.sampled_from(sorted(self.running))), ended)

    @precondition(lambda self: self.posting)
    @rule(data=st.data(), is_taken=st.booleans())
    def post_ends(self, data: st.DataObject, is_taken: bool) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.posting)))
        self.posting.discard(id_)
        if not is_taken:
            self.may_post[id_] += 1
        self.happened(id_, Approved() if is_taken else ApprovalFailed("refused"))

    @precondition(lambda self: self.asking)
    @rule(data=st.data(), is_ready=st.booleans())
    def peers_say(self, data: st.DataObject, is_ready: bool) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.asking)))
        self.asking.discard(id_)
        self.happened(id_, PeersSaid((PeerWord(name="web_1", is_ready=is_ready, why="so"),)))

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """Forget everything but the disk; while nobody is there, the document may have changed."""
        for id_ in sorted(self.document):
            if data.draw(st.booleans()):
                del self.document[id_]
        for id_ in self.posting:
            self.may_post[id_] += 1
        self.running, self.posting, self.asking = {}, set(), set()
        self.walks = {}
        self.boot = data.draw(st.sampled_from(["", "first", "second"]))
        for text in tuple(self.disk.values()):
            self.apply(resume(walk_in(text), now=self.now))
        shown = {id_ for id_, each in self.document.items() if each.affects("web_0")}
        for id_, walk in self.walks.items():
            if walk.gone is None and id_ not in shown:
                self.walks[id_] = take(walk, Went(ending_of(walk, now=self.now)), now=self.now)
        self.look()
        self.settle()

    def look(self) -> None:
        for id_, shown in self.document.items():
            walk = self.walks.get(id_)
            if walk is None:
                self.posts[id_] = self.may_post[id_] = 0
                self.apply(start(shown, HANDLERS, self.world(id_)))
                self.settle()
            else:
                self.happened(id_, Seen(shown))
        for id_ in set(self.walks) - set(self.document):
            walk = self.walks.get(id_)
            if walk is not None and (walk.gone is None or walk.comeback is not None):
                self.happened(id_, Went(Ending.FINISHED))

    def happened(self, id_: str, happening: object) -> None:
        if id_ in self.walks:
            self.walks[id_] = take(self.walks[id_], happening, now=self.now)  # type: ignore[arg-type]  # one of them
            self.settle()

    def settle(self) -> None:
        for _ in range(100):
            before = dict(self.walks)
            for id_ in sorted(before):
                self.apply(advance(self.walks[id_], self.world(id_)))
            if self.walks == before:
                return
        raise AssertionError("it never settles")

    def world(self, id_: str) -> World:
        held, busy = around(id_, self.walks.values())
        return World(now=self.now, me="web_0", policy=self.policy, peers=PEERS, held=held, busy=busy, boot=self.boot)

    def wake_at(self, walk: Walk) -> datetime | None:
        return advance(walk, self.world(walk.id)).wake_at

    def apply(self, following: Next) -> None:
        walk = following.walk
        before = self.walks.get(walk.id)
        if before is not None and before.noticed_at != walk.noticed_at:
            self.posts[walk.id] = self.may_post[walk.id] = 0
        self.walks[walk.id] = walk
        self.disk[walk.id] = write_page(walk)
        for do in following.todo:
            self.do(walk, do)

    def do(self, walk: Walk, do: Do) -> None:
        match do:
            case RunHalf(handler, half, attempt, until):
                key = (walk.id, handler, half)
                assert not [other for other in self.running if other[1] == handler], "a handler does two things at once"
                assert attempt > self.attempts[key], "an attempt is repeated"
                assert until > self.now
                self.attempts[key] = attempt
                self.running[key] = attempt
                if half is Half.PREPARE:
                    self.prepared.add((walk.id, handler))
                else:
                    others = [other for other in self.walks.values() if other.id != walk.id and other.gone is None]
                    assert not any((other.id, handler) in self.prepared for other in others), "another event needs it"
            case CutShort(handler, half, attempt):
                assert self.running[walk.id, handler, half] == attempt
            case Approve():
                assert walk.is_ready
                assert walk.event.status == "Scheduled"
                assert self.policy.by is not By.NEVER
                assert walk.event.deadline is None or self.now < walk.event.deadline
                self.posts[walk.id] += 1
                self.posting.add(walk.id)
                self.check_peers(walk)
            case AskPeers(names):
                assert names == tuple(name for name in walk.event.resources if name != "web_0")
                self.asking.add(walk.id)
            case Finish():
                del self.walks[walk.id], self.disk[walk.id]
                left = {pair for pair in self.prepared if pair[0] == walk.id}
                assert not left, f"{left} stays prepared"
                for key in [key for key in self.attempts if key[0] == walk.id]:
                    del self.attempts[key]
            case Tell():
                pass

    def check_peers(self, walk: Walk) -> None:
        if self.policy.by is By.LEADER and len(walk.event.resources) > 1:
            assert walk.event.resources != ("web_2", "web_1", "web_0"), "neither leader nor deputy"
            assert all(word.is_ready for word in walk.peers)
            assert walk.peers

    def end(self, key: tuple[str, str, Half], ended: Done | Again | Failed) -> None:
        attempt = self.running.pop(key)
        id_, handler, half = key
        if half is Half.RECOVER and isinstance(ended, Done):
            self.prepared.discard((id_, handler))
        self.happened(id_, HalfEnded(handler, half, attempt, ended))

    @invariant()
    def approvals_are_not_repeated(self) -> None:
        for id_ in self.walks:
            assert self.posts[id_] <= 1 + self.may_post[id_]

    @invariant()
    def everything_prepared_is_known(self) -> None:
        for id_, handler in self.prepared:
            step = self.walks[id_].step(handler)
            assert step is not None
            assert step.is_to_recover

    @invariant()
    def what_is_begun_is_running(self) -> None:
        begun = {
            (walk.id, step.handler, half): step.progress(half).attempt
            for walk in self.walks.values()
            for step in walk.steps
            for half in Half
            if step.progress(half).state is State.BEGUN
        }
        assert begun == self.running

    @invariant()
    def the_disk_is_what_is_known(self) -> None:
        assert {id_: write_page(walk) for id_, walk in self.walks.items()} == self.disk

    def teardown(self) -> None:
        """In the end, when everything is gone and every handler does its part, if late, nothing stays prepared."""
        if not hasattr(self, "document"):
            return
        self.document = {}
        self.look()
        failed = set()
        for _ in range(200):
            if not self.walks:
                break
            if self.running:
                key = min(self.running)
                self.end(key, Done() if key in failed else Failed("not yet"))
                failed.add(key)
            else:
                self.time_passes(700)
        assert not self.walks
        assert not self.prepared


AnyOrder.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestAnyOrder = AnyOrder.TestCase


def test_a_clock_that_is_set_back_delays_nothing() -> None:
    walk = start(event(), (Step(handler="drain"),), world()).walk
    walk = after(walk, HalfEnded("drain", Half.PREPARE, 1, Done()), Went(Ending.WITHDRAWN)).walk
    failed = after(walk, HalfEnded("drain", Half.RECOVER, 1, Failed("not yet")), at=10)
    assert failed.wake_at == NOON + seconds(40)
    set_back = after(failed.walk, SetBack(seconds(7200)), at=-7190)
    assert set_back.wake_at == NOON + seconds(-7160)
    assert halves(after(set_back.walk, at=-7160)) == [("drain", "recover", 2)]


def test_a_clock_that_is_set_back_leaves_the_time_of_the_event_alone() -> None:
    walk = start(event(resources=("web_1", "web_0")), (), world()).walk
    set_back = after(walk, SetBack(seconds(60)), at=-60).walk
    assert set_back.event == walk.event
    assert set_back.ready_at == NOON + seconds(-60)


def test_a_postponed_event_is_prepared_for_anew_if_its_approval_was_refused() -> None:
    soon = event(at=NOON + seconds(1.5))
    asked = start(soon, (Step(handler="drain"),), world())
    assert Approve() in asked.todo
    refused = after(asked.walk, ApprovalFailed("503"), at=0.1).walk
    later = after(refused, Seen(event()), at=0.2)
    assert halves(later) == [("drain", "prepare", 1)]
    assert not later.walk.is_ready
    again = after(later.walk, HalfEnded("drain", Half.PREPARE, 1, Done()), at=9)
    assert Approve() in again.todo


def test_pauses_between_recoveries_double_up_to_ten_minutes() -> None:
    walk = start(event(), (Step(handler="a"),), world()).walk
    walk = after(walk, HalfEnded("a", Half.PREPARE, 1, Done()), Went(Ending.FINISHED)).walk
    pauses, now = [], NOON
    for attempt in range(1, 8):
        failed = advance(
            take(walk, HalfEnded("a", Half.RECOVER, attempt, Failed("no")), now=now), World(now=now, me="web_0")
        )
        assert failed.wake_at is not None
        pauses.append(failed.wake_at - now)
        now = failed.wake_at
        walk = advance(failed.walk, World(now=now, me="web_0")).walk
    assert pauses == [seconds(number) for number in (30, 60, 120, 240, 480)] + [timedelta(minutes=10)] * 2
