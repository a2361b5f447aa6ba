"""Options that are derived from fields."""

from datetime import timedelta
from typing import Annotated, Any

import click
import pytest
from msgspec import Meta

from forewarn.cli.errors import CliError
from forewarn.cli.options.campaign import OPTIONS
from forewarn.cli.options.common import with_options
from forewarn.cli.options.field_option import field_options
from forewarn.core.campaign.spec import CampaignPolicy, CampaignSpec, Selection
from forewarn.core.vm import Os, Traits


class WiderPolicy(CampaignPolicy, frozen=True, kw_only=True):
    """A policy with additional keys, as a later version could have."""

    settle_for: Annotated[timedelta | None, Meta(description="How long to watch a scope after its wave.")] = None
    strict: Annotated[bool, Meta(description="Whether warnings count as failures.")] = False
    ring: Annotated[str, Meta(pattern="^[a-z]+$", description="The ring of the rollout.")] = "a"
    reviewers: Annotated[tuple[str, ...], Meta(description="Who has to agree.")] = ()


def test_new_policy_key_has_an_option_automatically() -> None:
    wider = field_options({"": CampaignSpec, "selection": Selection, "policy": WiderPolicy})
    found = [(each.flag, each.metavar, each.is_repeatable, each.is_clearable) for each in wider[len(OPTIONS) :]]
    assert found == [
        ("--settle-for", "DURATION", False, True),
        ("--strict", "STRICT", False, False),
        ("--ring", "RING", False, False),
        ("--reviewer", "TEXT", True, True),
    ]
    assert wider[len(OPTIONS)].help == "How long to watch a scope after its wave."
    command = with_options(each.declare() for each in wider[len(OPTIONS) :])(lambda **_: None)
    declared = click.command()(command).params
    assert [each.opts for each in declared] == [["--settle-for"], ["--strict"], ["--ring"], ["--reviewer"]]
    assert [each.name for each in declared] == ["settle_for", "strict", "ring", "reviewers"]


def test_help_of_policy_options_shows_defaults_and_repeatable_options() -> None:
    added = {each.key: each.help.removeprefix(each.type.description).partition("Example")[0] for each in OPTIONS}
    assert {key: text.strip() for key, text in added.items() if text.strip()} == {
        "scopes": "Repeatable.",
        "hosts": "Repeatable.",
        "tags": "Repeatable.",
        "exclude_scopes": "Repeatable.",
        "exclude_hosts": "Repeatable.",
        "exclude_vms": "Repeatable.",
        "exclude_tags": "Repeatable.",
        "waves": "Default: update-domain.",
        "gap": "Default: 30m.",
        "windows": "Repeatable.",
        "blackouts": "Repeatable.",
        "zone": "Default: UTC.",
        "must_end_inside": "Default: no.",
        "gate_patience": "Default: 30m.",
        "halt_after": "Default: 1.",
        "advance": "Default: yes.",
    }


class WiderTraits(Traits, frozen=True, kw_only=True):
    """Traits with one more field, as a later version could have."""

    rack: Annotated[str | None, Meta(description="The rack.")] = None


def test_new_trait_has_an_option_automatically() -> None:
    *_, rack = field_options({"": WiderTraits})
    assert (rack.flag, rack.metavar, rack.help) == ("--rack", "TEXT", "The rack.")


@pytest.mark.parametrize(
    ("key", "typed", "read"),
    [
        ("location", None, None),
        ("location", "eu", "eu"),
        ("terminate_notice", "300s", "5m"),
        ("os", Os.LINUX, Os.LINUX),
        ("tags", (), None),
        ("tags", ("a=b", "c="), {"a": "b", "c": ""}),
    ],
)
def test_option_value_is_converted_to_the_form_of_the_api(key: str, typed: Any, read: object) -> None:
    (option,) = (each for each in field_options({"": Traits}) if each.key == key)
    assert option.read(typed) == read


@pytest.mark.parametrize(
    ("key", "typed", "message"),
    [
        ("terminate_notice", "soon", "--terminate-notice: 'soon' is not a duration"),
        ("tags", ("a",), "--tag: 'a' is not a tag; write NAME=VALUE, such as team=web"),
    ],
)
def test_error_names_the_option(key: str, typed: Any, message: str) -> None:
    (option,) = (each for each in field_options({"": Traits}) if each.key == key)
    with pytest.raises(CliError) as refused:
        option.read(typed)
    assert str(refused.value).startswith(message)
