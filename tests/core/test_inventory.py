"""Inventory rules: add, change and remove VMs and scopes."""

import re
from collections.abc import Callable

import msgspec
import pytest

from forewarn.core.approval import approve
from forewarn.core.change import Change
from forewarn.core.errors import HostInUse, Invalid, ResourceExists, ResourceInUse
from forewarn.core.event import EventType, Source
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.impact import ImpactState
from forewarn.core.impact_lifecycle import Worker, begin
from forewarn.core.inventory import add_vm, change_scope, change_vm, create_scope, remove_scope, remove_vm
from forewarn.core.journal import EntryKind
from forewarn.core.limits import (
    MAX_VMS_PER_SCOPE,
)
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.schedule import schedule
from forewarn.core.scope import ApprovalRule, Scope, ScopeKind, SeenKey
from forewarn.core.vm import Address, Roster, Traits
from tests.core.builders import NOW, a_request, a_scope, a_vm, guid, saved_scope

ALWAYS = RuleContext(policy=EMULATOR)


def test_vm_above_the_limit_of_a_scope_is_refused() -> None:
    scope = a_scope([a_vm(f"v{index}") for index in range(MAX_VMS_PER_SCOPE)])
    with pytest.raises(Invalid, match="1001 VMs: a scope can have at most 1000"):
        add_vm(scope, a_vm("one-more"), by="test", now=NOW)


