"""Options of a campaign: one for each key of the campaign file, derived automatically."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner

from forewarn.api import v1
from forewarn.api.campaign_file import parse_campaign, read_campaign
from forewarn.api.errors import RequestRefused
from forewarn.api.v1.campaign_spec import spec_from_request, spec_request
from forewarn.cli.errors import KEY_PATH, CliError, ExitCode
from forewarn.cli.options.campaign import OPTIONS, TABLES, campaign_from_options, read_document, with_campaign
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.options.field_option import FieldOption
from forewarn.core.campaign.spec import CampaignPolicy, HttpCheck, Limit, Selection, WaveKind

KEYS = [(table, key) for table, struct in TABLES.items() for key in struct.__struct_fields__ if key not in TABLES]
"""Every key of a campaign, with its table."""

REQUIRED = {"name": "k", "type_": v1.CampaignType.REBOOT, "scopes": ("web",)}

TYPED: dict[tuple[str, str], tuple[Any, object]] = {
    ("", "name"): ("kernel", "kernel"),
    ("", "type"): (v1.CampaignType.FREEZE, v1.CampaignType.FREEZE),
    ("", "duration"): ("90s", timedelta(seconds=90)),
    ("", "description"): ("none", "none"),
    ("", "start_at"): ("2026-01-31T10:15Z", "2026-01-31T10:15:00Z"),
    ("selection", "scopes"): (("a", "b"), ("a", "b")),
    ("selection", "hosts"): (("hv-*",), ("hv-*",)),
    ("selection", "tags"): (("a=b", "c="), {"a": "b", "c": ""}),
    ("selection", "all"): (True, True),
    ("selection", "exclude_scopes"): (("a",), ("a",)),
    ("selection", "exclude_hosts"): (("a",), ("a",)),
    ("selection", "exclude_vms"): (("a",), ("a",)),
    ("selection", "exclude_tags"): (("a=b",), {"a": "b"}),
    ("policy", "waves"): (WaveKind.UPDATE_DOMAIN, WaveKind.UPDATE_DOMAIN),
    ("policy", "gap"): ("1h", timedelta(hours=1)),
    ("policy", "notice"): ("1h", timedelta(hours=1)),
    ("policy", "expected"): ("1h", timedelta(hours=1)),
    ("policy", "scopes_at_once"): ("10%", Limit(percent=10)),
    ("policy", "hosts_at_once"): ("10", Limit(number=10)),
    ("policy", "vms_at_once"): ("10", Limit(number=10)),
    ("policy", "windows"): (("sat 22:00-04:00",), "sat 22:00-04:00"),
    ("policy", "blackouts"): (("2026-01-31T10:15Z/2026-02-01T10:15Z",), "2026-01-31T10:15:00+00:00"),
    ("policy", "zone"): ("Europe/Vienna", "Europe/Vienna"),
    ("policy", "must_end_inside"): (True, True),
    ("policy", "gate"): ("http://h/", HttpCheck(url="http://h/")),
    ("policy", "gate_patience"): ("1h", timedelta(hours=1)),
    ("policy", "halt_after"): ("none", None),
    ("policy", "advance"): (False, False),
}
"""The typed value of each key, and the resulting value in the campaign."""


def typed(**values: Any) -> dict[str, Any]:
    return {each.parameter: values.get(each.parameter) for each in OPTIONS}


def build(file: Path | None, values: dict[str, Any]) -> v1.CampaignRequest:
    return campaign_from_options(read_document(file), values)


def option_of(table: str, key: str) -> FieldOption:
    (found,) = (each for each in OPTIONS if (each.table, each.key) == (table, key))
    return found


@pytest.mark.parametrize(("table", "key"), KEYS)
def test_key_has_an_option_of_its_name_with_a_help(table: str, key: str) -> None:
    """docs/reference/cli/campaign.md states the rule instead of repeating the options."""
    option = option_of(table, key)
    assert option.type.description.endswith(".")
    assert option.flag in {f"--{name.replace('_', '-')}" for name in (key, key.removesuffix("s"))}


@pytest.mark.parametrize(("table", "key"), KEYS)
def test_key_is_found_in_a_message(table: str, key: str) -> None:
    path = f"{table}.{key}".removeprefix(".")
    found = KEY_PATH.match(f"{path}[1].x: wrong")
    assert found is not None
    assert (found["path"], found["field"]) == (f"{path}[1].x", key)


def test_this_module_covers_every_key() -> None:
    assert list(TYPED) == KEYS


@pytest.mark.parametrize(("table", "key"), KEYS)
def test_option_value_reaches_the_campaign(table: str, key: str) -> None:
    text, expected = TYPED[table, key]
    values = {name: value for name, value in REQUIRED.items() if key != "all" or name != "scopes"}
    spec = spec_from_request(build(None, typed(**{**values, option_of(table, key).parameter: text})))
    found = getattr(getattr(spec, table) if table else spec, key)
    match key:
        case "start_at":
            assert found.isoformat().replace("+00:00", "Z") == expected
        case "windows":
            assert list(map(str, found)) == [expected]
        case "blackouts":
            assert [each.start.isoformat() for each in found] == [expected]
        case _:
            assert found == expected


@pytest.mark.parametrize(("table", "key"), KEYS)
def test_key_is_in_the_api(table: str, key: str) -> None:
    names = {"": "StartCampaign", "selection": "CampaignSelection", "policy": "CampaignPolicy"}
    _, schemas = msgspec.json.schema_components((v1.StartCampaign,))
    description = schemas[names[table]]["properties"][key]["description"]
    assert description.partition(" Allowed: ")[0] == option_of(table, key).type.description


@pytest.mark.parametrize("key", [key for table, key in KEYS if table and key not in ("scopes", "hosts", "tags", "all")])
def test_option_overrides_the_file(tmp_path: Path, key: str) -> None:
    file = tmp_path / "kernel.toml"
    full = (Path(__file__).parents[2] / "stored/450409b/samples/campaign.toml").read_text()
    file.write_text(full)
    text, _ = TYPED["policy" if key in CampaignPolicy.__struct_fields__ else "selection", key]
    written = read_campaign(parse_campaign(full, file=""), file="")
    option = next(each for each in OPTIONS if each.key == key)
    changed = spec_from_request(build(file, typed(**{option.parameter: text})))
    alone = spec_from_request(build(None, typed(**REQUIRED, **{option.parameter: text})))
    expected = msgspec.structs.replace(
        getattr(written, option.table), **{key: getattr(getattr(alone, option.table), key)}
    )
    assert getattr(changed, option.table) == expected
    if option.is_clearable:
        cleared = spec_from_request(
            build(file, typed(**{option.parameter: ("none",) if option.is_repeatable else "none"}))
        )
        assert not getattr(getattr(cleared, option.table), key)


def test_selection_options_replace_the_files_selection(tmp_path: Path) -> None:
    file = tmp_path / "kernel.toml"
    file.write_text('name = "k"\ntype = "Reboot"\nselection = { hosts = ["hv-1"], exclude_vms = ["a"] }\n')
    assert spec_from_request(build(file, typed(all_=True))).selection == Selection(all=True, exclude_vms=("a",))
    assert spec_from_request(build(file, typed(scopes=("web",)))).selection == Selection(
        scopes=("web",), exclude_vms=("a",)
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gap": "soon"}, "--gap: 'soon' is not a duration"),
        ({"gap": "31d"}, "--gap: must be 0s to 30d, got 31d"),
        ({"vms_at_once": "few"}, "--vms-at-once: 'few' is not a limit"),
        ({"windows": ("at night",)}, "--window: 'at night' is not a window"),
        ({"windows": ("22:00-25:00",)}, "--window: end: '25:00' is not a time of day"),
        ({"exclude_vms": ("a", "b c")}, "--exclude-vm: 'b c' is neither a name nor a pattern"),
        ({"duration": "8d"}, "--duration: must be 0s to 7d, got 8d"),
        ({"gate": "http://"}, "--gate: 'http://' is not a valid gate URL"),
        ({"exclude_tags": ("a",)}, "--exclude-tag: 'a' is not a tag; write NAME=VALUE, such as team=web"),
        ({"halt_after": "0"}, '--halt-after: 0 is not allowed: use an integer from 1 to 1000000, or "none"'),
        ({"start_at": "soon"}, "--start-at: 'soon' is not a time"),
        ({"gate": "a b"}, "--gate: 'a b': use 1 to 128"),
        ({"zone": "../x"}, "--zone: '../x' is not a time zone"),
        ({"name": None}, "missing: --name; or use a FILE that has it"),
    ],
)
def test_error_names_the_option(values: dict[str, Any], message: str) -> None:
    with pytest.raises(CliError) as refused:
        build(None, typed(**{**REQUIRED, **values}))
    assert str(refused.value).startswith(message)


def test_request_contains_the_given_campaign() -> None:
    sent = build(None, typed(**REQUIRED, gap="1h"))
    assert sent == spec_request(spec_from_request(sent))
    assert sent.policy.gap == "1h"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"scopes": ("web",)}, "--all and --scope are mutually exclusive"),
        ({"hosts": ("hv-0",), "tags": ("a=b",)}, "--all and --host or --tag are mutually exclusive"),
    ],
)
def test_all_vms_and_some_are_mutually_exclusive(values: dict[str, Any], message: str) -> None:
    with pytest.raises(CliError) as refused:
        build(None, typed(name="k", type_=v1.CampaignType.REBOOT, all_=True, **values))
    assert (refused.value.code, str(refused.value)) == (ExitCode.USAGE, message)


FILE = """\
name = "k"
type = "Reboot"
selection = { all = true }
[policy]
windows = [
  "01:00-02:00",
  "03:00-04:00 Mars/Base",
]
"""


@pytest.mark.parametrize(
    ("arguments", "problem", "message"),
    [
        ((), "policy.windows[1].zone: unknown", "k.toml:7: policy.windows[1].zone: unknown"),
        (("--window", "22:00-23:00 Mars"), "policy.windows[0].zone: unknown", "--window: unknown"),
        (("--zone", "UTC"), "policy.windows[1].zone: unknown", "k.toml:7: policy.windows[1].zone: unknown"),
        (("--gate-patience", "1h"), "policy.gate_patience: too long", "--gate-patience: too long"),
        (("--zone", "Mars"), "policy.zone: unknown", "--zone: unknown"),
        (("--scope", "web"), "policy.gate: unknown", "k.toml:4: policy.gate: unknown"),
        ((), "name: taken", "k.toml:1: name: taken"),
        (("--name", "l"), "name: taken", "--name: taken"),
        ((), "the selection matches no VM", "the selection matches no VM"),
        ((), "journal: unknown", "journal: unknown"),
    ],
)
def test_refusal_of_the_service_names_the_option_or_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], problem: str, message: str
) -> None:
    @click.command()
    @with_campaign
    @with_service
    def command(connection: ServiceConnection, spec: v1.CampaignRequest) -> None:
        raise RequestRefused(422, "invalid-value", problem, {})

    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.toml").write_text(FILE)
    refused = CliRunner().invoke(command, ["k.toml", *arguments]).exception
    assert isinstance(refused, RequestRefused)
    assert (refused.status, refused.code, refused.message) == (422, "invalid-value", message)
