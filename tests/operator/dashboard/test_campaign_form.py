"""The form of a campaign: derived from the spec, and of the same content as a campaign file."""

import tomllib
from datetime import timedelta
from typing import Annotated

import pytest
from hypothesis import given, settings
from msgspec import Meta

from forewarn.api.campaign_file import parse_campaign, read_campaign, write_campaign
from forewarn.api.table_writer import toml_text
from forewarn.core.campaign.spec import CampaignPolicy, CampaignSpec, HttpCheck, Selection
from forewarn.operator.dashboard.campaign_form import (
    Control,
    form_content,
    form_fields,
    form_tables,
    form_texts,
)
from tests.support.campaign_specs import SPECS
from tests.support.examples import examples

FIELDS = {field.key: field for field in form_fields()}


class WiderPolicy(CampaignPolicy, frozen=True, kw_only=True):
    """A policy with one more key, as a later version could have."""

    settle_for: Annotated[timedelta, Meta(description="How long to watch a scope.")] = timedelta(minutes=2)


class WiderSpec(CampaignSpec, frozen=True, kw_only=True):
    """A campaign with such a policy."""

    policy: WiderPolicy = WiderPolicy()


def test_form_has_every_key_of_the_spec() -> None:
    own = [key for key in CampaignSpec.__struct_fields__ if key not in ("selection", "policy")]
    gate = [f"policy.gate.{key}" for key in HttpCheck.__struct_fields__ if key != "url"]
    tables = {"selection": Selection, "policy": CampaignPolicy}
    in_tables = [f"{table}.{key}" for table, struct in tables.items() for key in struct.__struct_fields__]
    assert set(FIELDS) == {*own, *gate, *in_tables}
    assert [table.title for table in form_tables()] == ["Campaign", "Selection", "Policy"]
    assert all(field.type.description for field in FIELDS.values())


def test_new_policy_key_is_a_field_automatically() -> None:
    (field,) = (field for field in form_fields(WiderSpec) if field.key == "policy.settle_for")
    shown = (field.label, field.placeholder, field.hint, field.control)
    assert shown == ("Settle for", "2m", "How long to watch a scope.", Control.LINE)
    content = form_content({"policy.settle_for": "10m", "policy.advance": "true"}, WiderSpec)
    assert content == {"policy": {"settle_for": "10m"}}
    assert form_texts(content, WiderSpec)["policy.settle_for"] == "10m"


@settings(deadline=None, max_examples=examples(100))
@given(SPECS)
def test_file_shown_in_the_form_reads_as_the_same_campaign(spec: CampaignSpec) -> None:
    """A form cannot have carriage returns, nor line breaks in a name; the editor then leaves the file alone."""
    content = tomllib.loads(write_campaign(spec))
    again = form_content(form_texts(content))
    if "\r" not in spec.description:
        assert read_campaign(parse_campaign(toml_text(again), file=""), file="") == spec


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("name", " kernel ", "kernel"),
        ("name", "", None),
        ("description", " as typed\r\n", " as typed\n"),
        ("policy.gap", "soon", "soon"),
        ("policy.halt_after", "3", 3),
        ("policy.halt_after", "none", "none"),
        ("policy.vms_at_once", "10", 10),
        ("policy.vms_at_once", "10%", "10%"),
        ("policy.advance", "", False),
        ("policy.advance", "true", None),
        ("selection.all", "true", True),
        ("selection.scopes", "web-*\r\n\r\n batch \n", ["web-*", "batch"]),
        ("selection.tags", "team = web\nempty=", {"team": "web", "empty": ""}),
        ("selection.tags", '"a=b" = " c"', {"a=b": " c"}),
        ("selection.tags", "team", "team"),
        ("selection.tags", '"team', '"team'),
        ("policy.windows", '{ start = "22:00", end = "04:00" }', [{"start": "22:00", "end": "04:00"}]),
        ("policy.windows", "{ start", ["{ start"]),
        ("start_at", "tomorrow", "tomorrow"),
    ],
)
def test_text_is_read_without_loss(key: str, text: str, value: object) -> None:
    assert FIELDS[key].read(text) == value


@pytest.mark.parametrize(
    ("texts", "gate"),
    [
        ({"policy.gate": "prometheus"}, "prometheus"),
        ({"policy.gate": "http://h/"}, {"url": "http://h/"}),
        ({"policy.gate": "http://h/", "policy.gate.retries": "0"}, {"url": "http://h/", "retries": 0}),
        ({"policy.gate": "prometheus", "policy.gate.retries": "0"}, {"url": "prometheus", "retries": 0}),
        ({"policy.gate.retries": "0"}, {"retries": 0}),
    ],
)
def test_gate_is_a_name_or_a_url_with_further_keys(texts: dict[str, str], gate: object) -> None:
    content = form_content({"policy.advance": "true"} | texts)
    assert content == {"policy": {"gate": gate}}
    assert {key: text for key, text in form_texts(content).items() if text} == {"policy.advance": "true"} | texts


def test_labels_and_choices_are_for_people() -> None:
    assert FIELDS["policy.vms_at_once"].label == "VMs at once"
    assert FIELDS["selection.exclude_vms"].label == "Exclude VMs"
    assert FIELDS["policy.gate.expect_status"].label == "Gate expect status"
    assert FIELDS["type"].choices == ("Freeze", "Reboot", "Redeploy")
    assert FIELDS["policy.gap"].placeholder == "30m"
    assert FIELDS["policy.vms_at_once"].placeholder == "such as 10%"
    assert FIELDS["policy.windows"].hint == "When waves may start. Default: always. One per line."
