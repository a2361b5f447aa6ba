"""A Hypothesis state machine over scopes: random commands, ticks, steps of the clock and changes of VMs.

Each drawn command runs if the rules allow it; `ScopeInvariants` then checks the journal and the record of the scope.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from forewarn.core import impact_lifecycle, inventory, operations
from forewarn.core.approval import approve
from forewarn.core.change import Change
from forewarn.core.enablement import mark_seen, needs_save
from forewarn.core.errors import CoreError
from forewarn.core.event import Cause, Event, EventType, Source, State
from forewarn.core.explain import explain
from forewarn.core.impact import STUCK, Done, Failed, ImpactOutcome, ImpactState, Retry, Unknown
from forewarn.core.lifecycle import tick, wake_at
from forewarn.core.limits import MAX_RECENT_AGE
from forewarn.core.policy import EMULATOR, PRODUCTION, AnnouncePolicy, Outage, Policy, RuleContext
from forewarn.core.schedule import ScheduleRequest, schedule
from forewarn.core.scope import ApprovalRule, Hold, Scope, ScopeKind
from forewarn.core.vm import Priority, Roster, Traits, Vm
from tests.core.builders import NOW, guid
from tests.core.scope_invariants import Documents, ScopeInvariants, latest, no_documents

T = TypeVar("T")

POLICIES = (
    EMULATOR,
    PRODUCTION,
    Policy(announce=AnnouncePolicy.ALWAYS, idle_after=timedelta(hours=1), user_operations=2),
    Policy(announce=AnnouncePolicy.WHEN_ENABLED, enforce_notice=False, speed=60.0, idle_after=timedelta(hours=2)),
)
HOSTS = st.sampled_from(["hv-0", None, "hv-1"])
PICK = st.integers(0, 11)
STEPS = st.one_of(
    st.timedeltas(timedelta(0), timedelta(hours=1)),
    st.timedeltas(timedelta(hours=-2), timedelta(days=2)),
    st.sampled_from([timedelta(0), timedelta(minutes=15), timedelta(hours=1), timedelta(days=1)]),
)
NOTICES = st.one_of(st.none(), st.timedeltas(timedelta(0), timedelta(hours=1)))
OUTCOMES: st.SearchStrategy[ImpactOutcome] = st.one_of(
    st.builds(Done, HOSTS),
    st.just(Failed("it broke")),
    st.builds(Retry, st.timedeltas(timedelta(0), timedelta(minutes=10))),
    st.just(Unknown()),
)
TRAITS = st.builds(
    Traits,
    priority=st.sampled_from([None, Priority.LOW, Priority.LOW, Priority.REGULAR]),
    terminate_notice=st.sampled_from([None, timedelta(minutes=5)]),
)
VMS = st.lists(st.tuples(st.sampled_from([0, 0, 1, 2]), HOSTS, TRAITS), min_size=2, max_size=6)
SCOPES = st.tuples(
    st.sampled_from([ScopeKind.AVAILABILITY_SET, ScopeKind.PLACEMENT_GROUP, ScopeKind.CLOUD_SERVICE]),
    st.sampled_from(ApprovalRule),
    st.sampled_from([(), (EventType.REBOOT,), (EventType.REBOOT, EventType.REDEPLOY)]),
    VMS,
)


class ScopeStateMachine(RuleBasedStateMachine):
    """Two or three scopes, a policy, a clock."""

    documents: Documents = staticmethod(no_documents)
    """Renders the documents of a scope; a subclass can set it, and the documents are checked too."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.conditions = RuleContext()
        self.scopes: dict[str, Scope] = {}
        self.scope_invariants: dict[str, ScopeInvariants] = {}
        self.seen_at: dict[str, datetime] = {}
        self.requests: list[str] = []
        self.known: dict[str, list[str]] = {}
        self.made: dict[str, set[str]] = {}
        self.count = 0
        self.is_sound = True

    @initialize(
        policy=st.sampled_from(POLICIES),
        scopes=st.lists(SCOPES, min_size=1, max_size=2),
        lone=st.tuples(TRAITS, HOSTS),
    )
    def begin(
        self,
        policy: Policy,
        scopes: list[tuple[ScopeKind, ApprovalRule, tuple[EventType, ...], list[tuple[int, str | None, Traits]]]],
        lone: tuple[Traits, str | None],
    ) -> None:
        self.conditions = RuleContext(policy=policy)
        self.make(ScopeKind.STANDALONE, ApprovalRule.ANY, (), [(0, lone[1], lone[0])])
        for kind, approval, auto_approve, vms in scopes:
            self.make(kind, approval, auto_approve, vms)

    def make(
        self,
        kind: ScopeKind,
        approval: ApprovalRule,
        auto_approve: tuple[EventType, ...],
        vms: list[tuple[int, str | None, Traits]],
    ) -> None:
        id_ = f"s{self.new_number()}"
        roster = Roster(tuple(self.vm(domain, host, traits) for domain, host, traits in vms))
        blank = Scope(
            id=id_,
            kind=kind,
            epoch=self.new_epoch(),
            changed_at=self.now,
            roster=roster,
            approval=approval,
            auto_approve=auto_approve,
        )
        change = inventory.create_scope(blank, by="test", now=self.now)
        assert change.scope is not None
        self.scopes[id_] = change.scope
        self.scope_invariants[id_] = ScopeInvariants(change.scope, self.documents)
        self.known[id_] = []
        self.made[id_] = set()

    def vm(self, domain: int, host: str | None, traits: Traits) -> Vm:
        number = self.new_number()
        name = f"v{number}"
        return Vm(
            name=name,
            vm_id=guid(name),
            role_instance=number % 2 == 0,
            update_domain=domain,
            host=host,
            traits=traits,
        )

    def new_number(self) -> int:
        self.count += 1
        return self.count

    def new_epoch(self) -> str:
        return f"e{self.new_number()}"

    def new_request(self) -> str:
        self.requests.append(str(UUID(int=self.new_number())).upper())
        return self.requests[-1]

    def apply(self, id_: str, command: Callable[[Scope], Change[Any]]) -> bool:
        """Apply a command, and check the saved change. A refusal must change nothing."""
        try:
            change = command(self.scopes[id_])
        except CoreError:
            return False
        self.is_sound = False
        self.scope_invariants[id_].check_change(change, self.conditions)
        self.is_sound = True
        self.known[id_] += [entry.event for entry in change.entries if entry.event is not None]
        if change.scope is None:
            del self.scopes[id_]
        else:
            self.scopes[id_] = change.scope
        return True

    def ask(self, id_: str, ask: ScheduleRequest) -> None:
        if self.apply(id_, lambda scope: schedule(scope, ask, self.conditions, now=self.now)):
            self.made[id_].add(ask.request_id)

    def scope(self, pick: int) -> Scope:
        return one_of(self.scopes.values(), pick)

    def some_vms(self, scope: Scope, picks: Iterable[int]) -> tuple[str, ...]:
        names = [vm.name for vm in scope.roster]
        return tuple(names[pick % len(names)] for pick in picks) if names else ("nobody",)

    def tick_all(self) -> None:
        for id_ in list(self.scopes):
            self.tick_one(id_)

    def tick_one(self, id_: str) -> Change[None]:
        """Tick a scope; afterwards every waiting event must have a blocker."""
        change = tick(self.scopes[id_], self.conditions, now=self.now, seen_at=self.seen_at.get(id_))
        self.apply(id_, lambda _: change)
        scope = self.scopes[id_]
        for event in scope.events:
            if event.state is State.SCHEDULED:
                assert explain(scope, event, self.conditions, now=self.now), "an event without blockers has started"
                assert event.cause is Cause.MAINTENANCE or event.not_before > self.now, "not due"
        alarm = wake_at(scope, self.conditions, now=self.now, seen_at=self.seen_at.get(id_))
        assert alarm is None or alarm > self.now or impact_lifecycle.impacts_to_begin(scope, now=self.now), (
            "due changes have happened"
        )
        return change

    # Time.

    @precondition(lambda self: self.scopes)
    @rule(step=STEPS)
    def set_the_clock(self, step: timedelta) -> None:
        self.now += step
        self.tick_all()

    @precondition(lambda self: self.scopes)
    @rule(pick=PICK, share=st.integers(0, 999))
    def wait_for_wake_at(self, pick: int, share: int) -> None:
        """Before `wake_at` time changes nothing; at `wake_at` something happens."""
        scope = self.scope(pick)
        self.tick_one(scope.id)
        scope = self.scopes[scope.id]
        alarm = wake_at(scope, self.conditions, now=self.now, seen_at=self.seen_at.get(scope.id))
        if alarm is None or impact_lifecycle.impacts_to_begin(scope, now=self.now):
            return
        self.now += (alarm - self.now) * share // 1000
        assert self.tick_one(scope.id).scope is scope, "wake_at is not too late"
        assert not impact_lifecycle.impacts_to_begin(scope, now=self.now)
        self.now = alarm
        assert self.tick_one(scope.id).entries or impact_lifecycle.impacts_to_begin(
            self.scopes[scope.id], now=self.now
        ), "wake_at is not too early"

    @precondition(lambda self: self.scopes)
    @rule(time=st.timedeltas(timedelta(seconds=1), timedelta(hours=30)))
    def break_down(self, time: timedelta) -> None:
        outage = Outage(began_at=self.now, ended_at=self.now + time)
        self.now += time
        self.conditions = msgspec.structs.replace(self.conditions, outages=(*self.conditions.outages, outage))
        self.seen_at = {}
        self.tick_all()

    # Guests.

    @precondition(lambda self: self.scopes)
    @rule(pick=PICK)
    def poll_the_document(self, pick: int) -> None:
        scope = self.scope(pick)
        self.seen_at[scope.id] = self.now
        if needs_save(scope, now=self.now):
            noted = self.apply(scope.id, lambda value: mark_seen(value, now=self.now, epoch=self.new_epoch()))
            assert noted, "a request is never refused"

    @precondition(lambda self: any(self.known.values()))
    @rule(pick=PICK, who=PICK, which=st.lists(PICK, max_size=4))
    def approve_some(self, pick: int, who: int, which: list[int]) -> None:
        scope = self.scope(pick) if self.scopes else None
        if scope is None:
            return
        ids = [one_of(self.known[scope.id], index) for index in which if self.known[scope.id]]
        (vm,) = self.some_vms(scope, [who])
        self.apply(scope.id, lambda value: approve(value, vm, ids, self.conditions, now=self.now))

    @precondition(lambda self: any(scope.events for scope in self.scopes.values()))
    @rule(which=PICK, who=PICK)
    def approve_one(self, which: int, who: int) -> None:
        """One affected VM approves one event, which is often not enough with the rule `all`."""
        id_, event = one_of(self.open_events(), which)
        vm = one_of(event.vms, who)
        self.apply(id_, lambda value: approve(value, vm, [event.id], self.conditions, now=self.now))

    @precondition(lambda self: any(scope.events for scope in self.scopes.values()))
    @rule(which=PICK, everybody=st.booleans())
    def approve_everything(self, which: int, everybody: bool) -> None:
        id_, _ = one_of(self.open_events(), which)
        ids = [event.id for event in self.scopes[id_].events if event.announced]
        for vm in list(self.scopes[id_].roster)[: None if everybody else 1]:
            approved = self.apply(
                id_,
                lambda value, vm=vm: approve(  # type: ignore[misc]  # a lambda's defaults are untyped
                    value, vm.name, ids, self.conditions, now=self.now
                ),
            )
            assert approved, "an approval of known events is never refused"

    # Owners and operators.

    @precondition(lambda self: self.scopes)
    @rule(
        pick=PICK,
        vms=st.lists(PICK, min_size=1, max_size=6),
        type_=st.sampled_from(EventType),
        source=st.sampled_from(Source),
        notice=NOTICES,
        failure=st.booleans(),
    )
    def schedule_some(
        self, pick: int, vms: list[int], type_: EventType, source: Source, notice: timedelta | None, failure: bool
    ) -> None:
        scope = self.scope(pick)
        failure = failure and type_ in (EventType.REBOOT, EventType.REDEPLOY) and source is Source.PLATFORM
        ask = ScheduleRequest(
            id=self.new_request(),
            type=type_,
            vms=self.some_vms(scope, vms),
            by="test",
            source=source,
            notice=None if failure else notice,
            failure=failure,
            key=f"key{len(self.requests)}",
        )
        self.ask(scope.id, ask)

    @precondition(lambda self: self.scopes)
    @rule(
        pick=PICK,
        vms=st.lists(PICK, min_size=3, max_size=6),
        step=st.integers(0, 20),
        campaign=st.sampled_from(["", "", "kernel"]),
    )
    def maintain_and_wait(self, pick: int, vms: list[int], step: int, campaign: str) -> None:
        """The most frequent case: planned maintenance of several VMs, and some time passes."""
        scope = self.scope(pick)
        names = self.some_vms(scope, vms)
        ask = ScheduleRequest(id=self.new_request(), type=EventType.REBOOT, vms=names, by="test", campaign=campaign)
        self.ask(scope.id, ask)
        self.now += timedelta(minutes=step)
        self.tick_all()

    @precondition(lambda self: self.requests)
    @rule(pick=PICK, vms=st.lists(PICK, min_size=1, max_size=6), which=PICK)
    def repeat_a_request(self, pick: int, vms: list[int], which: int) -> None:
        if not self.scopes:
            return
        scope = self.scope(pick)
        request = one_of(self.requests, which)
        ask = ScheduleRequest(id=request, type=EventType.REDEPLOY, vms=self.some_vms(scope, vms), by="test")
        since = latest(scope, self.now) - MAX_RECENT_AGE
        known = {event.request for event in scope.events} | {e.request for e in scope.ended if e.at > since}
        if request in self.made[scope.id] - known:
            return  # the request is forgotten: repeating it would create events with the same ids
        self.ask(scope.id, ask)
        if request in known:
            assert self.scopes[scope.id] is scope, "a repeated request creates nothing"

    @precondition(lambda self: self.scopes)
    @rule(pick=PICK, vm=PICK)
    def delete_one(self, pick: int, vm: int) -> None:
        scope = self.scope(pick)
        (name,) = self.some_vms(scope, [vm])
        request = self.new_request()
        self.made[scope.id].add(request)
        self.apply(
            scope.id,
            lambda value: operations.delete(value, name, self.conditions, request=request, by="test", now=self.now),
        )

    @precondition(lambda self: any(scope.events for scope in self.scopes.values()))
    @rule(which=PICK)
    def cancel_one(self, which: int) -> None:
        id_, event = one_of(self.open_events(), which)
        self.apply(id_, lambda value: operations.cancel(value, event.id, self.conditions, by="test", now=self.now))

    @precondition(lambda self: self.scopes)
    @rule(pick=PICK)
    def clear_campaign_events(self, pick: int) -> None:
        """Clearing again has no further effect, and events that are not cleared stay unchanged."""
        id_ = self.scope(pick).id
        self.clear(id_)
        cleared = self.scopes[id_]
        self.clear(id_)
        assert self.scopes[id_] is cleared

    def clear(self, id_: str) -> None:
        events = [event.id for event in self.scopes[id_].events]
        self.apply(id_, lambda value: operations.clear(value, events, self.conditions, now=self.now))

    @precondition(lambda self: self.scopes)
    @rule(pick=PICK)
    def hold_one(self, pick: int) -> None:
        self.apply(self.scope(pick).id, lambda value: operations.hold(value, by="test", reason="why", now=self.now))

    @precondition(lambda self: self.scopes)
    @rule(pick=PICK)
    def release_one(self, pick: int) -> None:
        self.apply(
            self.scope(pick).id, lambda value: operations.release(value, self.conditions, by="test", now=self.now)
        )

    @rule(held=st.booleans())
    def hold_or_release_everything(self, held: bool) -> None:
        hold = Hold(by="test", at=self.now, reason="why") if held else None
        self.conditions = msgspec.structs.replace(self.conditions, hold=hold)
        self.tick_all()

    # The platform.

    @precondition(lambda self: any(scope.events for scope in self.scopes.values()))
    @rule()
    def begin_everything(self) -> None:
        for scope in list(self.scopes.values()):
            for event, impact in impact_lifecycle.impacts_to_begin(scope, now=self.now):
                began = self.apply(
                    scope.id,
                    lambda value, event=event, impact=impact: impact_lifecycle.begin(  # type: ignore[misc]  # a lambda's defaults are untyped
                        value, event.id, impact.vm, now=self.now
                    ),
                )
                assert began, "every impact of impacts_to_begin can begin"

    @precondition(lambda self: self.impacts(ImpactState.BEGUN))
    @rule(which=PICK, outcome=OUTCOMES)
    def settle_one(self, which: int, outcome: ImpactOutcome) -> None:
        id_, event, vm = one_of(self.impacts(ImpactState.BEGUN), which)
        settled = self.apply(
            id_, lambda value: impact_lifecycle.settle(value, event, vm, outcome, self.conditions, now=self.now)
        )
        assert settled, "an outcome is never refused"

    @precondition(lambda self: any(scope.events for scope in self.scopes.values()))
    @rule(outcomes=st.lists(OUTCOMES, min_size=1, max_size=4))
    def work_for_a_while(self, outcomes: list[ImpactOutcome]) -> None:
        """Begin all impacts that can begin, and settle some."""
        self.begin_everything()
        for outcome in outcomes:
            if self.impacts(ImpactState.BEGUN):
                self.settle_one(which=0, outcome=outcome)

    @precondition(lambda self: self.impacts(ImpactState.PENDING, ImpactState.RETRY))
    @rule(which=PICK)
    def begin_one(self, which: int) -> None:
        """Beginning an impact that is not in impacts_to_begin is refused."""
        id_, event, vm = one_of(self.impacts(ImpactState.PENDING, ImpactState.RETRY), which)
        offered = impact_lifecycle.impacts_to_begin(self.scopes[id_], now=self.now)
        began = self.apply(id_, lambda value: impact_lifecycle.begin(value, event, vm, now=self.now))
        assert began or (event, vm) not in [(known.id, impact.vm) for known, impact in offered]

    @precondition(lambda self: self.impacts(ImpactState.BEGUN))
    @rule(host=HOSTS)
    def settle_everything(self, host: str | None) -> None:
        for id_, event, vm in self.impacts(ImpactState.BEGUN):
            if id_ in self.scopes and self.scopes[id_].find_event(event) is not None:
                self.apply(
                    id_,
                    lambda value, event=event, vm=vm: impact_lifecycle.settle(  # type: ignore[misc]  # a lambda's defaults are untyped
                        value, event, vm, Done(host), self.conditions, now=self.now
                    ),
                )

    @precondition(lambda self: self.impacts(ImpactState.BEGUN))
    @rule(which=PICK)
    def begin_again_after_a_crash(self, which: int) -> None:
        id_, event, vm = one_of(self.impacts(ImpactState.BEGUN), which)
        self.apply(id_, lambda value: impact_lifecycle.begin(value, event, vm, now=self.now, again=True))

    @precondition(lambda self: self.impacts(*STUCK))
    @rule(which=PICK, retry=st.booleans(), done=st.booleans())
    def resolve_stuck_impacts(self, which: int, retry: bool, done: bool) -> None:
        id_, event, vm = one_of(self.impacts(*STUCK), which)
        if retry:
            decided = self.apply(id_, lambda value: impact_lifecycle.retry(value, event, vm, by="test", now=self.now))
        else:
            decided = self.apply(
                id_,
                lambda value: impact_lifecycle.resolve(
                    value, event, self.conditions, by="test", why="why", now=self.now, done=done
                ),
            )
        assert decided

    # The inventory.

    @precondition(lambda self: self.scopes)
    @rule(pick=PICK, domain=st.integers(0, 2), host=HOSTS, traits=TRAITS)
    def add_a_vm(self, pick: int, domain: int, host: str | None, traits: Traits) -> None:
        vm = self.vm(domain, host, traits)
        self.apply(self.scope(pick).id, lambda value: inventory.add_vm(value, vm, by="test", now=self.now))

    @precondition(lambda self: self.scopes)
    @rule(pick=PICK, which=PICK, domain=st.integers(0, 2), host=HOSTS, stay=st.booleans(), role=st.booleans())
    def change_or_move_a_vm(self, pick: int, which: int, domain: int, host: str | None, stay: bool, role: bool) -> None:
        scope = self.scope(pick)
        if not scope.roster:
            return
        old = one_of(scope.roster, which)
        there = old.update_domain if stay else domain
        vm = msgspec.structs.replace(old, update_domain=there, host=host, role_instance=role)
        self.apply(scope.id, lambda value: inventory.change_vm(value, vm, self.conditions, by="test", now=self.now))

    @precondition(lambda self: self.scopes)
    @rule(pick=PICK, which=PICK, force=st.booleans())
    def remove_a_vm(self, pick: int, which: int, force: bool) -> None:
        scope = self.scope(pick)
        (name,) = self.some_vms(scope, [which])
        self.apply(
            scope.id,
            lambda value: inventory.remove_vm(value, name, self.conditions, by="test", now=self.now, force=force),
        )

    @precondition(lambda self: self.scopes)
    @rule(
        pick=PICK,
        approval=st.sampled_from(ApprovalRule),
        auto_approve=st.sampled_from([(), (EventType.REBOOT,), (EventType.REDEPLOY,)]),
    )
    def change_a_scope(self, pick: int, approval: ApprovalRule, auto_approve: tuple[EventType, ...]) -> None:
        self.apply(
            self.scope(pick).id,
            lambda value: inventory.change_scope(
                value, self.conditions, by="test", now=self.now, approval=approval, auto_approve=auto_approve
            ),
        )

    @precondition(lambda self: len(self.scopes) > 1)
    @rule(pick=PICK, force=st.booleans())
    def remove_a_scope(self, pick: int, force: bool) -> None:
        self.apply(
            self.scope(pick).id, lambda value: inventory.remove_scope(value, by="test", now=self.now, force=force)
        )

    # The end: every open event can be ended.

    def teardown(self) -> None:
        if not self.is_sound:
            return  # a rule is already broken: report that failure
        self.conditions = msgspec.structs.replace(self.conditions, hold=None)
        for id_ in list(self.scopes):
            self.apply(id_, lambda value: operations.release(value, self.conditions, by="test", now=self.now))
        for _ in range(200):
            if not any(scope.events for scope in self.scopes.values()):
                break
            self.now += timedelta(hours=1)
            self.tick_all()
            for id_ in list(self.scopes):
                self.clear(id_)
            self.begin_everything()
            self.settle_everything(None)
            for id_, event, _vm in self.impacts(*STUCK):
                if self.scopes[id_].find_event(event):
                    self.apply(
                        id_,
                        lambda value, event=event: impact_lifecycle.resolve(  # type: ignore[misc]  # a lambda's defaults are untyped
                            value, event, self.conditions, by="test", why="why", now=self.now
                        ),
                    )
        for invariants in self.scope_invariants.values():
            invariants.check_all_ended()

    # Queries.

    def open_events(self) -> list[tuple[str, Event]]:
        return [(scope.id, event) for scope in self.scopes.values() for event in scope.events]

    def impacts(self, *states: ImpactState) -> list[tuple[str, str, str]]:
        return [
            (id_, event.id, impact.vm)
            for id_, event in self.open_events()
            for impact in event.impacts
            if impact.state in states
        ]


def one_of(items: Iterable[T], pick: int) -> T:
    listed = list(items)
    return listed[pick % len(listed)]
