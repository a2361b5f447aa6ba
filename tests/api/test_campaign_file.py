"""The campaign file: parsing, errors, and the round trip through the API."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from forewarn.api import v1
from forewarn.api.campaign_file import parse_campaign, read_campaign
from forewarn.api.campaign_windows import parse_blackout, parse_window
from forewarn.api.v1.campaign_spec import spec_from_request, spec_view
from forewarn.core.campaign.spec import (
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
from forewarn.core.event_type import MAINTENANCE_TYPES
from forewarn.settings.file_reader import FileError

SMALL = 'name = "kernel"\ntype = "Reboot"\nselection = { all = true }\n'

LARGE = """
name = "kernel-6.1"
type = "Redeploy"
duration = "90s"
description = "The host gets a new kernel."
start_at = 2026-11-20T20:00:00Z

[selection]
scopes = ["web-*"]
hosts = ["hv-1"]
tags = { tier = "front" }
exclude_scopes = ["web-9"]
exclude_hosts = ["hv-7"]
exclude_vms = ["web-1/web-0"]
exclude_tags = { critical = "yes" }

[policy]
waves = "update-domain"
gap = "1h"
notice = "20m"
expected = "10m"
scopes_at_once = "10%"
hosts_at_once = 3
vms_at_once = "50"
windows = ["sat,sun 22:00-04:00 Europe/Vienna", { start = 01:30:00, end = "05:00", days = ["mon"] }]
blackouts = [{ start = 2026-12-24T12:00:00Z, end = "2027-01-02T06:00Z", why = "holidays" }]
zone = "Europe/Paris"
must_end_inside = true
gate = { url = "http://127.0.0.1:9090/-/healthy", expect_status = 204, timeout = "3s", retries = 0, pause = "1s" }
gate_patience = "2h"
halt_after = "none"
advance = false
"""

READ = CampaignSpec(
    name="kernel-6.1",
    type=EventType.REDEPLOY,
    duration=timedelta(seconds=90),
    description="The host gets a new kernel.",
    start_at=datetime(2026, 11, 20, 20, tzinfo=UTC),
    selection=Selection(
        scopes=("web-*",),
        hosts=("hv-1",),
        tags={"tier": "front"},
        exclude_scopes=("web-9",),
        exclude_hosts=("hv-7",),
        exclude_vms=("web-1/web-0",),
        exclude_tags={"critical": "yes"},
    ),
    policy=CampaignPolicy(
        gap=timedelta(hours=1),
        notice=timedelta(minutes=20),
        expected=timedelta(minutes=10),
        scopes_at_once=Limit(percent=10.0),
        hosts_at_once=Limit(number=3),
        vms_at_once=Limit(number=50),
        windows=(
            Window(days=(Weekday.SAT, Weekday.SUN), start="22:00", end="04:00", zone="Europe/Vienna"),
            Window(days=(Weekday.MON,), start="01:30", end="05:00"),
        ),
        blackouts=(
            Blackout(
                start=datetime(2026, 12, 24, 12, tzinfo=UTC), end=datetime(2027, 1, 2, 6, tzinfo=UTC), why="holidays"
            ),
        ),
        zone="Europe/Paris",
        must_end_inside=True,
        gate=HttpCheck(
            url="http://127.0.0.1:9090/-/healthy",
            expect_status=204,
            timeout=timedelta(seconds=3),
            retries=0,
            pause=timedelta(seconds=1),
        ),
        gate_patience=timedelta(hours=2),
        halt_after=None,
        advance=False,
    ),
)


def read(text: str) -> CampaignSpec:
    return read_campaign(parse_campaign(text, file="kernel.toml"), file="kernel.toml")


def test_every_key_is_read() -> None:
    assert read(LARGE) == READ
    for struct in (Selection, CampaignPolicy, CampaignSpec, HttpCheck, Window, Blackout):
        assert all(re.search(rf"\b{field}\b", LARGE) for field in struct.__struct_fields__ if field != "all")


def test_missing_keys_have_their_defaults() -> None:
    assert read(SMALL) == CampaignSpec(name="kernel", type=EventType.REBOOT, selection=Selection(all=True))


@pytest.mark.parametrize("spec", [READ, read(SMALL)], ids=["all keys", "none"])
def test_api_round_trip_keeps_every_key(spec: CampaignSpec) -> None:
    sent = msgspec.json.encode(spec_view(spec))
    assert spec_from_request(msgspec.json.decode(sent, type=v1.StartCampaign)) == spec
    assert msgspec.json.encode(msgspec.json.decode(sent, type=v1.CampaignSpec)) == sent


def test_request_has_the_defaults_of_the_core() -> None:
    asked = v1.StartCampaign(name="k", type=v1.CampaignType.REBOOT, selection=v1.CampaignSelection(all=True))
    assert spec_from_request(asked).policy == CampaignPolicy()
    asked_gate = msgspec.structs.replace(asked, policy=v1.CampaignPolicy(gate=v1.HttpGate(url="http://h/")))
    assert spec_from_request(asked_gate).policy.gate == HttpCheck(url="http://h/")


def test_client_reads_a_policy_with_unknown_keys() -> None:
    sent = msgspec.json.decode(msgspec.json.encode(spec_view(READ)))
    sent["policy"]["blast_radius"] = "small"
    assert spec_from_request(msgspec.convert(sent, v1.CampaignSpec)) == READ
    with pytest.raises(msgspec.ValidationError, match="blast_radius"):
        msgspec.convert(sent, v1.CampaignRequest)


WRONG = {
    "invalid TOML": ("name = ", "invalid TOML: "),
    "nothing": ("", "name: required key is missing: use a name in quotes"),
    "unknown key": (SMALL + "[policy]\ngaps = '1h'", "policy.gaps: unknown key; did you mean gap? Valid"),
    "missing selection": (
        "name = 'k'\ntype = 'Reboot'",
        "selection: required key is missing: use a table such as { scopes =",
    ),
    "empty selection": ("name = 'k'\ntype = 'Reboot'\nselection = {}", "selection: select VMs by scopes"),
    "type": (
        SMALL.replace("Reboot", "Preempt"),
        'type: "Preempt" is not allowed: use "Freeze", "Reboot" or "Redeploy"',
    ),
    "name": (SMALL.replace("kernel", "a b"), "name: 'a b': use 1 to 128 letters"),
    "duration": (SMALL + "duration = 90", 'duration: 90 is not allowed: use a duration such as "5m"'),
    "too long": (SMALL + "[policy]\ngap = '40d'", "policy.gap: must be 0s to 30d, got 40d"),
    "limit": (SMALL + "[policy]\nvms_at_once = 'a few'", "policy.vms_at_once: 'a few' is not a limit: write a number"),
    "limit of another kind": (
        SMALL + "[policy]\nvms_at_once = 1.5",
        "policy.vms_at_once: 1.5 is not allowed: use a num",
    ),
    "window": (
        SMALL + "[policy]\nwindows = ['at night']",
        "policy.windows[0]: 'at night' is not a window; write it lik",
    ),
    "window table": (
        SMALL + "[policy]\nwindows = [{ start = '22:00' }]",
        "policy.windows[0].end: required key is missing: use",
    ),
    "time of day": (SMALL + "[policy]\nwindows = ['25:00-04:00']", "policy.windows[0]: start: '25:00' is not a"),
    "day": (SMALL + "[policy]\nwindows = ['son 22:00-04:00']", "policy.windows[0]: 'son' is not a day; use mon, tue"),
    "moment without zone": (SMALL + "start_at = 2026-11-20T20:00:00", "start_at: must have a time zone: write it like"),
    "moment": (SMALL + "start_at = 'soon'", "start_at: 'soon' is not a time; write it like 2026-12-24T12:00Z"),
    "black-out": (
        SMALL + "[policy]\nblackouts = [{ start = 2026-12-24T12:00:00Z, end = 2026-12-23T12:00:00Z }]",
        "policy.blackouts[0]: a black-out must end after it starts",
    ),
    "gate": (
        SMALL + "[policy]\ngate = { uri = 'http://h' }",
        "policy.gate.uri: unknown key; valid keys: expect_status",
    ),
    "gate's URL": (SMALL + "[policy]\ngate = { url = 'h' }", "policy.gate.url: 'h' is not a valid gate URL"),
    "gate's name": (SMALL + "[policy]\ngate = 'a b'", "policy.gate: 'a b': use 1 to 128"),
    "halt_after": (
        SMALL + "[policy]\nhalt_after = 0",
        "policy.halt_after: 0 is not allowed: use an integer from 1",
    ),
}


@pytest.mark.parametrize(("text", "complaint"), WRONG.values(), ids=WRONG)
def test_error_names_the_key(text: str, complaint: str) -> None:
    with pytest.raises(FileError) as refused:
        read(text)
    place = "kernel.toml" if refused.value.line is None else f"kernel.toml:{refused.value.line}"
    assert str(refused.value).startswith(f"{place}: {complaint}")


LINES = {
    "unknown key": 5,
    "type": 2,
    "duration": 4,
    "too long": 5,
    "window": 5,
    "window table": 5,
    "gate": 5,
    "gate's URL": 5,
    "halt_after": 5,
}


@pytest.mark.parametrize(("case", "line"), LINES.items(), ids=LINES)
def test_error_names_the_line(case: str, line: int) -> None:
    with pytest.raises(FileError) as refused:
        read(WRONG[case][0])
    assert refused.value.line == line


WINDOWS = {
    "22:00-04:00": Window(start="22:00", end="04:00"),
    "every day 1:00-5:00": Window(start="01:00", end="05:00"),
    "daily 00:00-24:00 UTC": Window(start="00:00", end="24:00", zone="UTC"),
    "sat, sun 22:00 - 04:00": Window(days=(Weekday.SAT, Weekday.SUN), start="22:00", end="04:00"),
    "mon-wed 09:00-10:00": Window(days=(Weekday.MON, Weekday.TUE, Weekday.WED), start="09:00", end="10:00"),
    "saturday-mon 09:00-10:00": Window(days=(Weekday.SAT, Weekday.SUN, Weekday.MON), start="09:00", end="10:00"),
}


@pytest.mark.parametrize("text", WINDOWS)
def test_window_can_be_a_string(text: str) -> None:
    assert parse_window(text) == WINDOWS[text]
    assert parse_window(str(WINDOWS[text])) == WINDOWS[text]


def test_blackout_can_be_a_string() -> None:
    begin, end = datetime(2026, 12, 24, 12, tzinfo=UTC), datetime(2027, 1, 2, 6, tzinfo=UTC)
    assert parse_blackout("2026-12-24T12:00Z/2027-01-02T06:00Z") == Blackout(start=begin, end=end)
    why = "nobody is there"
    assert parse_blackout(f"2026-12-24T12:00Z/2027-01-02T06:00Z {why}") == Blackout(start=begin, end=end, why=why)
    with pytest.raises(Invalid, match="is not a blackout"):
        parse_blackout("christmas")


PAGE = Path(__file__).parents[2] / "docs/reference/campaign-policy.md"
ROW = re.compile(r"^\| `([a-z_]+)` \|", re.MULTILINE)
TABLES = {
    "The campaign": CampaignSpec,
    "The selection": Selection,
    "The policy": CampaignPolicy,
    "A window": Window,
    "A black-out": Blackout,
    "An HTTP gate": HttpCheck,
}


@pytest.mark.parametrize("title", TABLES)
def test_reference_names_every_key(title: str) -> None:
    _, _, after = PAGE.read_text().partition(f"## {title}\n")
    section = after.partition("\n## ")[0]
    assert ROW.findall(section) == list(TABLES[title].__struct_fields__)


def test_campaign_can_have_every_type_of_planned_maintenance() -> None:
    assert [choice.value for choice in v1.CampaignType] == [type_.value for type_ in MAINTENANCE_TYPES]


SPREAD = """\
name = "kernel"
type = "Reboot"
duration = "90s"

