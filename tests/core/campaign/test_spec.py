"""Validation of a campaign's specification, and the messages about invalid values."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.core.campaign.spec import (
    MAX_NAMES,
    Blackout,
    CampaignPolicy,
    CampaignSpec,
    HttpCheck,
    Limit,
    Selection,
    Weekday,
    Window,
)
from forewarn.core.errors import Invalid
from forewarn.core.event import EventType
from tests.core.builders import NOW

EVERYTHING = Selection(all=True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "select VMs by scopes, hosts or tags, or all VMs"),
        ({"all": True, "scopes": ("web",)}, "all = true selects every VM: omit scopes, hosts and tags"),
        ({"exclude_scopes": ("web",)}, "select VMs by scopes"),
        ({"scopes": ("web 1",)}, "scopes[0]: 'web 1' is neither a name nor a pattern such as web-*"),
        ({"all": True, "exclude_vms": ("",)}, "exclude_vms[0]: '' is neither a name nor a pattern"),
        (
            {"hosts": tuple(f"h{n}" for n in range(MAX_NAMES + 1))},
            "hosts: 1001 items: at most 1000 are allowed; use patterns",
        ),
        ({"tags": {"a": "x" * 513}}, "tags.a: tag 'a' has 513 characters"),
    ],
)
def test_invalid_selection_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid) as refusal:
        Selection(**fields)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("written", "limit", "of_50"),
    [
        (1, Limit(number=1), 1),
        (80, Limit(number=80), 80),
        ("10", Limit(number=10), 10),
        ("10%", Limit(percent=10), 5),
        ("33.3 %", Limit(percent=33.3), 16),
        ("1%", Limit(percent=1), 1),
        ("100%", Limit(percent=100), 50),
    ],
)
def test_limit_is_a_number_or_a_percentage(written: int | str, limit: Limit, of_50: int) -> None:
    assert Limit.parse(written) == limit
    assert limit.resolve(50) == of_50
    assert Limit.parse(str(limit)) == limit


def test_percentage_is_exact_despite_binary_fractions() -> None:
    assert Limit.parse("4.35%").resolve(20_000) == 870


@pytest.mark.parametrize("written", [0, -1, "0", "0%", "101%", "ten", "10 percent", "", "%", "1e3", "٣", 10**8])
def test_invalid_limit_is_refused(written: int | str) -> None:
    with pytest.raises(Invalid, match="limit"):
        Limit.parse(written)


@given(percent=st.floats(0.01, 100), total=st.integers(1, 200_000))
def test_percentage_is_rounded_down_but_at_least_1(percent: float, total: int) -> None:
    number = Limit(percent=percent).resolve(total)
    assert 1 <= number <= total
    assert number <= max(1, percent * total / 100 + 1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Limit, "a limit must be a number such as 10, or a percentage"),
        (lambda: Limit(number=1, percent=1.0), "a limit must be a number such as 10, or a percentage"),
        (lambda: Window(start="9:00", end="10:00"), "start: '9:00' is not a time of day: write it like \"22:00\""),
        (lambda: Window(start="24:00", end="10:00"), "start: '24:00' is not a time of day"),
        (lambda: Window(start="22:00", end="25:00"), "end: '25:00' is not a time of day"),
        (lambda: Window(start="22:00", end="04:00", zone="../etc/passwd"), "zone: '../etc/passwd' is not a time zone"),
        (
            lambda: Window(days=(Weekday.MON, Weekday.MON), start="22:00", end="04:00"),
            "days: a window must name each day at most once",
        ),
        (lambda: Blackout(start=NOW, end=NOW), "a black-out must end after it starts"),
        (lambda: Blackout(start=NOW.replace(tzinfo=None), end=NOW), "start: must have a time zone"),
        (lambda: HttpCheck(url="ftp://host/"), "url: 'ftp://host/' is not a valid gate URL"),
        (lambda: HttpCheck(url="http://"), "is not a valid gate URL"),
        (lambda: HttpCheck(url="http://host:99999/"), "is not a valid gate URL"),
        (lambda: HttpCheck(url="http://host/a b"), "is not a valid gate URL"),
        (lambda: HttpCheck(url="http://host/", expect_status=42), "expect_status: must be 100 to 599, got 42"),
        (lambda: HttpCheck(url="http://host/", retries=-1), "retries: must be 0 to 100, got -1"),
        (lambda: HttpCheck(url="http://host/", timeout=timedelta(0)), "timeout: must be 0.001s to 10m, got 0s"),
        (lambda: CampaignPolicy(gap=timedelta(seconds=-1)), "gap: must be 0s to 30d"),
        (lambda: CampaignPolicy(notice=timedelta(days=400)), "notice: must be 0s to 366d"),
        (lambda: CampaignPolicy(expected=timedelta(0)), "expected: must be 1s to 7d"),
        (lambda: CampaignPolicy(halt_after=0), "halt_after: must be 1 to 1000000, got 0"),
        (lambda: CampaignPolicy(halt_after=10**9), "halt_after: must be 1 to 1000000, got 1000000000"),
        (lambda: HttpCheck(url="http://host/" + "a" * 2_048), "url: 2060 characters: at most 2048 are allowed"),
        (lambda: CampaignPolicy(zone=""), "zone: '' is not a time zone"),
        (lambda: CampaignPolicy(gate="a b"), "gate: 'a b': use 1 to 128 letters"),
        (lambda: CampaignPolicy(windows=(Window(start="22:00", end="04:00"),) * 65), "windows: 65 items: at most 64"),
    ],
)
def test_invalid_value_is_refused(make: Any, message: str) -> None:
    with pytest.raises(Invalid) as refusal:
        make()
    assert message in str(refusal.value)


@pytest.mark.parametrize("type_", [EventType.PREEMPT, EventType.TERMINATE])
def test_campaign_is_planned_maintenance(type_: EventType) -> None:
    with pytest.raises(Invalid, match=f"type: must be Freeze, Reboot or Redeploy, not {type_.value}"):
        CampaignSpec(name="kernel", type=type_, selection=EVERYTHING)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, timedelta(minutes=5)),
        ({"duration": timedelta(0)}, timedelta(minutes=5)),
        ({"duration": timedelta(seconds=90)}, timedelta(seconds=90)),
        ({"duration": timedelta(1), "policy": CampaignPolicy(expected=timedelta(hours=1))}, timedelta(hours=1)),
    ],
)
def test_expected_time_of_a_wave(fields: dict[str, Any], expected: timedelta) -> None:
    assert CampaignSpec(name="kernel", type=EventType.REBOOT, selection=EVERYTHING, **fields).expected == expected


def test_whole_spec_is_decoded_as_it_was_encoded() -> None:
    spec = CampaignSpec(
        name="kernel",
        type=EventType.REBOOT,
        selection=Selection(scopes=("web-*",), hosts=("hv-1",), tags={"env": "test"}, exclude_vms=("web-1/web_0",)),
        duration=timedelta(seconds=90),
        description="a kernel",
        policy=CampaignPolicy(
            gap=timedelta(hours=1),
            scopes_at_once=Limit.parse("10%"),
            vms_at_once=Limit.parse(7),
            windows=(Window(days=(Weekday.SAT, Weekday.SUN), start="22:00", end="04:00", zone="Europe/Vienna"),),
            blackouts=(Blackout(start=NOW, end=NOW + timedelta(days=1), why="a sale"),),
            gate=HttpCheck(url="https://[::1]:8443/healthy?all=1", retries=5),
            halt_after=None,
            advance=False,
        ),
        start_at=datetime(2030, 1, 8, tzinfo=UTC),
    )
    assert msgspec.json.decode(msgspec.json.encode(spec), type=CampaignSpec) == spec
