"""Blockers of an event as values, one case for each code; and when only a person can remove them."""

from datetime import timedelta

import msgspec
import pytest

from forewarn.core.event import Event
from forewarn.core.explain import (
    ApprovalPending,
    Blocker,
    BlockerCode,
    CampaignPending,
    DomainInUse,
    HostSilent,
    HostUnknown,
    ImpactStuck,
    NotBefore,
    OperatorHold,
    blocker_messages,
    explain,
    is_stuck,
)
from forewarn.core.impact import Done, Failed, ImpactState, Unknown
from forewarn.core.impact_lifecycle import begin, settle
from forewarn.core.lifecycle import tick
from forewarn.core.policy import EMULATOR, HostState, RuleContext
from forewarn.core.schedule import schedule
from forewarn.core.scope import ApprovalRule, Hold, Scope
from tests.core.builders import NOW, a_request, a_scope, a_vm, guid, saved_scope

CONTEXT = RuleContext(policy=EMULATOR)
DUE = NOW + timedelta(minutes=15)
HOLD = Hold(by="ann", at=NOW, reason="audit")

VMS = [
    a_vm("v0", update_domain=0, host="hv-0"),
    a_vm("v1", update_domain=0, host="hv-0"),
    a_vm("v2", update_domain=1, host="hv-1"),
]


def with_event(scope: Scope, *vms: str, request: str = "request", **fields: object) -> Scope:
    """Return the scope with events for these VMs that are due at DUE."""
    asked = a_request(*vms, id=guid(request), not_before=DUE, **fields)
    return saved_scope(schedule(scope, asked, CONTEXT, now=NOW))


def started_and_waiting() -> Scope:
    """Return a scope in which update domain 0 is being maintained, and an event of update domain 1 is due."""
    scope = with_event(with_event(a_scope(VMS), "v0", "v1"), "v2", request="other")
    return saved_scope(tick(scope, CONTEXT, now=DUE))


def settled(scope: Scope, **outcomes: Done | Failed | Unknown) -> Scope:
    """Return the scope after impacts on VMs of its first event have begun, and have ended with these outcomes."""
    id_ = scope.events[0].id
    for vm, outcome in outcomes.items():
        scope = saved_scope(begin(scope, id_, vm, now=DUE))
        scope = saved_scope(settle(scope, id_, vm, outcome, CONTEXT, now=DUE))
    return scope


def blockers_of(scope: Scope, event: Event, context: RuleContext = CONTEXT) -> tuple[Blocker, ...]:
    return explain(scope, event, context, now=scope.changed_at)


@pytest.mark.parametrize(
    ("rule", "vms", "sentence", "text"),
    [
        (
            ApprovalRule.ANY,
            ("v0", "v1", "v2"),
            "not before 2030-01-07 10:15:00Z, or earlier if any VM of the scope approves",
            "it starts earlier if any VM of the scope approves",
        ),
        (
            ApprovalRule.ALL,
            ("v0", "v1"),
            "not before 2030-01-07 10:15:00Z, or earlier if v0, v1 approve",
            "it starts earlier if v0, v1 approve",
        ),
    ],
)
def test_event_waits_for_its_time_or_for_approval(
    rule: ApprovalRule, vms: tuple[str, ...], sentence: str, text: str
) -> None:
    scope = with_event(a_scope(VMS, approval=rule), "v0", "v1")
    blockers = blockers_of(scope, scope.events[0])
    assert blockers == (NotBefore(at=DUE), ApprovalPending(at=DUE, vms=vms, rule=rule))
    assert [(blocker.code, str(blocker)) for blocker in blockers] == [
        (BlockerCode.NOT_BEFORE, "not before 2030-01-07 10:15:00Z"),
        (BlockerCode.APPROVAL_REQUIRED, text),
    ]
    assert (blocker_messages(blockers), is_stuck(scope.events[0], blockers)) == ((sentence,), False)


def test_event_waits_for_its_turn() -> None:
    scope = started_and_waiting()
    busy, waiting = scope.events
    blockers = blockers_of(scope, waiting)
    assert blockers == (DomainInUse(update_domain=0, events=(busy.id,)),)
    assert (blockers[0].code, is_stuck(waiting, blockers)) == (BlockerCode.UPDATE_DOMAIN_BUSY, False)
    assert blocker_messages(blockers) == (f"update domain 0 has its turn: event {busy.id}",)


@pytest.mark.parametrize("outcome", [Failed("no power"), Unknown("lost")])
def test_event_with_a_stuck_impact_is_stuck_and_so_is_the_event_that_waits_for_it(outcome: Failed | Unknown) -> None:
    scope = settled(started_and_waiting(), v0=outcome, v1=Done())
    busy, waiting = scope.events
    state = ImpactState.FAILED if isinstance(outcome, Failed) else ImpactState.UNKNOWN
    own, behind = blockers_of(scope, busy), blockers_of(scope, waiting)
    assert own == (ImpactStuck(vm="v0", state=state, why=outcome.why),)
    assert behind == (DomainInUse(update_domain=0, events=(busy.id,), stuck_event=busy.id),)
    assert own[0].code is BlockerCode.IMPACT_STUCK
    assert (is_stuck(busy, own), is_stuck(waiting, behind)) == (True, True)


