"""Draft: what a rule changes of a scope, which journal entries it adds, and which room it keeps free."""

from datetime import timedelta

import msgspec
import pytest

from forewarn.core.change import (
    APPROVAL_RESERVE,
    CLEARED_RESERVE,
    EVENT_RESERVE,
    IMPACT_RESERVE,
    Change,
    Draft,
    derive_id,
    format_timestamp,
    reserved_bytes,
)
from forewarn.core.errors import InvalidTransition
from forewarn.core.event import Approval, State, Trigger
from forewarn.core.impact import Impact, ImpactState
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.limits import (
    MAX_NAME_LENGTH,
    MAX_RECENT_AGE,
    MAX_RECENT_ITEMS,
)
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.schedule import schedule
from forewarn.core.scope import ApprovalRule, EndedEvent, EventOutcome, SeenKey
from tests.core.builders import NOW, a_request, a_scope, a_vm, guid, saved_scope

ALWAYS = RuleContext(policy=EMULATOR)


LONGEST_NAME = "n" * 124


LATE = NOW.replace(microsecond=999_999)


def growth(value: msgspec.Struct, **fields: object) -> int:
    """Return how many bytes a value grows by with these fields."""
    return len(msgspec.json.encode(msgspec.structs.replace(value, **fields))) - len(msgspec.json.encode(value))


def test_each_reserve_is_large_enough() -> None:
    vm = a_vm(LONGEST_NAME)
    event = saved_scope(schedule(a_scope([vm]), a_request(vm.name), ALWAYS, now=NOW)).events[0]
    approvals = (Approval(vm=vm.name, at=LATE),) * 10
    worst = Impact(vm=vm.name, state=ImpactState.RETRY, attempt=99_999, begun_at=LATE, retry_at=LATE, why="w" * 96)
    stuck = msgspec.structs.replace(worst, state=ImpactState.UNKNOWN, retry_at=None, stuck_entry=9_999_999)
    done = Impact(vm=vm.name, state=ImpactState.DONE, attempt=99_999, begun_at=LATE)
    assert growth(event, approvals=approvals) <= 10 * (APPROVAL_RESERVE + len(vm.name))
    for impact in (worst, stuck):
        assert growth(event, impacts=(impact,) * 10) <= 10 * (IMPACT_RESERVE + len(vm.name))
    assert growth(event, impacts=(done,)) + growth(vm, host="h" * MAX_NAME_LENGTH) <= IMPACT_RESERVE + len(vm.name)
    assert growth(event, started_at=LATE, host="h" * MAX_NAME_LENGTH) <= EVENT_RESERVE


def test_derivation_of_event_ids_never_changes() -> None:
    """A golden value: campaigns and repeated requests find their events by these ids after an upgrade, too."""
    assert derive_id("01234567-89ab-cdef-0123-456789abcdef", "web", 1, "hv-0") == GOLDEN_ID
    assert derive_id("01234567-89AB-CDEF-0123-456789ABCDEF", "web", 1, "hv-0") == GOLDEN_ID


GOLDEN_ID = "E8AB0993-AAA2-5EA2-BC5B-386ADE008861"


def test_draft_without_changes_returns_the_same_scope() -> None:
    scope = a_scope([a_vm("v0")])
    assert Draft(scope, NOW + timedelta(days=2)).finish(None).scope is scope


def test_time_of_a_scope_never_goes_back() -> None:
    draft = Draft(a_scope(), NOW - timedelta(hours=1))
    draft.add_entry(EntryKind.SCOPE_CHANGED, by="ann")
    change = draft.finish(None)
    assert (saved_scope(change).changed_at, change.entries[0].at) == (NOW, NOW)


def test_entries_are_numbered_from_those_of_the_scope() -> None:
    scope = a_scope([a_vm("v0")])
    draft = Draft(scope, NOW)
    draft.add_entry(EntryKind.VM_ADDED, by="ann", why='a "reason"\n', vms=("v0",), fields="host")
    draft.add_entry(EntryKind.SCOPE_CHANGED, by="ann")
    change = draft.finish("done")
    assert change == Change(
        msgspec.structs.replace(scope, entries=scope.entries + 2),
        (
            Entry(
                n=scope.entries + 1,
                at=NOW,
                kind=EntryKind.VM_ADDED,
                by="ann",
                why="a  reason  ",
                vms=("v0",),
                incarnation=1,
                facts={"fields": "host"},
            ),
            Entry(n=scope.entries + 2, at=NOW, kind=EntryKind.SCOPE_CHANGED, by="ann", incarnation=1),
        ),
        "done",
    )


def test_transition_of_an_announced_event_increments_the_incarnation() -> None:
    scope = saved_scope(schedule(a_scope([a_vm("v0"), a_vm("v1")]), a_request("v0"), ALWAYS, now=NOW))
    (event,) = scope.events
    draft = Draft(scope, NOW)
    started = draft.apply(event, Trigger.START_DUE, by="clock")
    assert started == msgspec.structs.replace(event, state=State.STARTED, started_at=NOW, impacts=(Impact(vm="v0"),))
    change = draft.finish(None)
    assert (saved_scope(change).incarnation, saved_scope(change).events) == (scope.incarnation + 1, (started,))
    assert [(entry.kind, entry.event, entry.incarnation) for entry in change.entries] == [
        (EntryKind.STARTED, event.id, scope.incarnation + 1)
    ]


def test_transition_of_an_unannounced_event_leaves_the_incarnation() -> None:
    scope = saved_scope(
        schedule(
            a_scope([a_vm("v0")]),
            a_request("v0", notice=timedelta(hours=1), unannounced=True),
            RuleContext(),
            now=NOW,
        )
    )
    draft = Draft(scope, NOW)
    assert draft.apply(scope.events[0], Trigger.CANCEL, by="ann") is None
    assert saved_scope(draft.finish(None)).incarnation == scope.incarnation


