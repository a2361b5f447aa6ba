"""Options of a campaign: one for each key of the campaign file, derived automatically."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forewarn.api import v1
from forewarn.api.campaign_file import parse_campaign, read_campaign
from forewarn.api.v1.campaign_spec import spec_from_request, spec_request
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.campaign import OPTIONS, TABLES, campaign_from_options
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


def option_of(table: str, key: str) -> FieldOption:
    (found,) = (each for each in OPTIONS if (each.table, each.key) == (table, key))
    return found


@pytest.mark.parametrize(("table", "key"), KEYS)
def test_key_has_an_option_of_its_name_with_a_help(table: str, key: str) -> None:
    """docs/reference/cli/campaign.md states the rule instead of repeating the options."""
    option = option_of(table, key)
    assert option.type.description.endswith(".")
    assert option.flag in {f"--{name.replace('_', '-')}" for name in (key, key.removesuffix("s"))}


def test_this_module_covers_every_key() -> None:
    assert list(TYPED) == KEYS


@pytest.mark.parametrize(("table", "key"), KEYS)
def test_option_value_reaches_the_campaign(table: str, key: str) -> None:
    text, expected = TYPED[table, key]
    values = {name: value for name, value in REQUIRED.items() if key != "all" or name != "scopes"}
    spec = spec_from_request(campaign_from_options(None, typed(**{**values, option_of(table, key).parameter: text})))
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
    changed = spec_from_request(campaign_from_options(file, typed(**{option.parameter: text})))
    alone = spec_from_request(campaign_from_options(None, typed(**REQUIRED, **{option.parameter: text})))
    expected = msgspec.structs.replace(
        getattr(written, option.table), **{key: getattr(getattr(alone, option.table), key)}
    )
    assert getattr(changed, option.table) == expected
    if option.is_clearable:
        cleared = spec_from_request(
            campaign_from_options(file, typed(**{option.parameter: ("none",) if option.is_repeatable else "none"}))
        )
        assert not getattr(getattr(cleared, option.table), key)


def test_selection_options_replace_the_files_selection(tmp_path: Path) -> None:
    file = tmp_path / "kernel.toml"
    file.write_text('name = "k"\ntype = "Reboot"\nselection = { hosts = ["hv-1"], exclude_vms = ["a"] }\n')
    assert spec_from_request(campaign_from_options(file, typed(all_=True))).selection == Selection(
        all=True, exclude_vms=("a",)
    )
    assert spec_from_request(campaign_from_options(file, typed(scopes=("web",)))).selection == Selection(
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
        campaign_from_options(None, typed(**{**REQUIRED, **values}))
    assert str(refused.value).startswith(message)


def test_request_contains_the_given_campaign() -> None:
    sent = campaign_from_options(None, typed(**REQUIRED, gap="1h"))
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
        campaign_from_options(None, typed(name="k", type_=v1.CampaignType.REBOOT, all_=True, **values))
    assert (refused.value.code, str(refused.value)) == (ExitCode.USAGE, message)
