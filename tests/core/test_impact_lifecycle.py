"""Lifecycle of impacts: begin, settle, retry and resolve the work of a started event."""

from datetime import timedelta

import pytest

from forewarn.core.errors import EventVmNotFound, Invalid, InvalidTransition, WrongHost
from forewarn.core.event import EventType, State
from forewarn.core.impact import Done, Failed, Impact, ImpactOutcome, ImpactState, Retry, Unknown
from forewarn.core.impact_lifecycle import Worker, abandon_host, begin, impacts_to_begin, resolve, retry, settle
from forewarn.core.journal import EntryKind
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.schedule import schedule
from forewarn.core.scope import EventOutcome, Scope, ScopeKind
from forewarn.core.vm import Priority, Traits
from tests.core.builders import NOW, a_request, a_scope, a_vm, guid, saved_scope

CONTEXT = RuleContext(policy=EMULATOR)
MINUTE = timedelta(minutes=1)


def started(*vms: str) -> tuple[Scope, str]:
    """Return a scope with a hardware failure under these VMs, and the id of its event."""
    scope = a_scope([a_vm(name, host="hv-0") for name in vms])
    change = schedule(scope, a_request(*vms, failure=True), CONTEXT, now=NOW)
    return saved_scope(change), change.result[0]


def worked_on(outcome: ImpactOutcome, *vms: str) -> tuple[Scope, str]:
    """Return such a scope after the work on its first VM has ended like this, a minute later."""
    scope, id_ = started(*vms)
    scope = saved_scope(begin(scope, id_, vms[0], now=NOW))
    return saved_scope(settle(scope, id_, vms[0], outcome, CONTEXT, now=NOW + MINUTE)), id_


def test_pending_work_is_begun_once() -> None:
    scope, id_ = started("v0")
    assert impacts_to_begin(scope, now=NOW) == ((scope.events[0], Impact(vm="v0")),)
    change = begin(scope, id_, "v0", now=NOW)
    begun = Impact(vm="v0", state=ImpactState.BEGUN, attempt=1, begun_at=NOW)
    assert (change.result, saved_scope(change).events[0].impacts) == (begun, (begun,))
    assert [(entry.kind, entry.by, entry.vms, entry.facts) for entry in change.entries] == [
        (EntryKind.IMPACT_BEGUN, "platform", ("v0",), {"attempt": "1"})
    ]
    assert impacts_to_begin(saved_scope(change), now=NOW) == ()
    with pytest.raises(InvalidTransition):
        begin(saved_scope(change), id_, "v0", now=NOW)


def test_work_that_a_crash_interrupted_is_begun_again() -> None:
    scope, id_ = started("v0")
    with pytest.raises(InvalidTransition):
        begin(scope, id_, "v0", now=NOW, again=True)
    scope = saved_scope(begin(scope, id_, "v0", now=NOW))
    again = begin(scope, id_, "v0", now=NOW + MINUTE, again=True)
    assert again.result == Impact(vm="v0", state=ImpactState.BEGUN, attempt=2, begun_at=NOW + MINUTE)


def test_two_events_never_work_on_one_vm_at_a_time() -> None:
    scope, first = started("v0")
    other = schedule(scope, a_request("v0", id=guid("other"), failure=True), CONTEXT, now=NOW)
    scope, (second,) = saved_scope(other), other.result
    assert [event.id for event, _ in impacts_to_begin(scope, now=NOW)] == [first]
    scope = saved_scope(begin(scope, first, "v0", now=NOW))
    with pytest.raises(InvalidTransition):
        begin(scope, second, "v0", now=NOW)
    scope = saved_scope(settle(scope, first, "v0", Done(), CONTEXT, now=NOW))
    assert [event.id for event, _ in impacts_to_begin(scope, now=NOW)] == [second]