def test_ended_event_is_remembered_with_its_outcome() -> None:
    scope = saved_scope(schedule(a_scope([a_vm("v0")]), a_request("v0"), ALWAYS, now=NOW))
    (event,) = scope.events
    draft = Draft(scope, NOW)
    assert draft.apply(event, Trigger.CANCEL, by="ann", why="no") is None
    ended = EndedEvent(id=event.id, request=event.request, at=NOW, outcome=EventOutcome.CANCELED)
    assert (draft.scope.events, draft.scope.ended) == ((), (ended,))


def test_transition_that_is_not_in_the_table_is_refused() -> None:
    scope = saved_scope(schedule(a_scope([a_vm("v0")]), a_request("v0"), ALWAYS, now=NOW))
    with pytest.raises(InvalidTransition):
        Draft(scope, NOW).apply(scope.events[0], Trigger.COMPLETE, by="platform")


def test_event_is_replaced_in_its_place() -> None:
    scope = a_scope([a_vm("v0", host="hv-0"), a_vm("v1", host="hv-1")])
    scope = saved_scope(schedule(scope, a_request("v0", "v1"), ALWAYS, now=NOW))
    first, second = scope.events
    changed = msgspec.structs.replace(first, host="hv-9")
    draft = Draft(scope, NOW)
    draft.put(changed)
    assert draft.scope.events == (changed, second)


def test_impact_of_one_vm_is_replaced() -> None:
    scope = a_scope([a_vm("v0"), a_vm("v1")])
    scope = saved_scope(schedule(scope, a_request("v0", "v1", failure=True), ALWAYS, now=NOW))
    draft = Draft(scope, NOW)
    draft.put_impact(scope.events[0], Impact(vm="v1", state=ImpactState.DONE))
    assert draft.scope.events[0].impacts == (Impact(vm="v0"), Impact(vm="v1", state=ImpactState.DONE))


def test_stuck_impact_has_the_number_of_the_entry_that_follows() -> None:
    scope = a_scope([a_vm("v0")])
    scope = saved_scope(schedule(scope, a_request("v0", failure=True), ALWAYS, now=NOW))
    draft = Draft(scope, NOW)
    draft.add_entry(EntryKind.HELD, by="ann")
    draft.put_impact(scope.events[0], Impact(vm="v0", state=ImpactState.FAILED))
    draft.add_entry(EntryKind.IMPACT_FAILED, by="ann")
    assert draft.scope.events[0].impacts == (
        Impact(vm="v0", state=ImpactState.FAILED, stuck_entry=draft.entries[-1].n),
    )


def test_ended_events_and_keys_are_forgotten_after_a_day() -> None:
    ended = EndedEvent(id=guid("event"), request=guid("request"), at=NOW, outcome=EventOutcome.COMPLETED)
    key = SeenKey(key="k", request=guid("request"), at=NOW)
    scope = msgspec.structs.replace(a_scope(), ended=(ended,), seen_keys=(key,))
    before, after = (Draft(scope, NOW + MAX_RECENT_AGE + late).scope for late in (-timedelta.resolution, timedelta(0)))
    assert (before.ended, before.seen_keys) == ((ended,), (key,))
    assert (after.ended, after.seen_keys) == ((), ())


def test_number_of_remembered_keys_is_limited() -> None:
    draft = Draft(a_scope(), NOW)
    for n in range(MAX_RECENT_ITEMS + 2):
        draft.remember_key(f"k{n}", guid(n), "digest", "tk_ann")
    seen = saved_scope(draft.finish(None)).seen_keys
    oldest = SeenKey(key="k2", request=guid(2), at=NOW, digest="digest", caller="tk_ann")
    assert (len(seen), seen[0]) == (MAX_RECENT_ITEMS, oldest)


def test_removed_scope_leaves_its_entries() -> None:
    draft = Draft(a_scope(), NOW)
    draft.add_entry(EntryKind.SCOPE_REMOVED, by="ann")
    change = draft.remove("gone")
    assert (change.scope, [entry.kind for entry in change.entries], change.result) == (
        None,
        [EntryKind.SCOPE_REMOVED],
        "gone",
    )


@pytest.mark.parametrize(("rule", "room"), [(ApprovalRule.ANY, MAX_NAME_LENGTH), (ApprovalRule.ALL, len("v0"))])
def test_room_for_an_approval_is_kept_by_the_rule_of_the_scope(rule: ApprovalRule, room: int) -> None:
    scope = a_scope([a_vm("v0"), a_vm("v1")], approval=rule)
    scope = saved_scope(schedule(scope, a_request("v0", "v1"), ALWAYS, now=NOW))
    (event,) = scope.events
    approved = msgspec.structs.replace(event, approvals=(Approval(vm="v0", at=NOW),))
    assert reserved_bytes(scope, event) - reserved_bytes(scope, approved) == APPROVAL_RESERVE + room


def test_room_for_its_clearance_is_kept_for_the_event_of_a_campaign() -> None:
    scope = saved_scope(schedule(a_scope([a_vm("v0")]), a_request("v0"), ALWAYS, now=NOW))
    (event,) = scope.events
    campaign = msgspec.structs.replace(event, campaign="c1")
    assert reserved_bytes(scope, campaign) - reserved_bytes(scope, event) == CLEARED_RESERVE


def test_timestamp_in_facts_has_whole_seconds() -> None:
    assert format_timestamp(NOW.replace(microsecond=999_999)) == "2030-01-07T10:00:00Z"
