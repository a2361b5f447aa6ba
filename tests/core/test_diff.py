"""Diffs of scopes and VMs: the changed fields, with the old and the new value as text."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from forewarn.core.diff import SCOPE_FIELDS, VM_FIELDS, changed_field_names, diff_scopes, diff_vms
from forewarn.core.event import EventType
from forewarn.core.scope import ApprovalRule, Scope, ScopeKind
from forewarn.core.vm import Address, Os, Priority, Traits, Vm
from tests.core.builders import NOW, a_vm, guid

SCOPE = Scope(id="web", kind=ScopeKind.AVAILABILITY_SET, epoch="e1", changed_at=NOW)
VM = a_vm("web-0")

ADDRESSES = (Address(ip="10.0.0.4"), Address(ip="fe80::1", network="prod", mac="00:0d:3a:12:34:56"))


@pytest.mark.parametrize(
    ("fields", "diff"),
    [
        ({}, {}),
        ({"host": "hv-1"}, {"host": ("", "hv-1")}),
        ({"role_instance": True}, {"role_instance": ("no", "yes")}),
        ({"update_domain": 3, "fault_domain": 1}, {"update_domain": ("0", "3"), "fault_domain": ("0", "1")}),
        ({"addresses": ADDRESSES}, {"addresses": ("", "10.0.0.4, fe80::1@prod (00:0d:3a:12:34:56)")}),
        ({"vm_id": guid("other")}, {"vm_id": (guid("web-0"), guid("other"))}),
    ],
    ids=["equal", "host", "role instance", "domains", "addresses", "id"],
)
def test_diff_of_vms_has_the_changed_fields_only(fields: dict[str, Any], diff: dict[str, tuple[str, str]]) -> None:
    changed = msgspec.structs.replace(VM, **fields)
    assert diff_vms(VM, changed) == diff
    assert changed_field_names(VM, changed) == list(diff)


def test_diff_of_traits_has_each_changed_trait_under_its_own_name() -> None:
    traits = Traits(
        priority=Priority.LOW, terminate_notice=timedelta(minutes=7, seconds=30), os=Os.LINUX, tags={"b": "2", "a": "1"}
    )
    changed = msgspec.structs.replace(VM, host="hv-1", traits=traits)
    expected = {
        "host": ("", "hv-1"),
        "priority": ("", "low"),
        "terminate_notice": ("", "7m30s"),
        "os": ("", "linux"),
        "tags": ("", "a=1, b=2"),
    }
    assert diff_vms(VM, changed) == expected
    assert changed_field_names(VM, changed) == list(expected)


def test_diff_of_scopes_has_kind_rules_and_traits() -> None:
    changed = msgspec.structs.replace(
        SCOPE,
        kind=ScopeKind.PLACEMENT_GROUP,
        approval=ApprovalRule.ALL,
        auto_approve=(EventType.REBOOT, EventType.REDEPLOY),
        scale_set="set",
        placement_group=guid("group"),
        traits=Traits(zone="2"),
    )
    assert diff_scopes(SCOPE, changed) == {
        "kind": ("availability-set", "placement-group"),
        "approval": ("any", "all"),
        "auto_approve": ("", "Reboot, Redeploy"),
        "scale_set": ("", "set"),
        "placement_group": ("", guid("group")),
        "zone": ("", "2"),
    }


def test_diff_of_scopes_does_not_compare_vms_and_state() -> None:
    changed = msgspec.structs.replace(SCOPE, incarnation=7, entries=3, enabled=True)
    assert diff_scopes(SCOPE, changed) == {}


def test_every_configured_field_of_a_vm_is_compared() -> None:
    """A field that is missing here could be changed by a fleet file without a word in the journal."""
    assert {*VM_FIELDS} == {*Vm.__struct_fields__} - {"name", "traits"}


def test_every_configured_field_of_a_scope_is_compared() -> None:
    state = {"id", "kind", "epoch", "changed_at", "entries", "roster", "traits", "incarnation", "events", "enabled"}
    state |= {"was_enabled", "seen_at", "hold", "ended", "seen_keys"}
    assert {*SCOPE_FIELDS} == {*Scope.__struct_fields__} - state
