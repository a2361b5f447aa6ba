"""Everything has a limit, and what was accepted within it can always go on."""

import sys
from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from forewarn.core.approval import approve
from forewarn.core.change import (
    APPROVAL_RESERVE,
    EVENT_RESERVE,
    IMPACT_RESERVE,
    SCOPE_RESERVE,
    Draft,
    derive_id,
)
from forewarn.core.errors import Invalid, RefusedError, ScopeEventNotFound, ScopeTooLarge
from forewarn.core.event import Approval, EventType, Source, State
from forewarn.core.impact import Done, Failed, Impact, ImpactState, Retry
from forewarn.core.impact_lifecycle import begin, resolve, settle
from forewarn.core.inventory import add_vm, change_vm
from forewarn.core.limits import (
    DIGEST_LENGTH,
    MAX_KEY_LENGTH,
    MAX_NAME_LENGTH,
    MAX_RECENT_ITEMS,
    MAX_RECORD_BYTES,
    MAX_TEXT_LENGTH,
    MAX_VMS_PER_SCOPE,
)
from forewarn.core.operations import cancel, clear, hold, release
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.schedule import events_of_request, schedule
from forewarn.core.scope import ApprovalRule, EndedEvent, EventOutcome, Hold, Scope, SeenKey
from forewarn.core.text import truncate_text
from forewarn.core.vm import Address, Traits, Vm
from tests.core.builders import NOW, a_request, a_scope, a_vm, guid, saved_scope

ALWAYS = RuleContext(policy=EMULATOR)
WAITING = RuleContext(policy=EMULATOR, hold=Hold(by="test", at=NOW, reason="test"))
LONGEST_NAME = "n" * 124


def size(scope: Scope) -> int:
    return len(msgspec.json.encode(scope))


def realistic_vms(number: int) -> list[Vm]:
    return [
        a_vm(
            f"batch-{index:04}",
            host="hv-17",
            addresses=(Address(ip=f"10.1.{index // 250}.{index % 250}", mac="00:0d:3a:12:34:56"),),
            traits=Traits(tags={"service": "batch"}),
        )
        for index in range(number)
    ]


def calls(work: Callable[[], object]) -> int:
    """Count the functions that are called: unlike time, the same on every machine."""
    counted = 0

    def count(_frame: object, what: str, _argument: object) -> None:
        nonlocal counted
        counted += what == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.parametrize("rule", ApprovalRule)
@pytest.mark.parametrize("conditions", [pytest.param(ALWAYS, id="free"), pytest.param(WAITING, id="held")])
def test_approving_many_events_at_once_costs_no_more_for_each_than_approving_few(
    rule: ApprovalRule, conditions: RuleContext
) -> None:
    """A guest that approves all that it sees keeps nobody else waiting, however large its scope is."""

    def cost(events: int) -> int:
        vms = [a_vm(f"vm-{n}", host=f"hv-{n}") for n in range(events)]
        ask = a_request(*(vm.name for vm in vms))
        scope = saved_scope(schedule(a_scope(vms, approval=rule), ask, conditions, now=NOW))
        ids = [event.id for event in scope.events]
        assert len(ids) == events
        return calls(lambda: approve(scope, "vm-0", ids, conditions, now=NOW))

    assert cost(100) < 6 * cost(20)


def test_clearing_many_events_at_once_costs_no_more_for_each_than_clearing_few() -> None:
    def cost(events: int) -> int:
        vms = [a_vm(f"vm-{n}", host=f"hv-{n}") for n in range(events)]
        ask = a_request(*(vm.name for vm in vms), campaign="c1", notice=timedelta(0))
        scope = saved_scope(schedule(a_scope(vms), ask, ALWAYS, now=NOW))
        ids = {event.id for event in scope.events}
        return calls(lambda: clear(scope, ids, ALWAYS, now=NOW))

    assert cost(100) < 6 * cost(20)


def test_one_event_over_all_vms_of_the_largest_scope_lives_its_whole_life() -> None:
    """1,000 VMs on one host, each approves, each fails with a long text, each is put off, tried again, and moved."""
    vms = realistic_vms(MAX_VMS_PER_SCOPE)
    scope = a_scope(vms, approval=ApprovalRule.ALL)
    names = [vm.name for vm in vms]
    change = schedule(scope, a_request(*names, description="d" * MAX_TEXT_LENGTH), ALWAYS, now=NOW)
    (event,) = change.result
    scope = saved_scope(change)
    for name in names:
        scope = saved_scope(approve(scope, name, [event], ALWAYS, now=NOW))
    assert scope.event(event).state is State.STARTED
    for name in names:
        scope = saved_scope(begin(scope, event, name, now=NOW))
        scope = saved_scope(settle(scope, event, name, Retry(timedelta(minutes=1), "w" * 2000), ALWAYS, now=NOW))
    largest = size(scope)
    for name in names:
        scope = saved_scope(begin(scope, event, name, now=NOW + timedelta(minutes=1)))
        outcome = Done(LONGEST_NAME) if name != names[0] else Failed("ü" * 2000)
        scope = saved_scope(settle(scope, event, name, outcome, ALWAYS, now=NOW + timedelta(minutes=1)))
        largest = max(largest, size(scope))
    scope = saved_scope(resolve(scope, event, ALWAYS, by="test", why="w" * 2000, now=NOW + timedelta(minutes=2)))
    assert scope.events == ()
    assert largest <= MAX_RECORD_BYTES


