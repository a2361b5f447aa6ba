"""The index of a campaign: updated change by change, it equals one that is built from record and scopes."""

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from forewarn.core import impact_lifecycle, operations
from forewarn.core.approval import approve
from forewarn.core.campaign.actions import (
    Action,
    AnnounceWave,
    CheckGate,
    ClearWave,
    CloseScope,
    Finding,
    GateClosed,
    GateOpened,
    ReadOutcome,
    RetryEvent,
    ScopeClosed,
    WaveEnded,
    WithdrawEvent,
)
from forewarn.core.campaign.commands import abort, pause, resume, retry, skip
from forewarn.core.campaign.index import CampaignIndex, WaveQueue, observe
from forewarn.core.campaign.rollout import decide
from forewarn.core.campaign.scope_rules import clear_wave, retry_event, withdraw_event
from forewarn.core.campaign.spec import Limit
from forewarn.core.change import Change
from forewarn.core.errors import CoreError
from forewarn.core.event import State
from forewarn.core.impact import Done, Failed
from forewarn.core.lifecycle import tick
from forewarn.core.scope import Scope
from tests.core.campaign.rollout_driver import CONDITIONS, MINUTE, RolloutDriver, campaign_over, web, zones
from tests.core.sample_scopes import TEN

R = TypeVar("R")

NAMES = ("a", "b", "c")
POLICIES: tuple[dict[str, object], ...] = (
    {},
    {"scopes_at_once": Limit(1), "gate": "health"},
    {"vms_at_once": Limit(2), "gap": timedelta(0), "halt_after": None},
    {"advance": False, "expected": timedelta(minutes=2)},
)
STEPS = (
    "decide", "decide", "report", "report", "advance", "advance", "approve", "work", "work", "fail",
    "hold", "release", "remove", "pause", "resume", "retry", "skip", "abort",
)  # fmt: skip


class DisturbedDriver(RolloutDriver):
    """Runs a campaign while other things happen, and observes only the scopes that have changed."""

    def __init__(self, **policy: object) -> None:
        scopes = [web(name) for name in NAMES]
        super().__init__(*scopes, record=campaign_over(*scopes, **policy))
        self.unreported: list[Action] = []

    def run(self, step: str, number: int) -> None:
        """Do one step in one of the scopes."""
        name = NAMES[number % len(NAMES)]
        try:
            match step:
                case "decide":
                    self.decide_both_ways()
                case "report" if self.unreported:
                    self.execute(self.unreported.pop(number % len(self.unreported)), is_good=number > 0)
                case "advance":
                    self.now += timedelta(minutes=(1, 4, 15, 40)[number])
                    for id_ in list(self.scopes):
                        self.change(id_, lambda scope: tick(scope, CONDITIONS, now=self.now))
                case "pause" | "resume" | "abort":
                    command = {"pause": pause, "resume": resume, "abort": abort}[step]
                    self.take(command(self.record, by="bob", now=self.now))
                case "skip":
                    self.take(skip(self.record, name, by="bob", why="x", now=self.now))
                case "retry":
                    self.take(retry(self.record, name, self.scopes.get(name), by="bob", now=self.now))
                case "remove" if number == 0:
                    self.scopes.pop(name, None)
                    observe(self.index, name, None)
                case _:
                    self.change(name, self.happening(step))
        except CoreError:
            pass

    def happening(self, step: str) -> Callable[[Scope], Change[None]]:
        """Return the change of a scope for a step."""

        def rule(scope: Scope) -> Change[None]:
            now, nothing = self.now, Change(scope, (), None)
            match step:
                case "approve" if scope.events:
                    event = scope.events[0]
                    done = approve(scope, event.vms[0], [event.id], CONDITIONS, now=now)
                    return Change(done.scope, done.entries, None)
                case "work" | "fail" if scope.events and scope.events[0].state is State.STARTED:
                    event = scope.events[0]
                    begun = impact_lifecycle.begin(scope, event.id, event.vms[0], now=now).scope or scope
                    outcome = Done() if step == "work" else Failed("no power")
                    settled = impact_lifecycle.settle(begun, event.id, event.vms[0], outcome, CONDITIONS, now=now)
                    return Change(settled.scope, settled.entries, None)
                case "hold":
                    return operations.hold(scope, by="bob", reason="audit", now=now)
                case "release":
                    return operations.release(scope, CONDITIONS, by="bob", now=now)
                case _:
                    return nothing

        return rule

    def change(self, name: str, rule: Callable[[Scope], Change[R]]) -> None:
        """Change a scope, and observe it."""
        scope = self.scopes.get(name)
        changed = None if scope is None else rule(scope).scope
        if changed is not None:
            self.scopes[name] = changed
            self.load.update(name, changed)
            observe(self.index, name, changed)

    def execute(self, action: Action, *, is_good: bool) -> None:
        """Execute an action, and report its result."""
        finding: Finding | None = None
        match action:
            case AnnounceWave():
                if action.scope in self.scopes and self.record.state.value == "Running":
                    self.announce(action)
                    observe(self.index, action.scope, self.scopes[action.scope])
                    return
            case ClearWave(scope):
                self.change(
                    scope,
                    lambda value: clear_wave(value, action, self.record, self.index, CONDITIONS, now=self.now),
                )
            case WithdrawEvent(scope):
                self.change(scope, lambda value: withdraw_event(value, action, CONDITIONS, now=self.now))
            case RetryEvent(scope):
                self.change(scope, lambda value: retry_event(value, action, now=self.now))
            case ReadOutcome(scope, n):
                request = self.record.request(scope, n)
                ended = self.scopes[scope].ended if scope in self.scopes else ()
                finding = WaveEnded(scope, n, tuple(item.outcome for item in ended if item.request == request))
            case CloseScope(scope):
                finding = ScopeClosed(scope)
            case CheckGate(scope, n):
                finding = GateOpened(scope, n, self.now) if is_good else GateClosed(scope, n, "sick")
        self.report(action, finding)

    def decide_both_ways(self) -> None:
        """Decide with the updated index and with a newly built one: both are equal and decide the same."""
        if self.record.state.is_over:
            return
        for id_ in list(self.index.stale):
            observe(self.index, id_, self.scopes.get(id_))
        built = CampaignIndex(self.record, CONDITIONS, zones, pending=copy.deepcopy(self.index.pending))
        for progress in self.record.scopes:
            observe(built, progress.scope, self.scopes.get(progress.scope))
        assert derived(self.index) == derived(built)
        expected = decide(self.record, built, self.load, now=self.now)
        self.take(decide(self.record, self.index, self.load, now=self.now))
        assert self.decision == expected
        self.unreported += self.decision.actions