def test_event_completes_when_all_its_work_is_done() -> None:
    scope, id_ = worked_on(Done(output="ok"), "v0", "v1")
    assert [impact.state for impact in scope.event(id_).impacts] == [ImpactState.DONE, ImpactState.PENDING]
    scope = saved_scope(begin(scope, id_, "v1", now=NOW + MINUTE))
    change = settle(scope, id_, "v1", Done(), CONTEXT, now=NOW + 2 * MINUTE)
    assert [(entry.kind, entry.facts) for entry in change.entries] == [
        (EntryKind.IMPACT_DONE, {"took": "60.000s"}),
        (EntryKind.COMPLETED, {"took": "120.000s"}),
    ]
    assert [(ended.id, ended.outcome) for ended in saved_scope(change).ended] == [(id_, EventOutcome.COMPLETED)]


def test_work_that_is_put_off_is_begun_after_its_delay() -> None:
    scope, id_ = worked_on(Retry(MINUTE, "busy", "locked"), "v0")
    assert scope.event(id_).impacts == (
        Impact(vm="v0", state=ImpactState.RETRY, attempt=1, begun_at=NOW, retry_at=NOW + 2 * MINUTE, why="busy"),
    )
    assert impacts_to_begin(scope, now=NOW + 2 * MINUTE - timedelta.resolution) == ()
    assert [impact.vm for _, impact in impacts_to_begin(scope, now=NOW + 2 * MINUTE)] == ["v0"]


@pytest.mark.parametrize(
    ("outcome", "state", "kind"),
    [
        (Failed("no power", "output"), ImpactState.FAILED, EntryKind.IMPACT_FAILED),
        (Unknown("no power", "output"), ImpactState.UNKNOWN, EntryKind.IMPACT_UNKNOWN),
    ],
)
def test_stuck_work_waits_for_a_person(outcome: ImpactOutcome, state: ImpactState, kind: EntryKind) -> None:
    scope, id_ = started("v0")
    scope = saved_scope(begin(scope, id_, "v0", now=NOW))
    change = settle(scope, id_, "v0", outcome, CONTEXT, now=NOW)
    (entry,) = change.entries
    assert (entry.kind, entry.why, entry.facts) == (kind, "no power", {"attempt": "1", "output": "output"})
    assert saved_scope(change).event(id_).impacts == (
        Impact(vm="v0", state=state, attempt=1, begun_at=NOW, why="no power", stuck_entry=entry.n),
    )
    assert impacts_to_begin(saved_scope(change), now=NOW + timedelta(days=30)) == ()


def test_outcome_of_work_that_was_not_begun_is_refused() -> None:
    scope, id_ = started("v0")
    with pytest.raises(InvalidTransition):
        settle(scope, id_, "v0", Done(), CONTEXT, now=NOW)


def test_scheduled_event_has_no_work() -> None:
    scope = saved_scope(schedule(a_scope([a_vm("v0")]), a_request("v0"), CONTEXT, now=NOW))
    assert scope.events[0].state is State.SCHEDULED
    with pytest.raises(InvalidTransition):
        begin(scope, scope.events[0].id, "v0", now=NOW)


def test_work_on_a_vm_that_the_event_does_not_affect_is_refused() -> None:
    scope, id_ = started("v0")
    with pytest.raises(EventVmNotFound) as refused:
        begin(scope, id_, "v9", now=NOW)
    assert (refused.value.vm, refused.value.event) == ("v9", id_)


def test_moved_vm_is_on_the_host_that_the_platform_reports() -> None:
    scope, _ = worked_on(Done("hv-9"), "v0", "v1")
    assert [(vm.name, vm.host) for vm in scope.roster] == [("v0", "hv-9"), ("v1", "hv-0")]


