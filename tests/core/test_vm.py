"""VMs, addresses, traits and rosters."""

import re
from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

import msgspec
import pytest

from forewarn.core.errors import Invalid, ResourceExists
from forewarn.core.limits import MAX_DOMAIN
from forewarn.core.vm import MAX_TAGS, NO_TRAITS, Address, Roster, Traits, Vm
from tests.core.builders import a_vm


@pytest.mark.parametrize(
    "text",
    [
        *(f"10.0.0.{octet}" for octet in (0, 9, 10, 99, 100, 199, 200, 249, 250, 255, 256, 260, 300, 1000)),
        *("0.0.0.0", "255.255.255.255", "256.0.0.1", "10.0.0", "10.0.0.0.1", "10.0.0.", ".10.0.0.1", "10.0.0.1\n"),
        *("010.0.0.1", "10.0.0.01", "00.0.0.0", "10.0.0.-1", "10.0.0.+1", "1٠.0.0.1", "10,0,0,1", "10x0.0.1", ""),
    ],
)
def test_ipv4_address_is_accepted_only_in_canonical_form(text: str) -> None:
    try:
        is_canonical = str(ip_address(text)) == text
    except ValueError:
        is_canonical = False
    if is_canonical:
        assert Address(ip=text).ip == text
    else:
        with pytest.raises(Invalid):
            Address(ip=text)