def test_one_vm_more_than_a_scope_holds_is_refused() -> None:
    scope = a_scope([a_vm(f"v{index}") for index in range(MAX_VMS_PER_SCOPE)])
    with pytest.raises(Invalid, match="1001 VMs: a scope holds at most 1000"):
        add_vm(scope, a_vm("one-more"), by="test", now=NOW)


def filled(scope: Scope) -> Scope:
    """Return the scope with events of long texts over many, then few, then single VMs, until not even one without a
    text is accepted."""
    names = [vm.name for vm in scope.roster]
    number = 0
    for width, why in (
        (100, "\x01" * MAX_TEXT_LENGTH),
        (10, "\x01" * MAX_TEXT_LENGTH),
        (1, "\x01" * MAX_TEXT_LENGTH),
        (1, ""),
    ):
        while True:
            number += 1
            ask = a_request(*names[:width], id=guid(number), key="k" * 60 + f"{number:04}", why=why)
            try:
                scope = saved_scope(schedule(scope, ask, ALWAYS, now=NOW))
            except ScopeTooLarge:
                break
    return scope


def full_scope(rule: ApprovalRule) -> Scope:
    return filled(a_scope([a_vm(f"{index:04}{LONGEST_NAME}") for index in range(100)], approval=rule))


def test_full_scope_says_what_to_do() -> None:
    ask = a_request(*(f"{index:04}{LONGEST_NAME}" for index in range(100)))
    with pytest.raises(ScopeTooLarge, match=r"it could need \d+ KiB of 768; use more scopes"):
        schedule(full_scope(ApprovalRule.ANY), ask, ALWAYS, now=NOW)


@pytest.mark.parametrize("rule", ApprovalRule)
def test_full_scope_can_still_do_all_that_was_accepted(rule: ApprovalRule) -> None:
    """Its events are approved, held, started, begun and put off, with a full memory, within the size of a record."""
    scope = msgspec.structs.replace(full_scope(rule), ended=FULL_ENDED, seen_keys=FULL_ANSWERED)
    scope = saved_scope(hold(scope, by="\x01" * MAX_TEXT_LENGTH, reason="\x01" * MAX_TEXT_LENGTH, now=NOW))
    largest = size(scope)
    ids = [event.id for event in scope.events]
    for vm in scope.roster:
        scope = saved_scope(approve(scope, vm.name, ids, ALWAYS, now=LATE))
        largest = max(largest, size(scope))
    scope = saved_scope(release(scope, ALWAYS, by="test", now=LATE))
    scope = saved_scope(hold(scope, by="\x01" * MAX_TEXT_LENGTH, reason="\x01" * MAX_TEXT_LENGTH, now=LATE))
    assert {event.state for event in scope.events} == {State.STARTED}
    for event in scope.events:
        for name in event.vms:
            scope = saved_scope(begin(scope, event.id, name, now=LATE))
            scope = saved_scope(
                settle(scope, event.id, name, Retry(timedelta(seconds=1), "ü" * 2000), ALWAYS, now=LATE)
            )
        largest = max(largest, size(scope))
    assert {impact.state for event in scope.events for impact in event.impacts} == {ImpactState.RETRY}
    # What is kept free is needed, but for a tenth.
    assert 0.9 * MAX_RECORD_BYTES < largest <= MAX_RECORD_BYTES


LATE = NOW.replace(microsecond=999_999)
FULL_ENDED = tuple(
    EndedEvent(id=guid(n), request=guid(n), at=LATE, outcome=EventOutcome.COMPLETED) for n in range(MAX_RECENT_ITEMS)
)
FULL_ANSWERED = tuple(
    SeenKey(key="k" * MAX_KEY_LENGTH, request=guid(n), at=LATE, digest="d" * DIGEST_LENGTH)
    for n in range(MAX_RECENT_ITEMS)
)


