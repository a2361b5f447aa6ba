"""Operations by name: restart, redeploy, evict, fail, delete, cancel, clear, hold and release."""

from datetime import timedelta

import pytest

from forewarn.core.errors import Invalid, InvalidTransition, KeyConflict
from forewarn.core.event import Cause, EventType, Source, State
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.journal import EntryKind
from forewarn.core.lifecycle import tick
from forewarn.core.limits import (
    MAX_TEXT_LENGTH,
)
from forewarn.core.operations import (
    DELETED_REASON,
    cancel,
    clear,
    delete,
    evict,
    fail,
    hold,
    predict_failure,
    redeploy,
    release,
    restart,
)
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.schedule import schedule
from forewarn.core.scope import Hold, Scope
from forewarn.core.vm import Traits
from tests.core.builders import NOW, a_request, a_scope, a_vm, count_calls, guid, saved_scope

ALWAYS = RuleContext(policy=EMULATOR)


def test_cost_per_event_of_clearing_does_not_grow_with_the_number_of_events() -> None:
    def cost(events: int) -> int:
        vms = [a_vm(f"vm-{n}", host=f"hv-{n}") for n in range(events)]
        ask = a_request(*(vm.name for vm in vms), campaign="c1", notice=timedelta(0))
        scope = saved_scope(schedule(a_scope(vms), ask, ALWAYS, now=NOW))
        ids = {event.id for event in scope.events}
        return count_calls(lambda: clear(scope, ids, ALWAYS, now=NOW))

    assert cost(100) < 6 * cost(20)


def test_name_of_a_holder_has_a_limit() -> None:
    with pytest.raises(Invalid, match="by has 513 characters"):
        hold(a_scope(), by="x" * (MAX_TEXT_LENGTH + 1), reason="wait", now=NOW)


def with_event(scope: Scope, *vms: str, **fields: object) -> Scope:
    return saved_scope(schedule(scope, a_request(*vms, **fields), ALWAYS, now=NOW))


def test_each_operation_is_a_request_of_its_type_and_source() -> None:
    id_, day = guid("request"), timedelta(days=1)
    requests = {
        "restart": restart("v0", request=id_, by="ann"),
        "redeploy": redeploy("v0", request=id_, by="ann"),
        "evict": evict("v0", request=id_, by="ann", notice=day),
        "fail": fail(("v0", "v1"), request=id_, by="ann", kind=EventType.REBOOT),
        "predict_failure": predict_failure(("v0", "v1"), request=id_, by="ann", ahead=day),
    }
    assert {name: (request.type, request.source, request.cause) for name, request in requests.items()} == {
        "restart": (EventType.REBOOT, Source.USER, Cause.USER),
        "redeploy": (EventType.REDEPLOY, Source.USER, Cause.USER),
        "evict": (EventType.PREEMPT, Source.PLATFORM, Cause.EVICTION),
        "fail": (EventType.REBOOT, Source.PLATFORM, Cause.FAILURE),
        "predict_failure": (EventType.REDEPLOY, Source.PLATFORM, Cause.MAINTENANCE),
    }
    assert {name: (request.vms, request.notice) for name, request in requests.items()} == {
        "restart": (("v0",), None),
        "redeploy": (("v0",), None),
        "evict": (("v0",), day),
        "fail": (("v0", "v1"), None),
        "predict_failure": (("v0", "v1"), day),
    }
    assert {(request.id, request.by) for request in requests.values()} == {(id_, "ann")}


def test_vm_with_a_terminate_notice_is_deleted_by_an_event() -> None:
    scope = a_scope([a_vm("v0", traits=Traits(terminate_notice=timedelta(minutes=6)))])
    change = delete(scope, "v0", ALWAYS, request=guid("request"), by="ann", now=NOW)
    (event,) = saved_scope(change).events
    assert (change.result, event.type, event.cause) == ((event.id,), EventType.TERMINATE, Cause.DELETION)
    assert event.not_before == NOW + timedelta(minutes=6)


