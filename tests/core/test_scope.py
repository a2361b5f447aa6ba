"""Scopes: lookup of VMs and events, what a scope refuses, and records of older versions."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from forewarn.core.errors import Invalid, ScopeEventNotFound, ScopeVmNotFound
from forewarn.core.event import EventType
from forewarn.core.limits import (
    MAX_RECENT_AGE,
)
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.schedule import schedule
from forewarn.core.scope import EndedEvent, EventOutcome, Hold, Scope, ScopeKind, SeenKey, migrate
from forewarn.core.vm import Address, Os, Priority, Traits
from tests.core.builders import NOW, a_request, a_scope, a_vm, guid, saved_scope


def test_text_with_an_unpaired_surrogate_is_refused() -> None:
    with pytest.raises(Invalid, match="reason is not valid Unicode"):
        Hold(by="alice", at=NOW, reason="half a pair: \ud83d")


ALWAYS = RuleContext(policy=EMULATOR)


def test_vm_inherits_unset_traits_from_its_scope() -> None:
    own = Traits(priority=Priority.REGULAR, zone="2", tags={"a": "own", "b": "own"})
    base = Traits(
        priority=Priority.LOW,
        terminate_notice=timedelta(minutes=6),
        location="here",
        zone="1",
        resource_group="group",
        subscription="sub",
        os=Os.WINDOWS,
        tags={"a": "base", "c": "base"},
    )
    scope = a_scope([a_vm("v0", traits=own)], traits=base)
    assert scope.traits_of(scope.vm("V0")) == Traits(
        priority=Priority.REGULAR,
        terminate_notice=timedelta(minutes=6),
        location="here",
        zone="2",
        resource_group="group",
        subscription="sub",
        os=Os.WINDOWS,
        tags={"a": "own", "b": "own", "c": "base"},
    )


def test_scope_is_decoded_as_it_was_encoded() -> None:
    scope = a_scope(
        [
            a_vm(
                "v0",
                role_instance=True,
                update_domain=3,
                fault_domain=2,
                host="hv-0",
                addresses=(Address(ip="10.0.0.4", network="prod", mac="00:0d:3a:12:34:56"),),
                traits=Traits(tags={"k": "ü"}, terminate_notice=timedelta(minutes=7, seconds=30)),
            )
        ],
        scale_set="set",
        placement_group=guid("group"),
    )
    ask = a_request("v0", duration=timedelta(seconds=1.5), key="k")
    scope = saved_scope(schedule(scope, ask, ALWAYS, now=NOW.replace(microsecond=123)))
    assert msgspec.json.decode(msgspec.json.encode(scope), type=Scope) == scope


def test_record_with_an_invalid_value_is_not_decoded() -> None:
    encoded = msgspec.json.encode(a_scope([a_vm("v0")])).replace(b'"v0"', b'"v 0"')
    with pytest.raises(msgspec.ValidationError, match="name: 'v 0'"):
        msgspec.json.decode(encoded, type=Scope)


def changed(value: Any, **fields: Any) -> Callable[[], object]:
    return lambda: msgspec.structs.replace(value, **fields)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "epoch that is empty": (changed(a_scope(), epoch=""), "an epoch must be 1 to 32"),
    "epoch with a quote": (changed(a_scope(), epoch='"'), "an epoch must be 1 to 32"),
    "scale set": (changed(a_scope(), scale_set="a b"), "scale set 'a b'"),
    "placement group": (changed(a_scope(), placement_group="x"), "placement_group 'x' is not a GUID"),
    "auto-approved Freeze": (
        changed(a_scope(), auto_approve=(EventType.FREEZE,)),
        "auto_approve takes Reboot and Redeploy, not Freeze",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_scope_is_refused(case: str) -> None:
    create, message = REFUSED[case]
    with pytest.raises(Invalid, match=re.escape(message)):
        create()


def test_standalone_scope_has_one_vm() -> None:
    a_scope([a_vm("v0")], kind=ScopeKind.STANDALONE)
    with pytest.raises(Invalid, match="web"):
        a_scope([a_vm("v0"), a_vm("v1")], kind=ScopeKind.STANDALONE)


def test_vms_are_found_by_their_names_in_any_case_each_once() -> None:
    vms = [a_vm("v0"), a_vm("v1"), a_vm("v2")]
    scope = a_scope(vms)
    assert (scope.vm("V1"), scope.vms(["v2", "V0", "V2"])) == (vms[1], (vms[2], vms[0]))
    for look_up in (scope.vm, lambda name: scope.vms(["v0", name])):
        with pytest.raises(ScopeVmNotFound) as missing:
            look_up("v9")
        assert (missing.value.vm, missing.value.scope) == ("v9", "web")


def test_events_are_found_by_their_ids_in_any_case() -> None:
    scope = saved_scope(schedule(a_scope([a_vm("v0"), a_vm("v1")]), a_request("v0"), ALWAYS, now=NOW))
    (event,) = scope.events
    assert (scope.event(event.id.lower()), scope.find_event(event.id.lower())) == (event, event)
    assert (scope.events_affecting("v0"), scope.events_affecting("v1")) == ((event,), ())
    assert scope.find_event(guid("other")) is None
    with pytest.raises(ScopeEventNotFound) as missing:
        scope.event(guid("other"))
    assert (missing.value.event, missing.value.scope) == (guid("other"), "web")


def test_ended_event_is_known_by_its_id_in_any_case() -> None:
    ended = EndedEvent(id=guid("event"), request=guid("request"), at=NOW, outcome=EventOutcome.CANCELED)
    scope = a_scope(ended=(ended,))
    assert (scope.has_ended(guid("event").lower()), scope.has_ended(guid("other"))) == (True, False)


def test_key_is_known_for_a_day_by_the_later_of_clock_and_scope() -> None:
    scope = msgspec.structs.replace(a_scope(), seen_keys=(SeenKey(key="k", request=guid("request"), at=NOW),))
    assert scope.has_seen_key("k", now=NOW + MAX_RECENT_AGE - timedelta.resolution)
    assert not scope.has_seen_key("k", now=NOW + MAX_RECENT_AGE)
    assert not scope.has_seen_key("other", now=NOW)
    later = msgspec.structs.replace(scope, changed_at=NOW + MAX_RECENT_AGE)
    assert not later.has_seen_key("k", now=NOW)


def test_vm_has_low_priority_by_itself_or_by_its_scope() -> None:
    low, regular = Traits(priority=Priority.LOW), Traits(priority=Priority.REGULAR)
    vms = [a_vm("default"), a_vm("low", traits=low), a_vm("regular", traits=regular)]
    for traits, expected in ((Traits(), ["low"]), (low, ["default", "low"])):
        scope = a_scope(vms, traits=traits)
        assert [vm.name for vm in vms if scope.is_low_priority(vm)] == expected


@pytest.mark.parametrize(
    ("kind", "names"), [(ScopeKind.AVAILABILITY_SET, ("role",)), (ScopeKind.CLOUD_SERVICE, ("role", "left"))]
)
def test_event_saved_by_an_older_version_learns_its_role_instances(kind: ScopeKind, names: tuple[str, ...]) -> None:
    """A VM that has left is a role instance where the scope is a cloud service."""
    scope = a_scope([a_vm("role", role_instance=True), a_vm("plain"), a_vm("left")], kind=kind)
    scope = saved_scope(schedule(scope, a_request("role", "plain", "left"), ALWAYS, now=NOW))
    (event,) = scope.events
    old = msgspec.structs.replace(
        scope, events=(msgspec.structs.replace(event, role_instances=None),), roster=scope.roster.without("left")
    )
    (migrated,) = migrate(old).events
    assert migrated == msgspec.structs.replace(event, role_instances=names)


def test_scope_of_this_version_is_not_migrated() -> None:
    scope = saved_scope(schedule(a_scope([a_vm("v0")]), a_request("v0"), ALWAYS, now=NOW))
    assert migrate(scope) is scope