[selection]
scopes = ["a"]
exclude_scopes = [
  "a",
  "b",
]

[selection.tags]
team = "web"

[policy]
zone = "UTC"
gap = "1h"

[policy.gate]
url = "http://h/"
timeout = "1s"

[[policy.windows]]
start = "22:00"
zone = "UTC"
end = "04:00"
days = ["mon"]

[[policy.blackouts]]
start = 2026-12-24T12:00:00Z
end = 2027-01-02T06:00:00Z
"""


@pytest.mark.parametrize(
    ("written", "wrong", "message"),
    [
        ('"90s"', '"8d"', "3: duration: must be 0s to 7d, got 8d"),
        ('  "b",', '  "b c",', "9: selection.exclude_scopes[1]: 'b c' is neither a name nor a pattern"),
        ('team = "web"', f'team = "{"x" * 513}"', "13: selection.tags.team: tag 'team' has 513 characters"),
        ('zone = "UTC"\ngap', 'zone = ".."\ngap', "16: policy.zone: '..' is not a time zone"),
        ('"1h"', '"400d"', "17: policy.gap: must be 0s to 30d, got 400d"),
        ('"http://h/"', '"ftp://h/"', "20: policy.gate.url: 'ftp://h/' is not a valid gate URL"),
        ('"1s"', '"1h"', "21: policy.gate.timeout: must be 0.001s to 10m, got 1h"),
        ('zone = "UTC"\nend', 'zone = ".."\nend', "25: policy.windows[0].zone: '..' is not a time zone"),
        ('"04:00"', '"26:00"', "26: policy.windows[0].end: '26:00' is not a time of day"),
        ('["mon"]', '["mon", "mon"]', "27: policy.windows[0].days: a window must name each day at most once"),
        ("06:00:00Z", "06:00:00", "31: policy.blackouts[0].end: must have a time zone"),
        ("2027-", "2025-", "29: policy.blackouts[0]: a black-out must end after it starts"),
    ],
)
def test_error_of_a_rule_names_the_line_of_its_key(written: str, wrong: str, message: str) -> None:
    assert SPREAD.count(written) == 1
    read(SPREAD)
    with pytest.raises(FileError) as refused:
        read(SPREAD.replace(written, wrong))
    assert str(refused.value).startswith(f"kernel.toml:{message}")