def derived(index: CampaignIndex) -> dict[str, object]:
    """Return what an index has derived from record and scopes, for comparison."""
    kept = ("record", "scopes", "statuses", "in_flight", "open", "held", "unclosed", "advanced", "stale")
    queues = {"ready": (index.ready, index.at_gate), "to_announce": (index.to_announce,)}
    return {name: getattr(index, name) for name in kept} | {
        name: {id_ for queue in parts for _, id_ in queue.queued + queue.deferred} for name, parts in queues.items()
    }


@given(
    st.sampled_from(POLICIES),
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3)), max_size=60),
)
def test_updated_index_equals_a_newly_built_one(policy: dict[str, object], steps: list[tuple[str, int]]) -> None:
    driver = DisturbedDriver(**policy)
    driver.decide_both_ways()
    for step, number in steps:
        driver.run(step, number)
        driver.decide_both_ways()


def test_queue_keeps_the_order_of_turns_and_of_times() -> None:
    queue, names = WaveQueue(), [f"s{n}" for n in range(20)]
    for n, name in enumerate(names):
        queue.put(name, (20 - n, n))
        queue.put(name, (20 - n, n), TEN + (n % 3) * MINUTE if n % 2 else None)
    assert queue.queued == [((20 - n, n), f"s{n}") for n in range(18, -1, -2)]
    assert queue.deferred == [((20 - n, n), f"s{n}") for third in range(3) for n in range(19, 0, -2) if n % 3 == third]
    assert queue.first == ((2, 18), "s18")
    queue.remove("s18")
    queue.remove("s18")
    assert (queue.first, queue.wakes_at) == (((4, 16), "s16"), TEN)
    assert queue.pop_due(TEN, 2) == [((5, 15), "s15"), ((11, 9), "s9")]
    assert queue.pop_due(TEN, 2) == [((17, 3), "s3")]
    assert (queue.is_due(TEN), queue.is_due(TEN + MINUTE)) == (False, True)
    for name in names:
        queue.remove(name)
    assert (queue.queued, queue.deferred, queue.wakes_at, bool(queue)) == ([], [], None, False)