def test_evicted_vm_leaves_and_its_standalone_scope_with_it() -> None:
    vm = a_vm("v0", traits=Traits(priority=Priority.LOW))
    scope = a_scope([vm], kind=ScopeKind.STANDALONE)
    ask = a_request("v0", type=EventType.PREEMPT, notice=timedelta(0))
    scope = saved_scope(schedule(scope, ask, CONTEXT, now=NOW))
    scope = saved_scope(begin(scope, scope.events[0].id, "v0", now=NOW))
    change = settle(scope, scope.events[0].id, "v0", Done(), CONTEXT, now=NOW)
    assert change.scope is None
    assert [entry.kind for entry in change.entries] == [
        EntryKind.IMPACT_DONE,
        EntryKind.VM_REMOVED,
        EntryKind.COMPLETED,
        EntryKind.SCOPE_REMOVED,
    ]


def test_failed_work_is_retried_on_one_vm_or_on_all() -> None:
    scope, id_ = worked_on(Failed("no power"), "v0", "v1")
    change = retry(scope, id_, "V0", by="ann", now=NOW, why="power is back")
    assert [(entry.kind, entry.by, entry.why, entry.vms) for entry in change.entries] == [
        (EntryKind.IMPACT_RETRIED, "ann", "power is back", ("v0",))
    ]
    assert saved_scope(change).event(id_).impact("v0") == Impact(vm="v0", attempt=1, begun_at=NOW)
    assert retry(scope, id_, by="ann", now=NOW, why="power is back").scope == change.scope


def test_work_that_has_failed_since_the_request_is_not_retried() -> None:
    scope, id_ = worked_on(Failed("no power"), "v0", "v1")
    seen = scope.entries
    scope = saved_scope(begin(scope, id_, "v1", now=NOW))
    scope = saved_scope(settle(scope, id_, "v1", Failed("no power"), CONTEXT, now=NOW))
    change = retry(scope, id_, by="ann", now=NOW, seen=seen)
    assert [entry.vms for entry in change.entries] == [("v0",)]
    assert retry(saved_scope(change), id_, by="ann", now=NOW, seen=seen).entries == ()


@pytest.mark.parametrize("vm", ["v1", None])
def test_work_that_has_not_failed_is_not_retried(vm: str | None) -> None:
    scope, id_ = worked_on(Done(), "v0", "v1")
    with pytest.raises(InvalidTransition):
        retry(scope, id_, vm, by="ann", now=NOW)


def test_stuck_work_is_resolved_as_done() -> None:
    scope, id_ = worked_on(Unknown("lost"), "v0")
    change = resolve(scope, id_, CONTEXT, by="ann", why="I looked", now=NOW + 2 * MINUTE, done=True)
    assert [(entry.kind, entry.by) for entry in change.entries] == [
        (EntryKind.IMPACT_DONE, "ann"),
        (EntryKind.COMPLETED, "ann"),
    ]
    assert saved_scope(change).ended[-1].outcome is EventOutcome.COMPLETED


def test_stuck_work_that_is_given_up_fails_its_event() -> None:
    scope, id_ = worked_on(Failed("no power"), "v0")
    change = resolve(scope, id_, CONTEXT, by="ann", why="the VM is lost", now=NOW + 2 * MINUTE)
    assert [entry.kind for entry in change.entries] == [EntryKind.IMPACT_GIVEN_UP, EntryKind.FAILED]
    assert saved_scope(change).ended[-1].outcome is EventOutcome.FAILED


@pytest.mark.parametrize("why", ["", "  "])
def test_work_is_not_resolved_without_a_reason(why: str) -> None:
    scope, id_ = worked_on(Failed("no power"), "v0")
    with pytest.raises(Invalid):
        resolve(scope, id_, CONTEXT, by="ann", why=why, now=NOW)


def test_output_in_the_journal_is_the_end_of_it() -> None:
    scope, id_ = started("v0")
    scope = saved_scope(begin(scope, id_, "v0", now=NOW))
    (entry,) = settle(scope, id_, "v0", Failed("no power", "x" * 5000 + "end"), CONTEXT, now=NOW).entries
    assert (len(entry.facts["output"].encode()), entry.facts["output"][-4:]) == (4096, "xend")


