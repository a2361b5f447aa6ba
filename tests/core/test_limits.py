"""Everything has a limit, and what was accepted within it can always go on."""

from datetime import timedelta

import msgspec
import pytest

from forewarn.core.approval import approve
from forewarn.core.change import (
    SCOPE_RESERVE,
    derive_id,
)
from forewarn.core.errors import ScopeEventNotFound, ScopeTooLarge
from forewarn.core.event import Source, State
from forewarn.core.impact import Done, Failed, ImpactState, Retry
from forewarn.core.impact_lifecycle import begin, resolve, settle
from forewarn.core.inventory import add_vm
from forewarn.core.limits import (
    DIGEST_LENGTH,
    MAX_CALLER_LENGTH,
    MAX_KEY_LENGTH,
    MAX_RECENT_ITEMS,
    MAX_RECORD_BYTES,
    MAX_TEXT_LENGTH,
    MAX_VMS_PER_SCOPE,
)
from forewarn.core.operations import cancel, hold, release
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.schedule import schedule
from forewarn.core.scope import ApprovalRule, EndedEvent, EventOutcome, Hold, Scope, SeenKey
from forewarn.core.vm import Address, Traits, Vm
from tests.core.builders import NOW, a_request, a_scope, a_vm, guid, saved_scope

ALWAYS = RuleContext(policy=EMULATOR)
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


def test_event_of_all_vms_of_the_largest_scope_can_be_completed() -> None:
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


def test_error_of_a_full_scope_has_advice() -> None:
    ask = a_request(*(f"{index:04}{LONGEST_NAME}" for index in range(100)))
    with pytest.raises(ScopeTooLarge, match=r"it could need \d+ KiB of 768; use more scopes"):
        schedule(full_scope(ApprovalRule.ANY), ask, ALWAYS, now=NOW)


@pytest.mark.parametrize("rule", ApprovalRule)
def test_events_of_a_full_scope_can_still_be_completed(rule: ApprovalRule) -> None:
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
    SeenKey(
        key="k" * MAX_KEY_LENGTH, request=guid(n), at=LATE, digest="d" * DIGEST_LENGTH, caller="c" * MAX_CALLER_LENGTH
    )
    for n in range(MAX_RECENT_ITEMS)
)


def test_full_ended_list_and_a_hold_fit_into_their_reserve() -> None:
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


def test_vm_that_would_use_the_reserve_is_refused() -> None:
    fat = a_vm("fat", traits=Traits(tags={f"t{index}": "v" * MAX_TEXT_LENGTH for index in range(50)}))
    with pytest.raises(ScopeTooLarge):
        add_vm(full_scope(ApprovalRule.ANY), fat, by="test", now=NOW)


def test_vm_that_moves_in_a_full_scope_loses_its_event() -> None:
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


def test_scope_remembers_256_ended_events_and_as_many_keys() -> None:
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