def test_full_recent_and_a_hold_need_no_more_than_is_kept_free_for_them() -> None:
    held = Hold(by="\x01" * MAX_TEXT_LENGTH, at=LATE, reason="\x01" * MAX_TEXT_LENGTH)
    scope = a_scope([a_vm("v0")])
    full = msgspec.structs.replace(
        scope,
        ended=FULL_ENDED,
        seen_keys=FULL_ANSWERED,
        hold=held,
        enabled=True,
        was_enabled=True,
        seen_at=LATE,
        changed_at=LATE,
        epoch="e" * 32,
        incarnation=10**12,
        entries=10**12,
    )
    assert size(full) - size(scope) <= SCOPE_RESERVE


def growth(value: msgspec.Struct, **fields: object) -> int:
    """Return how many bytes a value grows by with these fields."""
    return len(msgspec.json.encode(msgspec.structs.replace(value, **fields))) - len(msgspec.json.encode(value))


def test_each_reserve_holds_what_it_is_for() -> None:
    vm = a_vm(LONGEST_NAME)
    event = saved_scope(schedule(a_scope([vm]), a_request(vm.name), ALWAYS, now=NOW)).events[0]
    approvals = (Approval(vm=vm.name, at=LATE),) * 10
    worst = Impact(vm=vm.name, state=ImpactState.UNKNOWN, attempt=99_999, begun_at=LATE, retry_at=LATE, why="w" * 96)
    done = Impact(vm=vm.name, state=ImpactState.DONE, attempt=99_999, begun_at=LATE)
    assert growth(event, approvals=approvals) <= 10 * (APPROVAL_RESERVE + len(vm.name))
    assert growth(event, impacts=(worst,) * 10) <= 10 * (IMPACT_RESERVE + len(vm.name))
    assert growth(event, impacts=(done,)) + growth(vm, host="h" * MAX_NAME_LENGTH) <= IMPACT_RESERVE + len(vm.name)
    assert growth(event, started_at=LATE, host="h" * MAX_NAME_LENGTH) <= EVENT_RESERVE


def test_vm_that_would_not_leave_room_is_refused() -> None:
    fat = a_vm("fat", traits=Traits(tags={f"t{index}": "v" * MAX_TEXT_LENGTH for index in range(50)}))
    with pytest.raises(ScopeTooLarge):
        add_vm(full_scope(ApprovalRule.ANY), fat, by="test", now=NOW)


def test_vm_that_moves_in_a_full_scope_loses_the_event_for_which_there_is_no_room() -> None:
    """A VM that moves gets an event of its own; where there is no room for that, the journal says so."""
    scope = a_scope([a_vm("u0"), a_vm("u1"), *(a_vm(f"{index:04}{LONGEST_NAME}") for index in range(100))])
    scope = saved_scope(schedule(scope, a_request("u0", failure=True), ALWAYS, now=NOW))
    repair = scope.events[0].id
    users = a_request("u0", "u1", id=guid("users"), source=Source.USER, why="\x01" * MAX_TEXT_LENGTH)
    scope = saved_scope(schedule(scope, users, ALWAYS, now=NOW))
    shared = scope.events[1].id
    scope = saved_scope(begin(filled(scope), repair, "u0", now=NOW))
    change = settle(scope, repair, "u0", Done("hv-9"), ALWAYS, now=NOW)
    own = derive_id(shared, "u0", "hv-9")
    assert [(entry.kind.value, entry.why) for entry in change.entries if entry.event == own] == [
        ("scheduled", "u0 is now on hv-9"),
        ("canceled", "the scope is full"),
    ]
    assert saved_scope(change).event(shared).vms == ("u1",)
    assert size(saved_scope(change)) <= MAX_RECORD_BYTES


def test_recent_holds_256_ended_events_and_as_many_keys() -> None:
    scope = a_scope([a_vm("v0")])
    ids: list[str] = []
    for number in range(MAX_RECENT_ITEMS + 1):
        ask = a_request("v0", id=guid(number), key="k" * 60 + f"{number:04}")
        change = schedule(scope, ask, ALWAYS, now=NOW + timedelta(microseconds=number))
        ids += change.result
        scope = saved_scope(
            cancel(saved_scope(change), ids[-1], ALWAYS, by="test", now=NOW + timedelta(microseconds=number))
        )
    assert [ended.id for ended in scope.ended] == ids[1:]
    assert len(scope.seen_keys) == MAX_RECENT_ITEMS
    approve(scope, "v0", ids[1:], ALWAYS, now=NOW)
    with pytest.raises(ScopeEventNotFound):
        approve(scope, "v0", ids[:1], ALWAYS, now=NOW)