HV_0, HV_1 = Worker("hv-0", 3), Worker("hv-1", 9)


def test_impact_keeps_host_and_term_that_began_it() -> None:
    scope, id_ = started("v0")
    begun = begin(scope, id_, "v0", now=NOW, worker=HV_0)
    assert begun.result == Impact(vm="v0", state=ImpactState.BEGUN, attempt=1, begun_at=NOW, host="hv-0", term=3)
    with pytest.raises(WrongHost) as refused:
        settle(saved_scope(begun), id_, "v0", Done(), CONTEXT, now=NOW, worker=HV_1)
    assert refused.value.details == {"vm": "web/v0", "host": "hv-1", "term": 9}
    done = saved_scope(settle(saved_scope(begun), id_, "v0", Failed("no"), CONTEXT, now=NOW, worker=HV_0))
    assert [(each.state, each.host, each.term) for each in done.event(id_).impacts] == [(ImpactState.FAILED, "hv-0", 3)]


def test_only_the_host_of_a_vm_may_begin_its_impact() -> None:
    scope, id_ = started("v0")
    with pytest.raises(WrongHost):
        begin(scope, id_, "v0", now=NOW, worker=HV_1)


def test_later_process_of_the_host_takes_an_impact_over_and_the_earlier_one_is_refused() -> None:
    scope, id_ = started("v0")
    scope = saved_scope(begin(scope, id_, "v0", now=NOW, worker=HV_0))
    later = Worker("hv-0", 4)
    settle(scope, id_, "v0", Done(), CONTEXT, now=NOW, worker=later)
    scope = saved_scope(begin(scope, id_, "v0", now=NOW, again=True, worker=later))
    with pytest.raises(WrongHost):
        settle(scope, id_, "v0", Done(), CONTEXT, now=NOW, worker=HV_0)


def test_impact_begun_outside_a_cluster_belongs_to_the_host_of_its_vm() -> None:
    scope, id_ = started("v0")
    scope = saved_scope(begin(scope, id_, "v0", now=NOW))
    with pytest.raises(WrongHost):
        settle(scope, id_, "v0", Done(), CONTEXT, now=NOW, worker=HV_1)
    settle(scope, id_, "v0", Done(), CONTEXT, now=NOW, worker=HV_0)


def test_begun_impacts_of_a_host_that_is_gone_become_unknown() -> None:
    scope, id_ = started("v0", "v1")
    scope = saved_scope(begin(scope, id_, "v0", now=NOW, worker=HV_0))
    with pytest.raises(Invalid):
        abandon_host(scope, "hv-0", CONTEXT, before_term=4, by="ann", why=" ", now=NOW)
    assert abandon_host(scope, "hv-9", CONTEXT, before_term=4, by="ann", why="fire", now=NOW).entries == ()
    change = abandon_host(scope, "hv-0", CONTEXT, before_term=4, by="ann", why="fire", now=NOW)
    assert [each.state for each in saved_scope(change).event(id_).impacts] == [
        ImpactState.UNKNOWN,
        ImpactState.PENDING,
    ]
    assert change.result == 1
    assert [(entry.kind, entry.by, entry.why, entry.vms) for entry in change.entries] == [
        (EntryKind.IMPACT_UNKNOWN, "ann", "host hv-0 is gone: fire", ("v0",))
    ]
    assert (
        abandon_host(saved_scope(change), "hv-0", CONTEXT, before_term=4, by="ann", why="fire", now=NOW).entries == ()
    )


def test_impact_that_a_later_process_has_begun_stays_with_it() -> None:
    scope, id_ = started("v0")
    scope = saved_scope(begin(scope, id_, "v0", now=NOW, worker=Worker("hv-0", 4)))
    assert abandon_host(scope, "hv-0", CONTEXT, before_term=4, by="ann", why="fire", now=NOW).entries == ()
