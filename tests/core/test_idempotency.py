"""A request with an idempotency key has one effect; its key is remembered for a day and cannot be used for another."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from forewarn.core.approval import approve
from forewarn.core.change import Change
from forewarn.core.errors import Invalid, KeyConflict, ResourceInUse, ScopeTooLarge
from forewarn.core.event import EventType
from forewarn.core.idempotency import IdempotencyKey, apply_once
from forewarn.core.impact import Failed
from forewarn.core.impact_lifecycle import begin, resolve, retry, settle
from forewarn.core.inventory import add_vm, change_scope, change_vm, create_scope, remove_scope, remove_vm
from forewarn.core.journal import EntryKind
from forewarn.core.limits import (
    DIGEST_LENGTH,
    MAX_CALLER_LENGTH,
    MAX_KEY_LENGTH,
    MAX_RECENT_AGE,
    MAX_RECENT_ITEMS,
    MAX_RECORD_BYTES,
)
from forewarn.core.operations import cancel, delete, hold, release
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.schedule import schedule
from forewarn.core.scope import ApprovalRule, Hold, Scope, ScopeKind, SeenKey
from forewarn.core.vm import Traits
from tests.core.builders import NOW, a_request, a_scope, a_vm, guid, saved_scope

ALWAYS = RuleContext(policy=EMULATOR)
KEY = IdempotencyKey("order-66", "d1")
LATER = NOW + timedelta(minutes=1)


def scheduled() -> Scope:
    """Return a scope with a Scheduled event, and a hold."""
    scope = saved_scope(schedule(a_scope([a_vm("web_0"), a_vm("web_1")]), a_request("web_0"), ALWAYS, now=NOW))
    return saved_scope(hold(scope, by="test", reason="storm", now=NOW))


def failed() -> Scope:
    """Return a scope in which the impacts on both VMs of an event have failed."""
    scope = a_scope([a_vm("web_0"), a_vm("web_1")])
    scope = saved_scope(schedule(scope, a_request("web_0", "web_1", failure=True), ALWAYS, now=NOW))
    for vm in ("web_0", "web_1"):
        scope = saved_scope(begin(scope, scope.events[0].id, vm, now=NOW))
        scope = saved_scope(settle(scope, scope.events[0].id, vm, Failed("no answer"), ALWAYS, now=NOW))
    return scope


Rule = Callable[[Scope], Change[None]]

COMMANDS: dict[str, tuple[Callable[[], Scope], Rule]] = {
    "cancel": (scheduled, lambda scope: cancel(scope, scope.events[0].id, ALWAYS, by="ann", now=LATER)),
    "approve": (scheduled, lambda scope: approve(scope, "web_1", [scope.events[0].id], ALWAYS, now=LATER, by="ann")),
    "hold": (scheduled, lambda scope: hold(scope, by="ann", reason="flood", now=LATER)),
    "release": (scheduled, lambda scope: release(scope, ALWAYS, by="ann", now=LATER)),
    "retry": (failed, lambda scope: retry(scope, scope.events[0].id, by="ann", now=LATER)),
    "resolve": (failed, lambda scope: resolve(scope, scope.events[0].id, ALWAYS, by="ann", why="so", now=LATER)),
    "add a VM": (scheduled, lambda scope: add_vm(scope, a_vm("web_2"), by="ann", now=LATER)),
    "change a VM": (scheduled, lambda scope: change_vm(scope, a_vm("web_1", host="hv-9"), ALWAYS, by="ann", now=LATER)),
    "remove a VM": (scheduled, lambda scope: remove_vm(scope, "web_1", ALWAYS, by="ann", now=LATER)),
    "change the scope": (
        scheduled,
        lambda scope: change_scope(scope, ALWAYS, by="ann", now=LATER, approval=ApprovalRule.ALL),
    ),
}


@pytest.mark.parametrize(("before", "rule"), COMMANDS.values(), ids=COMMANDS)
def test_repeated_command_has_no_effect(before: Callable[[], Scope], rule: Rule) -> None:
    scope = before()
    first = apply_once(scope, KEY, rule, now=LATER)
    plain = rule(scope)
    assert (first.result, first.entries) == (True, plain.entries)
    answered = (*scope.seen_keys, SeenKey(key=KEY.key, request="", at=LATER, digest=KEY.digest))
    assert first.scope == msgspec.structs.replace(saved_scope(plain), seen_keys=answered, changed_at=LATER)
    again = apply_once(saved_scope(first), KEY, rule, now=LATER + timedelta(hours=23))
    assert again == Change(first.scope, (), False)
    with pytest.raises(KeyConflict, match="the key order-66 was used for another request"):
        apply_once(saved_scope(first), IdempotencyKey(KEY.key, "d2"), rule, now=LATER)


@pytest.mark.parametrize(("before", "rule"), COMMANDS.values(), ids=COMMANDS)
def test_command_without_a_key_is_applied(before: Callable[[], Scope], rule: Rule) -> None:
    scope = before()
    plain = rule(scope)
    assert apply_once(scope, None, rule, now=LATER) == Change(plain.scope, plain.entries, True)


def test_key_of_a_command_without_effect_is_remembered_too() -> None:
    scope = a_scope([a_vm("web_0")])
    first = apply_once(scope, KEY, lambda value: release(value, ALWAYS, by="ann", now=LATER), now=LATER)
    assert (first.entries, saved_scope(first).has_seen_key(KEY.key, now=LATER)) == ((), True)
    held = saved_scope(hold(saved_scope(first), by="bob", reason="storm", now=LATER))
    again = apply_once(held, KEY, lambda value: release(value, ALWAYS, by="ann", now=LATER), now=LATER)
    assert saved_scope(again).hold == Hold(by="bob", at=LATER, reason="storm")


def test_key_of_a_refused_command_is_not_remembered() -> None:
    scope = scheduled()
    with pytest.raises(ResourceInUse):
        apply_once(scope, KEY, lambda value: remove_vm(value, "web_0", ALWAYS, by="ann", now=LATER), now=LATER)
    assert not scope.has_seen_key(KEY.key, now=LATER)


def test_key_is_forgotten_after_a_day_and_can_be_used_again() -> None:
    first = apply_once(scheduled(), KEY, lambda scope: hold(scope, by="ann", reason="flood", now=NOW), now=NOW)
    late = NOW + MAX_RECENT_AGE
    other = apply_once(
        saved_scope(first),
        IdempotencyKey(KEY.key, "d2"),
        lambda scope: release(scope, ALWAYS, by="ann", now=late),
        now=late,
    )
    assert (other.result, saved_scope(other).hold) == (True, None)
    assert [item.digest for item in saved_scope(other).seen_keys] == ["d2"]


def test_only_a_limited_number_of_the_newest_keys_is_remembered() -> None:
    scope = a_scope([a_vm("web_0")])
    for n in range(MAX_RECENT_ITEMS + 3):
        scope = saved_scope(
            apply_once(
                scope, IdempotencyKey(f"k{n}", "d"), lambda value: release(value, ALWAYS, by="a", now=NOW), now=NOW
            )
        )
    assert [item.key for item in scope.seen_keys] == [f"k{n}" for n in range(3, MAX_RECENT_ITEMS + 3)]


def test_clock_that_is_set_back_neither_restores_a_forgotten_key_nor_loses_one() -> None:
    first = saved_scope(
        apply_once(scheduled(), KEY, lambda scope: hold(scope, by="a", reason="flood", now=LATER), now=LATER)
    )
    again = apply_once(first, KEY, lambda scope: release(scope, ALWAYS, by="a", now=NOW), now=NOW)
    assert again.result is False


def test_rule_that_removes_the_scope_leaves_the_key_in_the_last_entry() -> None:
    change = apply_once(scheduled(), KEY, lambda scope: remove_scope(scope, by="ann", now=LATER, force=True), now=LATER)
    assert change.scope is None
    assert [(entry.kind, entry.facts) for entry in change.entries] == [
        (EntryKind.CANCELED, {}),
        (EntryKind.SCOPE_REMOVED, {"key": "order-66", "digest": "d1"}),
    ]


def test_standalone_scope_removed_with_its_vm_leaves_the_key_in_the_last_entry_too() -> None:
    scope = a_scope([a_vm("db")], id="db", kind=ScopeKind.STANDALONE)
    change = delete(scope, "db", ALWAYS, request=guid("r"), by="ann", now=LATER, idempotency_key=KEY)
    assert (change.scope, change.result) == (None, ())
    assert [(entry.kind, "key" in entry.facts) for entry in change.entries] == [
        (EntryKind.VM_REMOVED, False),
        (EntryKind.SCOPE_REMOVED, True),
    ]


def test_new_scope_and_its_first_entry_remember_the_key_of_the_request() -> None:
    blank = Scope(id="web", kind=ScopeKind.AVAILABILITY_SET, epoch="e1", changed_at=NOW)
    change = create_scope(blank, by="ann", now=NOW, idempotency_key=KEY)
    assert saved_scope(change).has_seen_key(KEY.key, now=NOW)
    assert [entry.facts for entry in change.entries] == [
        {"kind": "availability-set", "key": "order-66", "digest": "d1"}
    ]


def test_repeated_deletion_returns_the_first_terminate_event() -> None:
    scope = a_scope([a_vm("web_0")], traits=Traits(terminate_notice=timedelta(minutes=5)))
    first = delete(scope, "web_0", ALWAYS, request=guid("r1"), by="ann", now=NOW, why="old", idempotency_key=KEY)
    again = delete(
        saved_scope(first), "web_0", ALWAYS, request=guid("r2"), by="ann", now=LATER, why="old", idempotency_key=KEY
    )
    assert again == Change(first.scope, (), first.result)
    (event,) = saved_scope(first).events
    assert (event.type, event.why, (event.id,)) == (EventType.TERMINATE, "old", first.result)


def test_repeated_deletion_of_a_removed_vm_does_nothing() -> None:
    scope = a_scope([a_vm("web_0"), a_vm("web_1")])
    first = delete(scope, "web_0", ALWAYS, request=guid("r1"), by="ann", now=NOW, idempotency_key=KEY)
    back = saved_scope(add_vm(saved_scope(first), a_vm("web_0"), by="bob", now=LATER))
    again = delete(back, "web_0", ALWAYS, request=guid("r2"), by="ann", now=LATER, idempotency_key=KEY)
    assert again == Change(back, (), ())


def test_key_of_a_schedule_request_cannot_be_used_for_another_command() -> None:
    scope = saved_scope(
        schedule(a_scope([a_vm("web_0")]), a_request("web_0", key="k", digest="of the ask"), ALWAYS, now=NOW)
    )
    with pytest.raises(KeyConflict):
        apply_once(scope, IdempotencyKey("k", "d"), lambda value: hold(value, by="a", reason="r", now=NOW), now=NOW)
    held = saved_scope(
        apply_once(scope, IdempotencyKey("k2", "d"), lambda value: hold(value, by="a", reason="r", now=NOW), now=NOW)
    )
    with pytest.raises(KeyConflict):
        schedule(held, a_request("web_0", id=guid("other"), key="k2", digest="of the ask"), ALWAYS, now=NOW)


@pytest.mark.parametrize(
    ("key", "digest", "caller"),
    [
        ("", "d", ""),
        ("k" * (MAX_KEY_LENGTH + 1), "d", ""),
        ("a b", "d", ""),
        ("k", "d" * (DIGEST_LENGTH + 1), ""),
        ("k", "ü", ""),
        ("k", "d", "c" * (MAX_CALLER_LENGTH + 1)),
        ("k", "d", "ü"),
    ],
    ids=[
        "no key",
        "long key",
        "key with a space",
        "long digest",
        "digest that is not ASCII",
        "long caller",
        "caller that is not ASCII",
    ],
)
def test_key_digest_and_caller_have_limits(key: str, digest: str, caller: str) -> None:
    with pytest.raises(Invalid):
        IdempotencyKey(key, digest, caller)


@pytest.mark.parametrize(("before", "rule"), COMMANDS.values(), ids=COMMANDS)
def test_key_without_a_caller_belongs_to_every_caller(before: Callable[[], Scope], rule: Rule) -> None:
    """Older versions stored such keys; their digests tell whether a request is repeated."""
    first = saved_scope(apply_once(before(), KEY, rule, now=LATER))
    assert apply_once(first, IdempotencyKey(KEY.key, KEY.digest, "tk_ann"), rule, now=LATER) == Change(first, (), False)
    with pytest.raises(KeyConflict):
        apply_once(first, IdempotencyKey(KEY.key, "d2", "tk_bob"), rule, now=LATER)


def test_full_scope_has_room_for_every_key_that_it_may_have_to_remember() -> None:
    """A full `ended` list is included in the size from the start, so no command is refused because of its key."""
    scope = a_scope([a_vm(f"vm-{n}") for n in range(200)])
    number = 0
    while True:
        ask = a_request(*(f"vm-{n}" for n in range(200)), id=guid(number), description="d" * 400)
        try:
            scope = saved_scope(schedule(scope, ask, ALWAYS, now=NOW))
        except ScopeTooLarge:
            break
        number += 1
    largest = 0
    for n in range(MAX_RECENT_ITEMS + 1):
        asked = IdempotencyKey(f"{n:04}".ljust(MAX_KEY_LENGTH, "k"), "d" * DIGEST_LENGTH, "c" * MAX_CALLER_LENGTH)
        scope = saved_scope(
            apply_once(scope, asked, lambda value: hold(value, by="a" * 60, reason="r" * 500, now=LATER), now=LATER)
        )
        largest = max(largest, len(msgspec.json.encode(scope)))
    assert len(scope.seen_keys) == MAX_RECENT_ITEMS
    assert largest <= MAX_RECORD_BYTES
