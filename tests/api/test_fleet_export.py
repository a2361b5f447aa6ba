"""Export and import of a fleet file give the same fleet."""

import json
import pickle
import tomllib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.api.fleet_export import VMS_PER_CHUNK, write_fleet_json, write_fleet_toml
from forewarn.api.fleet_file import (
    CreationContext,
    FleetFormat,
    default_vm_id,
    demonstration_fleet,
    parse_fleet,
    read_fleet_file,
    read_fleet_json,
)
from forewarn.core.event import EventType
from forewarn.core.limits import MAX_DOMAIN
from forewarn.core.scope import ApprovalRule, Scope, ScopeKind
from forewarn.core.vm import Address, Os, Priority, Roster, Traits, Vm
from forewarn.settings.file_reader import FileError
from tests.support.examples import examples

NOW = datetime(2030, 1, 7, 10, tzinfo=UTC)
BIRTH = CreationContext(at=NOW, new_epoch=lambda: "e1")

T = TypeVar("T")
Write = Callable[[Iterable[Scope]], Iterator[str]]
Read = Callable[..., tuple[Scope, ...]]
FORMATS = [
    pytest.param(write_fleet_toml, read_fleet_file, id="toml"),
    pytest.param(write_fleet_json, read_fleet_json, id="json"),
]

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,12}", fullmatch=True)
TEXTS = st.text(max_size=20)
IDS = st.uuids().map(str)
DOMAINS = st.integers(0, MAX_DOMAIN)
TAGS = st.dictionaries(TEXTS.filter(lambda key: not set(key) & set(":;")), TEXTS, max_size=3)