def test_tags_of_vm_and_scope_are_limited_together() -> None:
    tags = {f"t{index}": "v" for index in range(40)}
    more = {f"s{index}": "v" for index in range(11)}
    scope = a_scope([a_vm("v0")], traits=Traits(tags=tags))
    with pytest.raises(Invalid, match="51 tags: at most 50 are allowed"):
        add_vm(scope, a_vm("v1", traits=Traits(tags=more)), by="test", now=NOW)
    with pytest.raises(Invalid, match="51 tags: at most 50 are allowed"):
        change_vm(scope, a_vm("v0", traits=Traits(tags=more)), ALWAYS, by="test", now=NOW)
    with pytest.raises(Invalid, match="51 tags: at most 50 are allowed"):
        a_scope([a_vm("v0", traits=Traits(tags=more))], traits=Traits(tags=tags))


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "new scope with events": (
        lambda: create_scope(msgspec.structs.replace(a_scope(), entries=1), by="test", now=NOW),
        "a new scope must have no events and no journal",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_scope_that_is_not_new_is_refused(case: str) -> None:
    create, message = REFUSED[case]
    with pytest.raises(Invalid, match=re.escape(message)):
        create()


def with_event(scope: Scope, *vms: str, **fields: object) -> Scope:
    return saved_scope(schedule(scope, a_request(*vms, **fields), ALWAYS, now=NOW))


def kinds(change: Change[None]) -> list[EntryKind]:
    return [entry.kind for entry in change.entries]


def test_created_scope_has_its_vms_in_the_journal() -> None:
    new = Scope(id="web", kind=ScopeKind.AVAILABILITY_SET, epoch="e1", changed_at=NOW, roster=Roster((a_vm("v0"),)))
    change = create_scope(new, by="ann", now=NOW)
    assert change.scope == msgspec.structs.replace(new, entries=1)
    assert [(entry.kind, entry.vms, entry.facts) for entry in change.entries] == [
        (EntryKind.SCOPE_CREATED, ("v0",), {"kind": "availability-set"})
    ]


def test_created_scope_and_its_journal_remember_the_key_of_the_request() -> None:
    new = Scope(id="web", kind=ScopeKind.AVAILABILITY_SET, epoch="e1", changed_at=NOW)
    change = create_scope(new, by="ann", now=NOW, idempotency_key=IdempotencyKey("k", "digest"))
    assert saved_scope(change).seen_keys == (SeenKey(key="k", request="", at=NOW, digest="digest"),)
    assert change.entries[-1].facts == {"kind": "availability-set", "key": "k", "digest": "digest"}


def test_address_has_one_owner_in_its_network() -> None:
    address = Address(ip="10.0.0.4")
    scope = a_scope([a_vm("v0", addresses=(address,)), a_vm("v1")])
    with pytest.raises(ResourceExists):
        add_vm(scope, a_vm("v2", addresses=(address,)), by="ann", now=NOW)
    with pytest.raises(ResourceExists):
        change_vm(scope, a_vm("v1", addresses=(address,)), ALWAYS, by="ann", now=NOW)
    elsewhere = a_vm("v2", addresses=(Address(ip="10.0.0.4", network="other"),))
    assert saved_scope(add_vm(scope, elsewhere, by="ann", now=NOW)).vm("v2") == elsewhere


def test_vm_is_added_once() -> None:
    change = add_vm(a_scope(), a_vm("v0"), by="ann", now=NOW)
    assert (saved_scope(change).roster, kinds(change)) == (Roster((a_vm("v0"),)), [EntryKind.VM_ADDED])
    with pytest.raises(ResourceExists):
        add_vm(saved_scope(change), a_vm("V0"), by="ann", now=NOW)


def test_changed_fields_of_a_vm_are_in_the_journal() -> None:
    scope = a_scope([a_vm("v0")])
    changed = a_vm("v0", fault_domain=2, traits=Traits(zone="1"))
    change = change_vm(scope, changed, ALWAYS, by="ann", now=NOW)
    assert saved_scope(change).vm("v0") == changed
    assert [(entry.kind, entry.facts) for entry in change.entries] == [
        (EntryKind.VM_CHANGED, {"fields": "fault_domain, zone"})
    ]
    assert change_vm(scope, a_vm("v0"), ALWAYS, by="ann", now=NOW).scope is scope


def test_changed_vm_keeps_the_case_of_its_name() -> None:
    change = change_vm(a_scope([a_vm("Web")]), a_vm("WEB", fault_domain=1), ALWAYS, by="ann", now=NOW)
    assert [(vm.name, vm.fault_domain) for vm in saved_scope(change).roster] == [("Web", 1)]


def test_update_domain_does_not_change_while_an_event_affects_the_vm() -> None:
    scope = with_event(a_scope([a_vm("v0")]), "v0")
    with pytest.raises(ResourceInUse) as refused:
        change_vm(scope, a_vm("v0", update_domain=1), ALWAYS, by="ann", now=NOW)
    assert refused.value.events == (scope.events[0].id,)


def test_maintenance_of_the_old_host_does_not_follow_a_vm() -> None:
    scope = with_event(a_scope([a_vm("v0", host="hv-0"), a_vm("v1", host="hv-0")]), "v0", "v1")
    change = change_vm(scope, a_vm("v0", host="hv-1"), ALWAYS, by="ann", now=NOW)
    assert [event.vms for event in saved_scope(change).events] == [("v1",)]
    assert kinds(change) == [EntryKind.VM_MOVED, EntryKind.SHRUNK]


def test_event_of_a_user_follows_its_vm_to_the_new_host() -> None:
    scope = a_scope([a_vm("v0", host="hv-0"), a_vm("v1", host="hv-0")])
    scope = with_event(scope, "v0", "v1", source=Source.USER)
    change = change_vm(scope, a_vm("v0", host="hv-1"), ALWAYS, by="ann", now=NOW)
    assert [(event.vms, event.host) for event in saved_scope(change).events] == [(("v1",), "hv-0"), (("v0",), "hv-1")]
    assert kinds(change) == [EntryKind.VM_MOVED, EntryKind.SHRUNK, EntryKind.SCHEDULED]


def test_event_of_a_single_vm_gets_the_new_host() -> None:
    scope = with_event(a_scope([a_vm("v0", host="hv-0")]), "v0", source=Source.USER)
    change = change_vm(scope, a_vm("v0", host="hv-1"), ALWAYS, by="ann", now=NOW)
    assert saved_scope(change).events == (msgspec.structs.replace(scope.events[0], host="hv-1"),)
    assert kinds(change) == [EntryKind.VM_MOVED]


def test_maintenance_follows_a_vm_whose_host_was_not_known() -> None:
    scope = with_event(a_scope([a_vm("v0")]), "v0")
    (event,) = saved_scope(change_vm(scope, a_vm("v0", host="hv-1"), ALWAYS, by="ann", now=NOW)).events
    assert event == msgspec.structs.replace(scope.events[0], host="hv-1")


def test_vm_with_open_events_is_removed_by_force_only() -> None:
    scope = with_event(a_scope([a_vm("v0"), a_vm("v1")]), "v0", "v1")
    with pytest.raises(ResourceInUse):
        remove_vm(scope, "v0", ALWAYS, by="ann", now=NOW)
    change = remove_vm(scope, "V0", ALWAYS, by="ann", now=NOW, why="old", force=True)
    assert ([vm.name for vm in saved_scope(change).roster], saved_scope(change).events[0].vms) == (["v1"], ("v1",))
    last = remove_vm(saved_scope(change), "v1", ALWAYS, by="ann", now=NOW, force=True)
    assert kinds(last) == [EntryKind.VM_REMOVED, EntryKind.CANCELED]
    assert last.entries[-1].facts == {"dropped": "v1"}


def test_work_on_a_removed_vm_is_over() -> None:
    scope = with_event(a_scope([a_vm("v0"), a_vm("v1")]), "v0", "v1", failure=True)
    change = remove_vm(scope, "v0", ALWAYS, by="ann", now=NOW, force=True)
    assert [impact.state for impact in saved_scope(change).events[0].impacts] == [
        ImpactState.GONE,
        ImpactState.PENDING,
    ]
    last = remove_vm(saved_scope(change), "v1", ALWAYS, by="ann", now=NOW, force=True)
    assert kinds(last) == [EntryKind.VM_REMOVED, EntryKind.FAILED]


def test_standalone_scope_is_removed_with_its_vm() -> None:
    scope = a_scope([a_vm("v0")], kind=ScopeKind.STANDALONE)
    change = remove_vm(scope, "v0", ALWAYS, by="ann", now=NOW)
    assert (change.scope, kinds(change)) == (None, [EntryKind.VM_REMOVED, EntryKind.SCOPE_REMOVED])


def test_scope_with_open_events_is_removed_by_force_only() -> None:
    scope = with_event(with_event(a_scope([a_vm("v0")]), "v0"), "v0", id=guid("failure"), failure=True)
    with pytest.raises(ResourceInUse) as refused:
        remove_scope(scope, by="ann", now=NOW)
    assert refused.value.events == tuple(event.id for event in scope.events)
    change = remove_scope(scope, by="ann", now=NOW, why="gone", force=True)
    assert change.scope is None
    assert [(entry.kind, entry.why) for entry in change.entries] == [
        (EntryKind.CANCELED, "gone"),
        (EntryKind.FAILED, "gone"),
        (EntryKind.SCOPE_REMOVED, "gone"),
    ]


def test_changed_fields_of_a_scope_are_in_the_journal() -> None:
    scope = a_scope([a_vm("v0")])
    change = change_scope(scope, ALWAYS, by="ann", now=NOW, approval=ApprovalRule.ALL, auto_approve=(EventType.REBOOT,))
    assert (saved_scope(change).approval, saved_scope(change).auto_approve) == (ApprovalRule.ALL, (EventType.REBOOT,))
    assert [(entry.kind, entry.why) for entry in change.entries] == [
        (EntryKind.SCOPE_CHANGED, "approval, auto_approve")
    ]
    assert change_scope(scope, ALWAYS, by="ann", now=NOW, approval=ApprovalRule.ANY).scope is scope


def test_changed_approval_rule_starts_what_has_enough_approvals_now() -> None:
    scope = with_event(a_scope([a_vm("v0"), a_vm("v1")], approval=ApprovalRule.ALL), "v0", "v1")
    scope = saved_scope(approve(scope, "v0", [scope.events[0].id], ALWAYS, now=NOW))
    change = change_scope(scope, ALWAYS, by="ann", now=NOW, approval=ApprovalRule.ANY)
    assert kinds(change) == [EntryKind.SCOPE_CHANGED, EntryKind.STARTED]


def test_vm_of_an_older_record_keeps_what_a_new_one_could_not_have() -> None:
    """A zone index, one address twice, and the id of another VM do not prevent other changes."""
    twice = (Address(ip="fe80::1%eth0"), Address(ip="fe80::1%eth0"))
    old = msgspec.structs.replace(a_vm("web_0"), addresses=twice)
    other = msgspec.structs.replace(a_vm("web_1"), vm_id=old.vm_id.upper())
    scope = msgspec.structs.replace(a_scope(), roster=Roster((old, other)))
    moved = msgspec.structs.replace(old, fault_domain=3)
    change = change_vm(scope, moved, RuleContext(policy=EMULATOR), by="ann", now=NOW)
    assert saved_scope(change).vm("web_0") == moved
    for wrong in ((Address(ip="fe80::2%eth0"),), (Address(ip="10.0.0.1"), Address(ip="10.0.0.1"))):
        with pytest.raises(Invalid):
            change_vm(
                scope,
                msgspec.structs.replace(old, addresses=wrong),
                RuleContext(policy=EMULATOR),
                by="ann",
                now=NOW,
            )


def test_id_of_another_vm_is_refused_in_any_case() -> None:
    scope = a_scope([a_vm("web_0")])
    vm = msgspec.structs.replace(a_vm("web_1"), vm_id=a_vm("web_0").vm_id.upper())
    with pytest.raises(ResourceExists, match=r"vm_id .*, of VM web_0,"):
        add_vm(scope, vm, by="ann", now=NOW)


def test_host_cannot_change_while_a_host_works_on_the_vm() -> None:
    scope = a_scope([a_vm("v0", host="hv-0")])
    change = schedule(scope, a_request("v0", failure=True), ALWAYS, now=NOW)
    scope, (event,) = saved_scope(change), change.result
    moved = a_vm("v0", host="hv-1")
    outside_a_cluster = saved_scope(begin(scope, event, "v0", now=NOW))
    assert saved_scope(change_vm(outside_a_cluster, moved, ALWAYS, by="test", now=NOW)).vm("v0").host == "hv-1"
    begun = saved_scope(begin(scope, event, "v0", now=NOW, worker=Worker("hv-0", 1)))
    with pytest.raises(HostInUse) as refused:
        change_vm(begun, moved, ALWAYS, by="test", now=NOW)
    assert refused.value.details == {"vm": "web/v0", "host": "hv-0", "event": event}
    tagged = a_vm("v0", host="hv-0", traits=Traits(tags={"a": "b"}))
    assert saved_scope(change_vm(begun, tagged, ALWAYS, by="test", now=NOW)).vm("v0").traits.tags == {"a": "b"}