def test_other_vm_is_deleted_at_once() -> None:
    change = delete(a_scope([a_vm("v0")]), "v0", ALWAYS, request=guid("request"), by="ann", now=NOW)
    assert (change.result, len(saved_scope(change).roster)) == ((), 0)
    assert [(entry.kind, entry.why) for entry in change.entries] == [(EntryKind.VM_REMOVED, DELETED_REASON)]


@pytest.mark.parametrize("notice", [None, timedelta(minutes=5)])
def test_repeated_delete_has_the_result_of_the_first(notice: timedelta | None) -> None:
    key = IdempotencyKey("k", "digest")
    scope = a_scope([a_vm("v0", traits=Traits(terminate_notice=notice)), a_vm("v1")])
    first = delete(scope, "v0", ALWAYS, request=guid("request"), by="ann", now=NOW, idempotency_key=key)
    again = delete(saved_scope(first), "v0", ALWAYS, request=guid("other"), by="ann", now=NOW, idempotency_key=key)
    assert (again.scope, again.entries, again.result) == (first.scope, (), first.result)
    other = IdempotencyKey("k", "other")
    with pytest.raises(KeyConflict):
        delete(saved_scope(first), "v1", ALWAYS, request=guid("r"), by="ann", now=NOW, idempotency_key=other)


def test_cancelled_event_never_starts() -> None:
    scope = with_event(a_scope([a_vm("v0")]), "v0")
    change = cancel(scope, scope.events[0].id, ALWAYS, by="ann", now=NOW, why="no need")
    assert [(entry.kind, entry.by, entry.why) for entry in change.entries] == [(EntryKind.CANCELED, "ann", "no need")]
    assert saved_scope(change).events == ()


def test_started_event_cannot_be_cancelled() -> None:
    scope = with_event(a_scope([a_vm("v0")]), "v0", failure=True)
    with pytest.raises(InvalidTransition):
        cancel(scope, scope.events[0].id, ALWAYS, by="ann", now=NOW)


def test_cleared_event_of_a_campaign_starts() -> None:
    scope = with_event(a_scope([a_vm("v0")]), "v0", campaign="c1", notice=timedelta(0))
    id_ = scope.events[0].id
    change = clear(scope, {id_}, ALWAYS, now=NOW)
    assert (change.result, saved_scope(change).event(id_).state) == ((id_,), State.STARTED)
    assert saved_scope(change).event(id_).cleared


def test_event_that_something_else_holds_is_not_cleared() -> None:
    scope = with_event(a_scope([a_vm("v0")]), "v0", campaign="c1")
    change = clear(scope, {scope.events[0].id}, ALWAYS, now=NOW)
    assert (change.scope, change.result) == (scope, ())


def test_event_without_a_campaign_is_not_cleared() -> None:
    scope = saved_scope(hold(with_event(a_scope([a_vm("v0")]), "v0"), by="ann", reason="wait", now=NOW))
    assert clear(scope, {scope.events[0].id}, ALWAYS, now=NOW).result == ()


def test_held_scope_starts_nothing_planned_until_it_is_released() -> None:
    scope = with_event(a_scope([a_vm("v0")]), "v0")
    held = hold(scope, by="ann", reason="audit", now=NOW)
    assert saved_scope(held).hold == Hold(by="ann", at=NOW, reason="audit")
    due = NOW + timedelta(hours=1)
    assert tick(saved_scope(held), ALWAYS, now=due).entries == ()
    released = release(saved_scope(held), ALWAYS, by="bob", now=due, why="audit is over")
    assert [(entry.kind, entry.by) for entry in released.entries] == [
        (EntryKind.RELEASED, "bob"),
        (EntryKind.STARTED, "clock"),
    ]
    assert saved_scope(released).hold is None


def test_release_of_a_scope_that_is_not_held_changes_nothing() -> None:
    scope = a_scope([a_vm("v0")])
    assert release(scope, ALWAYS, by="ann", now=NOW).scope is scope


@pytest.mark.parametrize("reason", ["", " \n"])
def test_hold_needs_a_reason(reason: str) -> None:
    with pytest.raises(Invalid):
        hold(a_scope(), by="ann", reason=reason, now=NOW)