def test_key_is_remembered_even_when_its_events_are_forgotten() -> None:
    """An old key whose event has dropped out of `ended` must not make the event again."""
    scope = a_scope([a_vm("v0")])
    scope = saved_scope(schedule(scope, a_request("v0", key="first"), ALWAYS, now=NOW))
    scope = saved_scope(cancel(scope, scope.events[0].id, ALWAYS, by="test", now=NOW))
    for number in range(MAX_RECENT_ITEMS):
        scope = saved_scope(schedule(scope, a_request("v0", id=guid(number)), ALWAYS, now=NOW))
        scope = saved_scope(cancel(scope, scope.events[0].id, ALWAYS, by="test", now=NOW))
    change = schedule(scope, a_request("v0", id=guid("other"), key="first"), ALWAYS, now=NOW)
    assert (change.scope, change.entries, change.result) == (scope, (), ())


def test_request_is_the_same_in_any_case() -> None:
    scope = saved_scope(schedule(a_scope([a_vm("v0")]), a_request("v0", id=guid(1).lower()), ALWAYS, now=NOW))
    assert schedule(scope, a_request("v0", id=guid(1)), ALWAYS, now=NOW).result == events_of_request(scope, guid(1))


def test_ids_of_events_are_derived_as_they_always_were() -> None:
    """A golden value: campaigns and repeated requests find their events by these ids after an upgrade, too."""
    assert derive_id("01234567-89ab-cdef-0123-456789abcdef", "web", 1, "hv-0") == GOLDEN_ID
    assert derive_id("01234567-89AB-CDEF-0123-456789ABCDEF", "web", 1, "hv-0") == GOLDEN_ID


GOLDEN_ID = "E8AB0993-AAA2-5EA2-BC5B-386ADE008861"


@pytest.mark.parametrize("field", ["description", "why", "by"])
def test_texts_of_an_event_have_a_limit(field: str) -> None:
    scope = a_scope([a_vm("v0")])
    schedule(scope, a_request("v0", **{field: "x" * MAX_TEXT_LENGTH}), ALWAYS, now=NOW)
    with pytest.raises(Invalid, match="has 513 characters: at most 512 are kept"):
        schedule(scope, a_request("v0", **{field: "x" * (MAX_TEXT_LENGTH + 1)}), ALWAYS, now=NOW)


def test_text_that_no_record_can_hold_is_refused() -> None:
    with pytest.raises(Invalid, match="reason is not valid Unicode"):
        Hold(by="alice", at=NOW, reason="half a pair: \ud83d")


def test_who_holds_has_a_limit() -> None:
    with pytest.raises(Invalid, match="by has 513 characters"):
        hold(a_scope(), by="x" * (MAX_TEXT_LENGTH + 1), reason="wait", now=NOW)


@pytest.mark.parametrize(
    ("text", "short"),
    [("plain", "plain"), ('a "b"\n\\c', "a  b   c"), ("x" * 20, "x" * 10), ("ü" * 10, "üüü…")],
    ids=["plain", "unprintable", "long", "many bytes"],
)
def test_texts_from_outside_are_shortened_to_printable_bytes(text: str, short: str) -> None:
    assert truncate_text(text, 10) == short


@pytest.mark.parametrize("key", ["", "k" * 65, "a b", "ü", 'a"b', "a\\b", "a\n"])
def test_request_key_is_short_and_plain(key: str) -> None:
    with pytest.raises(Invalid, match="a request key is 1 to 64 printable ASCII characters"):
        a_request("v0", key=key)


def test_tags_of_vm_and_scope_are_limited_together() -> None:
    tags = {f"t{index}": "v" for index in range(40)}
    more = {f"s{index}": "v" for index in range(11)}
    scope = a_scope([a_vm("v0")], traits=Traits(tags=tags))
    with pytest.raises(Invalid, match="51 tags: at most 50 are kept"):
        add_vm(scope, a_vm("v1", traits=Traits(tags=more)), by="test", now=NOW)
    with pytest.raises(Invalid, match="51 tags: at most 50 are kept"):
        change_vm(scope, a_vm("v0", traits=Traits(tags=more)), ALWAYS, by="test", now=NOW)
    with pytest.raises(Invalid, match="51 tags: at most 50 are kept"):
        a_scope([a_vm("v0", traits=Traits(tags=more))], traits=Traits(tags=tags))


def test_refusal_changes_nothing() -> None:
    """A draft that is refused leaves no trace: the scope is a value."""
    scope = a_scope([a_vm("v0")])
    before = msgspec.json.encode(scope)
    with pytest.raises(RefusedError):
        schedule(scope, a_request("v0", type=EventType.PREEMPT), ALWAYS, now=NOW)
    assert msgspec.json.encode(scope) == before


def test_draft_in_which_nothing_happened_gives_the_scope_itself() -> None:
    scope = a_scope([a_vm("v0")])
    assert Draft(scope, NOW + timedelta(days=2)).finish(None).scope is scope
