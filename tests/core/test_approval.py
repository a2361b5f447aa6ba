"""Approval: which events it starts, and that a request with an unknown event changes nothing."""

from datetime import timedelta

import pytest

from forewarn.core.approval import approve
from forewarn.core.errors import ScopeEventNotFound, ScopeVmNotFound
from forewarn.core.event import Approval, State
from forewarn.core.journal import EntryKind
from forewarn.core.operations import cancel
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.schedule import schedule
from forewarn.core.scope import ApprovalRule, Hold, Scope
from tests.core.builders import NOW, a_request, a_scope, a_vm, count_calls, guid, saved_scope

ALWAYS = RuleContext(policy=EMULATOR)


HOUR = timedelta(hours=1)
WAITING = RuleContext(policy=EMULATOR, hold=Hold(by="test", at=NOW, reason="test"))


@pytest.mark.parametrize("rule", ApprovalRule)
@pytest.mark.parametrize("conditions", [pytest.param(ALWAYS, id="free"), pytest.param(WAITING, id="held")])
def test_cost_per_event_of_an_approval_does_not_grow_with_the_number_of_events(
    rule: ApprovalRule, conditions: RuleContext
) -> None:
    """A guest that approves all its events must not delay other guests, however large its scope is."""

    def cost(events: int) -> int:
        vms = [a_vm(f"vm-{n}", host=f"hv-{n}") for n in range(events)]
        ask = a_request(*(vm.name for vm in vms))
        scope = saved_scope(schedule(a_scope(vms, approval=rule), ask, conditions, now=NOW))
        ids = [event.id for event in scope.events]
        assert len(ids) == events
        return count_calls(lambda: approve(scope, "vm-0", ids, conditions, now=NOW))

    assert cost(100) < 6 * cost(20)


def scheduled(*vms: str, rule: ApprovalRule = ApprovalRule.ANY, **fields: object) -> Scope:
    """Return a scope of v0, v1 and v2 with an event for these VMs, due in 15 minutes."""
    scope = a_scope([a_vm(f"v{n}") for n in range(3)], approval=rule)
    return saved_scope(schedule(scope, a_request(*vms, **fields), ALWAYS, now=NOW))


def test_any_vm_of_the_scope_starts_the_event_under_the_rule_any() -> None:
    scope = scheduled("v0", "v1")
    change = approve(scope, "V2", [scope.events[0].id.lower()], ALWAYS, now=NOW)
    (event,) = saved_scope(change).events
    assert (event.state, event.approvals, event.started_at) == (State.STARTED, (Approval(vm="v2", at=NOW),), NOW)
    assert [(entry.kind, entry.by) for entry in change.entries] == [
        (EntryKind.APPROVED, "vm:v2"),
        (EntryKind.STARTED, "vm:v2"),
    ]


def test_every_affected_vm_must_approve_under_the_rule_all() -> None:
    scope = scheduled("v0", "v1", rule=ApprovalRule.ALL)
    id_ = scope.events[0].id
    states = []
    for vm in ("v2", "v0", "v0", "v1"):
        change = approve(scope, vm, [id_], ALWAYS, now=NOW)
        scope = saved_scope(change)
        states.append((scope.event(id_).state, len(change.entries)))
    assert states == [(State.SCHEDULED, 0), (State.SCHEDULED, 1), (State.SCHEDULED, 0), (State.STARTED, 2)]


def test_request_with_an_unknown_event_approves_nothing() -> None:
    scope = scheduled("v0")
    with pytest.raises(ScopeEventNotFound) as refused:
        approve(scope, "v0", [scope.events[0].id, guid("other")], ALWAYS, now=NOW)
    assert (refused.value.event, refused.value.scope) == (guid("other"), "web")


def test_event_that_was_never_announced_cannot_be_approved() -> None:
    """The scope is not enabled, so no VM can have seen it."""
    production = RuleContext()
    scope = saved_scope(
        schedule(a_scope([a_vm("v0")]), a_request("v0", notice=HOUR, unannounced=True), production, now=NOW)
    )
    assert [event.announced for event in scope.events] == [False]
    with pytest.raises(ScopeEventNotFound):
        approve(scope, "v0", [scope.events[0].id], production, now=NOW)


def test_started_and_ended_events_can_be_approved_without_effect() -> None:
    scope = saved_scope(approve(scheduled("v0"), "v0", [scheduled("v0").events[0].id], ALWAYS, now=NOW))
    started = scope.events[0].id
    assert approve(scope, "v1", [started], ALWAYS, now=NOW).scope is scope
    other = scheduled("v0")
    ended = saved_scope(cancel(other, other.events[0].id, ALWAYS, by="ann", now=NOW))
    assert approve(ended, "v1", [other.events[0].id], ALWAYS, now=NOW).scope is ended


def test_due_event_starts_without_the_approval() -> None:
    scope = scheduled("v0")
    change = approve(scope, "v0", [scope.events[0].id], ALWAYS, now=NOW + HOUR)
    assert [(entry.kind, entry.by) for entry in change.entries] == [(EntryKind.STARTED, "clock")]
    assert saved_scope(change).events[0].approvals == ()


def test_approval_of_a_held_event_is_kept_and_the_journal_has_what_holds_it() -> None:
    scope = scheduled("v0")
    change = approve(scope, "v0", [scope.events[0].id], WAITING, now=NOW)
    (event,) = saved_scope(change).events
    (entry,) = change.entries
    assert (event.state, event.approvals) == (State.SCHEDULED, (Approval(vm="v0", at=NOW),))
    assert (entry.kind, [*entry.facts]) == (EntryKind.APPROVED, ["held_by"])


def test_operator_approves_in_the_name_of_a_vm() -> None:
    scope = scheduled("v0")
    change = approve(scope, "v0", [scope.events[0].id], ALWAYS, now=NOW, by="ann", why="it is drained")
    assert [(entry.kind, entry.by) for entry in change.entries] == [
        (EntryKind.APPROVED, "ann"),
        (EntryKind.STARTED, "ann"),
    ]
    assert all("v0" in entry.why for entry in change.entries)
    assert change.entries[0].why.endswith(": it is drained")


def test_unknown_vm_cannot_approve() -> None:
    scope = scheduled("v0")
    with pytest.raises(ScopeVmNotFound):
        approve(scope, "v9", [scope.events[0].id], ALWAYS, now=NOW)