def test_event_is_not_stuck_while_another_impact_is_in_progress() -> None:
    scope = settled(started_and_waiting(), v0=Failed("no power"))
    busy, waiting = scope.events
    own, behind = blockers_of(scope, busy), blockers_of(scope, waiting)
    assert own == (ImpactStuck(vm="v0", state=ImpactState.FAILED, why="no power"),)
    assert behind == (DomainInUse(update_domain=0, events=(busy.id,)),)
    assert (is_stuck(busy, own), is_stuck(waiting, behind)) == (False, False)


@pytest.mark.parametrize("whole_fleet", [True, False])
def test_held_event_waits_for_a_person(whole_fleet: bool) -> None:
    scope = with_event(a_scope(VMS), "v0")
    context = msgspec.structs.replace(CONTEXT, hold=HOLD) if whole_fleet else CONTEXT
    scope = scope if whole_fleet else msgspec.structs.replace(scope, hold=HOLD)
    blockers = explain(scope, scope.events[0], context, now=DUE)
    assert blockers == (OperatorHold(hold=HOLD, whole_fleet=whole_fleet),)
    assert (blockers[0].code, is_stuck(scope.events[0], blockers)) == (BlockerCode.HOLD, True)
    held = "all maintenance" if whole_fleet else "the scope"
    assert blocker_messages(blockers) == (f"{held} is held by ann: audit",)


@pytest.mark.parametrize("is_stopped", [True, False])
def test_event_of_a_campaign_waits_until_it_is_cleared(is_stopped: bool) -> None:
    scope = with_event(a_scope(VMS), "v0", campaign="c1", by="campaign:kernel")
    (blocker,) = explain(scope, scope.events[0], CONTEXT, now=DUE)
    assert blocker == CampaignPending(campaign="c1", name="kernel")
    told = msgspec.structs.replace(blocker, why="it is Paused", is_stopped=is_stopped)
    assert (told.code, is_stuck(scope.events[0], [told])) == (BlockerCode.CAMPAIGN, is_stopped)
    assert blocker_messages([told]) == ("campaign kernel has not cleared it, as it is Paused",)


def test_every_code_belongs_to_one_class() -> None:
    assert sorted(kind.code for kind in Blocker.__subclasses__()) == sorted(BlockerCode)


def test_planned_event_waits_for_a_host_that_is_unknown_or_silent() -> None:
    scope = with_event(a_scope([*VMS, a_vm("v3", update_domain=1)]), "v0", "v1", "v2", "v3")
    silent = HostState(silent_since=NOW)
    context = RuleContext(policy=EMULATOR, hosts={"hv-0": silent})
    blockers = [blocker for event in scope.events for blocker in blockers_of(scope, event, context)]
    assert [blocker for blocker in blockers if isinstance(blocker, HostUnknown | HostSilent)] == [
        HostSilent(host="hv-0", vms=("v0", "v1"), since=NOW),
        HostUnknown(host="hv-1", vms=("v2",)),
        HostUnknown(host=None, vms=("v3",)),
    ]
    assert tick(scope, context, now=DUE).entries == ()
    unheard = RuleContext(policy=EMULATOR, hosts=dict.fromkeys(("hv-0", "hv-1"), HostState(is_unheard=True)))
    assert tick(scope, unheard, now=DUE).entries == ()
    heard = RuleContext(policy=EMULATOR, hosts={"hv-0": HostState(), "hv-1": silent})
    started = saved_scope(tick(scope, heard, now=DUE))
    assert [event.vms for event in started.events if event.started_at is not None] == [("v0", "v1")]


def test_hardware_failure_does_not_wait_for_its_host() -> None:
    failed = schedule(a_scope(VMS), a_request("v0", failure=True), RuleContext(policy=EMULATOR, hosts={}), now=NOW)
    assert [event.started_at for event in saved_scope(failed).events] == [NOW]


@pytest.mark.parametrize(
    ("blocker", "text"),
    [
        (HostUnknown(host=None, vms=("v0",)), "v0 has no host"),
        (HostUnknown(host="hv-7", vms=("v0", "v1")), "host hv-7 of v0, v1 is unknown: no process serves it"),
        (
            HostSilent(host="hv-7", vms=("v0",), since=NOW),
            "host hv-7 of v0 has been silent since 2030-01-07 10:00:00Z",
        ),
        (HostSilent(host="hv-7", vms=("v0",), since=None), "host hv-7 of v0 has not reported to this control node yet"),
    ],
)
def test_text_about_a_host(blocker: Blocker, text: str) -> None:
    assert str(blocker) == text
