"""Structs of the core as tables of a file, and tables as TOML: what is written reads as the same value."""

import tomllib
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta

from forewarn.api.campaign_file import parse_campaign, read_campaign, write_campaign
from forewarn.api.table_reader import read_struct
from forewarn.api.table_writer import MAX_LINE, Value, toml_text, toml_value, write_struct
from forewarn.core.campaign.spec import Blackout, CampaignPolicy, CampaignSpec, HttpCheck, Limit, Window
from forewarn.settings.file_reader import FileValue
from tests.support.campaign_specs import SPECS
from tests.support.examples import examples

NOON = datetime(2026, 12, 24, 12, tzinfo=UTC)


class WiderPolicy(CampaignPolicy, frozen=True, kw_only=True):
    """A policy with one more key, as a later version could have."""

    settle_for: Annotated[timedelta, Meta(description="How long to watch a scope after its wave.")] = timedelta(0)


@settings(deadline=None, max_examples=examples(200))
@given(SPECS)
def test_every_campaign_reads_as_it_was_written(spec: CampaignSpec) -> None:
    assert read_campaign(parse_campaign(write_campaign(spec), file=""), file="") == spec


def test_table_has_only_what_differs_from_the_defaults() -> None:
    policy = CampaignPolicy(
        gap=timedelta(hours=1),
        vms_at_once=Limit(percent=12.5),
        hosts_at_once=Limit(number=3),
        windows=(Window(start="22:00", end="04:00", zone="Europe/Vienna"),),
        blackouts=(Blackout(start=NOON, end=NOON + timedelta(days=9), why="holidays"),),
        gate=HttpCheck(url="http://h/", retries=0),
        halt_after=None,
    )
    assert write_struct(policy) == {
        "gap": "1h",
        "hosts_at_once": 3,
        "vms_at_once": "12.5%",
        "windows": ["every day 22:00-04:00 Europe/Vienna"],
        "blackouts": ["2026-12-24T12:00:00Z/2027-01-02T12:00:00Z holidays"],
        "gate": {"url": "http://h/", "retries": 0},
        "halt_after": "none",
    }
    assert write_struct(CampaignPolicy()) == {}


def test_text_that_its_short_form_would_lose_is_in_a_table() -> None:
    blackout = Blackout(start=NOON, end=NOON + timedelta(hours=1), why=" holidays")
    written = write_struct(CampaignPolicy(blackouts=(blackout,)))
    assert written == {"blackouts": [{"start": NOON, "end": NOON + timedelta(hours=1), "why": " holidays"}]}


def test_new_policy_key_is_written_automatically() -> None:
    wide = WiderPolicy(settle_for=timedelta(minutes=10))
    assert write_struct(wide) == {"settle_for": "10m"}
    assert read_struct(FileValue("", "", write_struct(wide)), WiderPolicy) == wide


def test_field_of_an_unknown_type_is_refused() -> None:
    class Odd(msgspec.Struct, kw_only=True):
        data: bytes = b""

    with pytest.raises(TypeError, match="bytes"):
        write_struct(Odd(data=b"x"))


def test_file_has_values_first_then_sections_and_long_lists_over_lines() -> None:
    names = [f"scope-{n}" for n in range(MAX_LINE // 8)]
    text = toml_text({"selection": {"scopes": names}, "name": "kernel", "odd key": {"all": True}})
    listed = "".join(f'    "{name}",\n' for name in names)
    assert text == f'name = "kernel"\n\n[selection]\nscopes = [\n{listed}]\n\n["odd key"]\nall = true\n'
    assert toml_text({"policy": {}}) == "[policy]\n"


@settings(deadline=None, max_examples=examples(200))
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_every_text_is_a_toml_string_and_key(text: str) -> None:
    assert tomllib.loads(f"a = {toml_value({text: text})}") == {"a": {text: text}}


@pytest.mark.parametrize("value", [True, False, 3, 2.5, NOON, date(2026, 1, 31), time(1, 30), [1, ["a"]], {}, []])
def test_every_kind_of_value_reads_as_it_was_written(value: Value) -> None:
    read = tomllib.loads(f"a = {toml_value(value)}")["a"]
    assert (type(read), read) == (type(value), value)