def maybe(values: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    return st.none() | values


TRAITS = st.builds(
    Traits,
    priority=maybe(st.sampled_from(Priority)),
    terminate_notice=maybe(st.timedeltas(timedelta(minutes=5), timedelta(minutes=15))),
    location=maybe(TEXTS),
    zone=maybe(TEXTS),
    resource_group=maybe(TEXTS),
    subscription=maybe(TEXTS),
    os=maybe(st.sampled_from(Os)),
    tags=maybe(TAGS),
)


@st.composite
def fleets(draw: st.DrawFn) -> list[Scope]:
    """Generate scopes that a file can have: names, ids and addresses are unique."""
    names = draw(st.lists(NAMES, max_size=3, unique_by=str.casefold))
    addresses = iter(
        draw(st.permutations([f"10.0.0.{n}" for n in range(24)] + [f"fd00::{n + 1:x}" for n in range(24)]))
    )
    return [draw(_scope(name, addresses)) for name in names]


@st.composite
def _scope(draw: st.DrawFn, name: str, addresses: Iterator[str]) -> Scope:
    kind = draw(st.sampled_from(ScopeKind))
    most = 1 if kind is ScopeKind.STANDALONE else 4
    vms = draw(st.lists(NAMES, max_size=most, unique_by=str.casefold))
    return Scope(
        id=name,
        kind=kind,
        epoch="e1",
        changed_at=NOW,
        roster=Roster(tuple(draw(_vm(name, vm, addresses)) for vm in vms)),
        traits=draw(TRAITS),
        scale_set=draw(maybe(NAMES)),
        placement_group=draw(maybe(IDS)),
        approval=draw(st.sampled_from(ApprovalRule)),
        auto_approve=tuple(draw(st.lists(st.sampled_from([EventType.REBOOT, EventType.REDEPLOY]), unique=True))),
    )


@st.composite
def _vm(draw: st.DrawFn, scope: str, name: str, addresses: Iterator[str]) -> Vm:
    return Vm(
        name=name,
        vm_id=draw(IDS | st.just(default_vm_id(scope, name))),
        role_instance=draw(st.booleans()),
        update_domain=draw(DOMAINS),
        fault_domain=draw(DOMAINS),
        host=draw(maybe(NAMES)),
        addresses=tuple(
            Address(ip=next(addresses), network=draw(st.just("default") | NAMES), mac=draw(st.sampled_from(["", MAC])))
            for _ in range(draw(st.integers(0, 3)))
        ),
        traits=draw(TRAITS),
    )


MAC = "00:0d:3a:12:34:56"


@settings(deadline=None, max_examples=examples(60))
@given(fleets())
@pytest.mark.parametrize(("write", "read"), FORMATS)
def test_export_and_import_give_the_same_fleet(write: Write, read: Read, fleet: list[Scope]) -> None:
    assert list(read("".join(write(fleet)), file="f", context=BIRTH)) == fleet


@pytest.mark.parametrize(("write", "read"), FORMATS)
def test_export_and_import_give_the_same_demonstration_fleet(write: Write, read: Read) -> None:
    fleet = demonstration_fleet(BIRTH)
    assert read("".join(write(fleet)), file="f", context=BIRTH) == fleet


def test_both_formats_have_the_same_content() -> None:
    fleet = demonstration_fleet(BIRTH)
    assert tomllib.loads("".join(write_fleet_toml(fleet))) == json.loads("".join(write_fleet_json(fleet)))


def test_export_omits_default_values() -> None:
    vm = Vm(
        name="web-0",
        vm_id=default_vm_id("web", "web-0"),
        update_domain=1,
        host="hv-0",
        addresses=(Address(ip="10.0.0.4"), Address(ip="10.0.0.4", network="blue")),
        traits=Traits(tags={"team": "a", "cost centre": '"7"'}),
    )
    scope = Scope(
        id="web",
        kind=ScopeKind.AVAILABILITY_SET,
        epoch="e1",
        changed_at=NOW,
        roster=Roster((vm,)),
        approval=ApprovalRule.ALL,
        traits=Traits(priority=Priority.LOW, terminate_notice=timedelta(minutes=7)),
    )
    _, text = "".join(write_fleet_toml([scope])).split("\n", 1)
    assert text == (
        "\n[[scopes]]\n"
        'name = "web"\n'
        'kind = "availability-set"\n'
        'approval = "all"\n'
        'priority = "low"\n'
        'terminate_notice = "7m"\n'
        "vms = [\n"
        '    { name = "web-0", update_domain = 1, host = "hv-0", '
        'addresses = ["10.0.0.4", { ip = "10.0.0.4", network = "blue" }], '
        'tags = { team = "a", "cost centre" = "\\"7\\"" } },\n'
        "]\n"
    )


def test_export_yields_small_chunks() -> None:
    """Between the chunks of a large fleet the event loop can serve other requests."""
    vms = (Vm(name=f"v{n}", vm_id=default_vm_id("big", f"v{n}")) for n in range(3 * VMS_PER_CHUNK + 1))
    scope = Scope(id="big", kind=ScopeKind.CLOUD_SERVICE, epoch="e1", changed_at=NOW, roster=Roster(tuple(vms)))
    for write in (write_fleet_toml, write_fleet_json):
        assert max(piece.count("name") for piece in write([scope])) == VMS_PER_CHUNK
        assert len(list(write([scope]))) >= 4


@pytest.mark.parametrize(
    ("format_", "write"), [(FleetFormat.TOML, write_fleet_toml), (FleetFormat.JSON, write_fleet_json)]
)
def test_fleet_can_be_parsed_in_another_process(format_: FleetFormat, write: Write) -> None:
    fleet = demonstration_fleet(BIRTH)
    content = "".join(write(fleet)).encode()
    parsed = pickle.loads(pickle.dumps(parse_fleet(content, file="f", format_=format_, at=NOW)))
    scopes = [msgspec.json.decode(each, type=Scope) for each in parsed]
    assert [msgspec.structs.replace(scope, epoch="e1") for scope in scopes] == list(fleet)


@pytest.mark.parametrize(
    ("content", "format_", "problem"),
    [
        (b"\xff", FleetFormat.TOML, "not valid UTF-8"),
        (b"scopes = ", FleetFormat.TOML, "invalid TOML"),
        (b'{"scopes":', FleetFormat.JSON, "invalid JSON"),
        (b"[1]", FleetFormat.JSON, r"\[1\] is not allowed"),
        (b'{"scopes":[{"name":null}]}', FleetFormat.JSON, "use a name in quotes"),
        (b'{"scopes":[{"name":"a","kind":"x"}]}', FleetFormat.JSON, "scopes\\[0\\].kind"),
    ],
    ids=["bytes", "toml", "json", "not a table", "null", "wrong kind"],
)
def test_errors_of_a_file_can_be_pickled(content: bytes, format_: FleetFormat, problem: str) -> None:
    with pytest.raises(FileError, match=problem) as raised:
        parse_fleet(content, file="fleet.toml", format_=format_, at=NOW)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), vars(again)) == (str(raised.value), vars(raised.value))
