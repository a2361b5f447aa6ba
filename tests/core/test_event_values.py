"""Values refuse to be made wrong, and are read as they were written."""

import itertools
import re
from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

import msgspec
import pytest

from forewarn.core.errors import CoreError, Invalid
from forewarn.core.event import Cause, Event, EventType, Source, State
from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.impact import Done, Retry
from forewarn.core.inventory import create_scope
from forewarn.core.policy import EMULATOR, Policy, RuleContext
from forewarn.core.schedule import schedule
from forewarn.core.scope import Scope
from forewarn.core.vm import Address, Os, Priority, Roster, Traits
from tests.core.builders import NOW, a_request, a_scope, a_vm, guid, saved_scope

ALWAYS = RuleContext(policy=EMULATOR)
EVENT = saved_scope(schedule(a_scope([a_vm("v0")]), a_request("v0"), ALWAYS, now=NOW)).events[0]


def changed(value: Any, **fields: Any) -> Callable[[], object]:
    return lambda: msgspec.structs.replace(value, **fields)


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "name with a slash": (lambda: a_vm("a/b"), "VM name 'a/b': use 1 to 128 letters, digits"),
    "name that is empty": (lambda: a_vm(""), "VM name ''"),
    "name that is too long": (lambda: a_vm("n" * 129), "VM name 'nnn"),
    "name that begins with a dash": (lambda: a_vm("-rf"), "VM name '-rf'"),
    "vm id that is no GUID": (changed(a_vm("v"), vm_id="1"), "VM v: vm_id '1' is not a GUID"),
    "update domain below 0": (lambda: a_vm("v", update_domain=-1), "VM v: domains are counted from 0"),
    "fault domain below 0": (lambda: a_vm("v", fault_domain=-1), "VM v: domains are counted from 0"),
    "host with a space": (lambda: a_vm("v", host="a b"), "host 'a b'"),
    "17 addresses": (lambda: a_vm("v", addresses=(Address(ip="10.0.0.1"),) * 17), "VM v: at most 16 addresses"),
    "two VMs of one name": (lambda: Roster((a_vm("v"), a_vm("V"))), "two VMs of one scope have the same name"),
    "address": (lambda: Address(ip="localhost"), "address 'localhost' is neither IPv4 nor IPv6"),
    "address written otherwise": (lambda: Address(ip="FE80::0:1"), "address 'FE80::0:1': write it as fe80::1"),
    "tag with a colon": (lambda: Traits(tags={"a:b": "c"}), "tag 'a:b': ':' and ';' separate tags"),
    "tag that is too long": (lambda: Traits(tags={"a": "c" * 513}), "tag a has 513 characters"),
    "short terminate notice": (
        lambda: Traits(terminate_notice=timedelta(minutes=5) - timedelta.resolution),
        "terminate_notice is 5 to 15 minutes",
    ),
    "long terminate notice": (
        lambda: Traits(terminate_notice=timedelta(minutes=15) + timedelta.resolution),
        "terminate_notice is 5 to 15 minutes",
    ),
    "location that is too long": (lambda: Traits(location="x" * 513), "location has 513 characters"),
    "epoch that is empty": (changed(a_scope(), epoch=""), "an epoch is 1 to 32"),
    "epoch with a quote": (changed(a_scope(), epoch='"'), "an epoch is 1 to 32"),
    "scale set": (changed(a_scope(), scale_set="a b"), "scale set 'a b'"),
    "placement group": (changed(a_scope(), placement_group="x"), "placement_group 'x' is not a GUID"),
    "auto-approved Freeze": (
        changed(a_scope(), auto_approve=(EventType.FREEZE,)),
        "auto_approve takes Reboot and Redeploy, not Freeze",
    ),
    "event id in lower case": (changed(EVENT, id=EVENT.id.lower()), "is not an upper-case GUID"),
    "event without VMs": (changed(EVENT, vms=()), "an event affects at least one VM"),
    "event that is gone": (changed(EVENT, state=State.GONE), "an event that is kept is Scheduled or Started, not gone"),
    "negative duration": (changed(EVENT, duration=timedelta(seconds=-1)), "duration cannot be negative"),
    "request id": (lambda: a_request("v0", id="1"), "request id '1' is not a GUID"),
    "request without VMs": (a_request, "name at least one VM"),
    "two times": (
        lambda: a_request("v0", not_before=NOW, notice=timedelta(0)),
        "say not_before or notice, not both",
    ),
    "digest that is too long": (lambda: a_request("v0", digest="d" * 17), "a digest is at most 16 ASCII characters"),
    "failure with notice": (
        lambda: a_request("v0", failure=True, notice=timedelta(0)),
        "a hardware failure comes without notice, and from the platform",
    ),
    "failure of a user's": (
        lambda: a_request("v0", failure=True, source=Source.USER),
        "a hardware failure comes without notice, and from the platform",
    ),
    "endless pause": (lambda: Retry(timedelta(days=8)), "a pause is 0 to 7 days"),
    "negative notice": (lambda: a_request("v0", notice=timedelta(seconds=-1)), "notice is 0 to 366 days"),
    "failing Freeze": (
        lambda: a_request("v0", type=EventType.FREEZE, failure=True),
        "a hardware failure is a Reboot or Redeploy, not a Freeze",
    ),
    "policy without a notice": (lambda: Policy(minimum_notice={}), "minimum_notice says nothing for Freeze, Reboot"),
    "speed 0": (lambda: Policy(speed=0.0), "speed is a number above 0, not 0.0"),
    "speed that is no number": (lambda: Policy(speed=float("nan")), "speed is a number above 0, not nan"),
    "no user operations": (lambda: Policy(user_operations=0), "user_operations is at least 1"),
    "outcome on no host": (lambda: Done("a b"), "host 'a b'"),
    "new scope with events": (
        lambda: create_scope(msgspec.structs.replace(a_scope(), entries=1), by="test", now=NOW),
        "a new scope has no events and no journal",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_value_is_refused(case: str) -> None:
    make, message = WRONG[case]
    with pytest.raises(Invalid, match=re.escape(message)):
        make()


def test_every_cause_that_can_be_has_a_description() -> None:
    """One request of each kind that is allowed; the sentence is short, and ends like one."""
    vms = [a_vm("v0", traits=Traits(priority=Priority.LOW))]
    described: set[tuple[EventType, Cause]] = set()
    for type_, source, failure in itertools.product(EventType, Source, (False, True)):
        try:
            change = schedule(
                a_scope(vms), a_request("v0", type=type_, source=source, failure=failure), ALWAYS, now=NOW
            )
        except CoreError:
            continue
        (event,) = saved_scope(change).events
        described.add((event.type, event.cause))
        assert event.description == EVENT_TYPES[event.type].descriptions[event.cause]
        assert re.fullmatch(r"[A-Z][^;]{10,80}\.", event.description)
    assert described == {(type_, cause) for type_, spec in EVENT_TYPES.items() for cause in spec.descriptions}


def test_own_description_comes_first() -> None:
    (event,) = saved_scope(
        schedule(a_scope([a_vm("v0")]), a_request("v0", description="Mine."), ALWAYS, now=NOW)
    ).events
    assert event.description == "Mine."


def test_vm_takes_from_its_scope_what_it_does_not_say() -> None:
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


def test_scope_is_read_as_it_was_written() -> None:
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


@pytest.mark.parametrize(
    "text",
    [
        *(f"10.0.0.{octet}" for octet in (0, 9, 10, 99, 100, 199, 200, 249, 250, 255, 256, 260, 300, 1000)),
        *("0.0.0.0", "255.255.255.255", "256.0.0.1", "10.0.0", "10.0.0.0.1", "10.0.0.", ".10.0.0.1", "10.0.0.1\n"),
        *("010.0.0.1", "10.0.0.01", "00.0.0.0", "10.0.0.-1", "10.0.0.+1", "1٠.0.0.1", "10,0,0,1", "10x0.0.1", ""),
    ],
)
def test_ipv4_address_is_taken_exactly_if_python_writes_it_so(text: str) -> None:
    try:
        is_canonical = str(ip_address(text)) == text
    except ValueError:
        is_canonical = False
    if is_canonical:
        assert Address(ip=text).ip == text
    else:
        with pytest.raises(Invalid):
            Address(ip=text)


def test_record_with_a_wrong_value_is_not_read() -> None:
    encoded = msgspec.json.encode(a_scope([a_vm("v0")])).replace(b'"v0"', b'"v 0"')
    with pytest.raises(msgspec.ValidationError, match="VM name 'v 0'"):
        msgspec.json.decode(encoded, type=Scope)


def test_events_are_planned_by_their_cause_alone() -> None:
    planned = {cause for cause in Cause if planned_with(cause).is_planned}
    assert planned == {Cause.MAINTENANCE}


def planned_with(cause: Cause) -> Event:
    return msgspec.structs.replace(EVENT, cause=cause)