def changed(value: Any, **fields: Any) -> Callable[[], object]:
    return lambda: msgspec.structs.replace(value, **fields)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "name with a slash": (lambda: a_vm("a/b"), "name: 'a/b': use 1 to 128 letters, digits"),
    "name that is empty": (lambda: a_vm(""), "name: ''"),
    "name that is too long": (lambda: a_vm("n" * 129), "name: 'nnn"),
    "name that begins with a dash": (lambda: a_vm("-rf"), "name: '-rf'"),
    "vm id that is no GUID": (changed(a_vm("v"), vm_id="1"), "vm_id: '1' is not a GUID"),
    "update domain below 0": (lambda: a_vm("v", update_domain=-1), "update_domain: must be 0 to 1000, got -1"),
    "fault domain below 0": (lambda: a_vm("v", fault_domain=-1), "fault_domain: must be 0 to 1000, got -1"),
    "host with a space": (lambda: a_vm("v", host="a b"), "host: 'a b'"),
    "17 addresses": (
        lambda: a_vm("v", addresses=(Address(ip="10.0.0.1"),) * 17),
        "addresses: 17 items: at most 16 are allowed",
    ),
    "two VMs of one name": (lambda: Roster((a_vm("v"), a_vm("V"))), "two VMs of one scope have the same name"),
    "address": (lambda: Address(ip="localhost"), "address 'localhost' is neither IPv4 nor IPv6"),
    "address written otherwise": (lambda: Address(ip="FE80::0:1"), "address 'FE80::0:1': write it as fe80::1"),
    "tag with a colon": (lambda: Traits(tags={"a:b": "c"}), "tag 'a:b': ':' and ';' separate tags"),
    "tag that is too long": (lambda: Traits(tags={"a": "c" * 513}), "tag 'a' has 513 characters"),
    "short terminate notice": (
        lambda: Traits(terminate_notice=timedelta(minutes=5) - timedelta.resolution),
        "terminate_notice: must be 5m to 15m",
    ),
    "long terminate notice": (
        lambda: Traits(terminate_notice=timedelta(minutes=15) + timedelta.resolution),
        "terminate_notice: must be 5m to 15m",
    ),
    "location that is too long": (lambda: Traits(location="x" * 513), "location: 513 characters"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_vm_is_refused(case: str) -> None:
    create, message = REFUSED[case]
    with pytest.raises(Invalid, match=re.escape(message)):
        create()


@pytest.mark.parametrize("name", ["a b\n\x1b[31m", "a/b", ""])
def test_refusal_has_an_invalid_name_once_and_escaped(name: str) -> None:
    """It gets to logs and terminals."""
    with pytest.raises(Invalid) as refused:
        a_vm(name)
    advice = "use 1 to 128 letters, digits, '.', '_', '-', beginning with a letter or digit"
    assert str(refused.value) == f"name: {name!r}: {advice}"


def test_largest_vm_is_accepted() -> None:
    addresses = tuple(Address(ip=f"10.0.0.{n}") for n in range(16))
    vm = a_vm("n" * 128, update_domain=MAX_DOMAIN, fault_domain=MAX_DOMAIN, host="h" * 128, addresses=addresses)
    assert msgspec.json.decode(msgspec.json.encode(vm), type=Vm) == vm


@pytest.mark.parametrize("field", ["update_domain", "fault_domain"])
def test_domain_above_the_largest_is_refused(field: str) -> None:
    with pytest.raises(Invalid, match=rf"{field}: must be 0 to {MAX_DOMAIN}, got {MAX_DOMAIN + 1} \(VM v\)"):
        a_vm("v", **{field: MAX_DOMAIN + 1})


@pytest.mark.parametrize("mac", ["00:0d:3a:12:34:56", "00-0D-3A-12-34-56", "000d3a123456", ""])
def test_mac_address_may_be_written_in_any_usual_form(mac: str) -> None:
    assert Address(ip="10.0.0.1", mac=mac).mac == mac


@pytest.mark.parametrize("mac", ["00:0d:3a:12:34", "00:0d:3a:12:34:5g", "00:0d:3a:12:34:56:78"])
def test_text_that_is_no_mac_address_is_refused(mac: str) -> None:
    with pytest.raises(Invalid, match=mac):
        Address(ip="10.0.0.1", mac=mac)


def test_number_of_tags_is_limited() -> None:
    tags = {f"t{n}": "v" for n in range(MAX_TAGS)}
    assert Traits(tags=tags).tags == tags
    with pytest.raises(Invalid, match=rf"{MAX_TAGS + 1} tags"):
        Traits(tags={**tags, "one-more": "v"})


def test_traits_without_values_are_those_of_the_scope() -> None:
    defaults = Traits(zone="1", tags={"a": "scope"})
    assert NO_TRAITS.with_defaults(defaults) == defaults
    assert defaults.with_defaults(NO_TRAITS) == defaults
    assert Traits(tags={}).with_defaults(defaults) == Traits(zone="1", tags={})


def test_roster_finds_a_vm_in_any_case() -> None:
    web, db = a_vm("Web"), a_vm("db")
    roster = Roster((web, db))
    assert (roster.find("wEB"), roster.find("nothing"), len(roster), list(roster)) == (web, None, 2, [web, db])


def test_roster_is_changed_by_copies() -> None:
    web, db = a_vm("web"), a_vm("db")
    roster = Roster((web,))
    moved = a_vm("web", host="hv-9")
    assert roster.with_vm(db) == Roster((web, db))
    assert roster.with_vm(db).with_replaced(moved) == Roster((moved, db))
    assert roster.with_vm(db).without("web") == Roster((db,))
    assert roster == Roster((web,))


def test_vm_of_a_known_name_is_not_added_to_a_roster() -> None:
    with pytest.raises(ResourceExists) as refused:
        Roster((a_vm("web"),)).with_vm(a_vm("WEB"))
    assert refused.value.resource == "VM WEB"


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: Address(ip="10.0.0.4", mac="00:0d"), "mac: '00:0d': write it as six pairs of hex digits"),
        (lambda: Address(ip="10.0.0.4", prefix=33), "prefix: 33 of 10.0.0.4: use 1 to 32, such as 24"),
        (lambda: Traits(tags={"a": "c" * 513}), "tags.a: tag 'a' has 513 characters"),
        (lambda: Traits(tags={"a:b": ""}), "tags.a:b: tag 'a:b': ':' and ';' separate tags"),
        (lambda: a_vm("v", host="a b"), "host: 'a b': use 1 to 128 letters"),
        (lambda: a_vm("a b"), "name: 'a b': use 1 to 128 letters"),
    ],
)
def test_refusal_begins_with_the_field(create: Callable[[], object], message: str) -> None:
    with pytest.raises(Invalid) as refusal:
        create()
    assert str(refusal.value).startswith(message)
    assert refusal.value.field == message.partition(": ")[0]
    assert str(refusal.value).endswith(" (VM v)") == message.startswith("host")
