"""The spec of a campaign in the API: requests become specs of the core, specs become responses, and type checkers know
the fields."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from forewarn.api.v1 import campaign_spec
from forewarn.api.v1.campaign_spec import StartCampaign, spec_from_request, spec_request, spec_view
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
from tests.api.v1.extended_package import extended_package, schemas_with_property
from tests.api.v1.stubs import check_stub
from tests.support.program import Machine

CHRISTMAS = datetime(2026, 12, 24, tzinfo=UTC)

SPEC = CampaignSpec(
    name="kernel",
    type=EventType.REBOOT,
    selection=Selection(scopes=("web-*",), exclude_vms=("web-0/web-0",)),
    duration=timedelta(minutes=2),
    description="kernel update",
    policy=CampaignPolicy(
        gap=timedelta(hours=1),
        vms_at_once=Limit(percent=12.5),
        windows=(
            Window(days=(Weekday.SAT,), start="22:00", end="24:00", zone="Europe/Vienna"),
            Window(start="01:00", end="02:00"),
        ),
        blackouts=(Blackout(start=CHRISTMAS, end=CHRISTMAS + timedelta(days=1), why="holiday"),),
        gate=HttpCheck(url="http://127.0.0.1:9090/-/healthy"),
        halt_after=None,
    ),
    start_at=CHRISTMAS,
)
WRITTEN = {
    "name": "kernel",
    "type": "Reboot",
    "selection": {
        "scopes": ["web-*"],
        "hosts": [],
        "tags": {},
        "all": False,
        "exclude_scopes": [],
        "exclude_hosts": [],
        "exclude_vms": ["web-0/web-0"],
        "exclude_tags": {},
    },
    "duration": "2m",
    "description": "kernel update",
    "policy": {
        "waves": "update-domain",
        "gap": "1h",
        "notice": None,
        "expected": None,
        "scopes_at_once": None,
        "hosts_at_once": None,
        "vms_at_once": "12.5%",
        "windows": [
            {"days": ["sat"], "start": "22:00", "end": "24:00", "zone": "Europe/Vienna"},
            {"days": [], "start": "01:00", "end": "02:00", "zone": None},
        ],
        "blackouts": [{"start": "2026-12-24T00:00:00Z", "end": "2026-12-25T00:00:00Z", "why": "holiday"}],
        "zone": "UTC",
        "must_end_inside": False,
        "gate": {
            "url": "http://127.0.0.1:9090/-/healthy",
            "expect_status": 200,
            "timeout": "10s",
            "retries": 2,
            "pause": "10s",
        },
        "gate_patience": "30m",
        "halt_after": None,
        "advance": True,
    },
    "start_at": "2026-12-24T00:00:00Z",
}
SMALLEST = {"name": "kernel", "type": "Freeze", "selection": {"all": True}}


def request(content: object) -> StartCampaign:
    return msgspec.json.decode(msgspec.json.encode(content), type=StartCampaign)


def test_spec_survives_the_way_over_the_api() -> None:
    assert msgspec.json.decode(msgspec.json.encode(spec_view(SPEC))) == WRITTEN
    assert spec_from_request(request(WRITTEN)) == SPEC
    assert spec_from_request(spec_request(SPEC)) == SPEC


def test_request_without_a_policy_has_the_defaults_of_the_core() -> None:
    asked = request(SMALLEST)
    assert asked.reason == ""
    assert spec_from_request(asked) == CampaignSpec(
        name="kernel", type=EventType.FREEZE, selection=Selection(all=True), policy=CampaignPolicy()
    )


def test_reason_of_a_start_is_no_part_of_the_spec() -> None:
    asked = request({**SMALLEST, "reason": "security"})
    assert asked.reason == "security"
    assert spec_from_request(asked) == spec_from_request(request(SMALLEST))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "Preempt"}, r"Invalid enum value 'Preempt' - at `\$.type`"),
        ({"name": ""}, r"- at `\$.name`"),
        ({"colour": "red"}, "unknown field `colour`"),
        ({"policy": {"windows": [{"start": "25:00", "end": "02:00"}]}}, r"- at `\$.policy.windows\[0\].start`"),
        ({"policy": {"windows": [{"start": "01:00", "end": "02:00", "zone": ""}]}}, r"- at `\$.policy.windows"),
        ({"policy": {"halt_after": 0}}, r"- at `\$.policy.halt_after`"),
    ],
    ids=["type", "name", "unknown key", "time of day", "empty zone", "halt after 0"],
)
def test_value_outside_its_bounds_is_refused_with_its_path(change: dict[str, object], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        request({**SMALLEST, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"selection": {}}, "selection: select VMs by scopes, hosts or tags, or all VMs with all = true"),
        ({"duration": "8d"}, "duration: must be 0s to 7d, got 8d"),
        ({"policy": {"gap": "31d"}}, "policy.gap: must be 0s to 30d, got 31d"),
        (
            {"policy": {"blackouts": [{"start": "2026-12-24T00:00:00Z", "end": "2026-12-24T00:00:00Z"}]}},
            (
                "policy.blackouts[0]: a black-out must end after it starts, "
                "not 2026-12-24T00:00:00Z to 2026-12-24T00:00:00Z"
            ),
        ),
    ],
    ids=["nothing selected", "duration", "gap", "black-out"],
)
def test_rule_of_the_core_is_refused_with_its_path(change: dict[str, object], message: str) -> None:
    with pytest.raises(Invalid) as refused:
        spec_from_request(request({**SMALLEST, **change}))
    assert str(refused.value) == message


SETTLE = '    settle: Annotated[timedelta, Meta(description="How long.")] = timedelta(0)\n'
CAMPAIGN = """
name = "kernel"
type = "Reboot"
selection = { all = true }
policy = { settle = "5m" }
"""


@pytest.mark.process
def test_new_policy_key_needs_one_line(tmp_path: Path) -> None:
    """Its rule and its documentation come in addition; the stub and the copy of OpenAPI are generated."""
    (home := tmp_path / "home").mkdir()
    (file := home / "kernel.toml").write_text(CAMPAIGN)
    machine = Machine(home)
    machine.environment["PYTHONPATH"] = str(
        extended_package(tmp_path / "package", "core/campaign/spec.py", SETTLE, before="    gate_patience: Annotated[")
    )
    with machine.up("--ephemeral") as service:
        started = machine.run_json("campaign", "start", str(file), "--unannounced")
        assert started["spec"]["policy"]["settle"] == "5m"
        assert machine.run_json("campaign", "show", "kernel")["spec"]["policy"]["settle"] == "5m"
        assert "settle 5m" in machine.run("campaign", "show", "kernel").stdout
        other = machine.run_json("campaign", "start", str(file), "--name", "b", "--settle", "7m", "--unannounced")
        assert other["spec"]["policy"]["settle"] == "7m"
        assert (
            "--settle: 'soon' is not a duration"
            in machine.run("campaign", "plan", str(file), "--settle", "soon").stderr
        )
        assert schemas_with_property(service, "settle") == ["CampaignPolicy", "PolicyView"]


HEAD = """\
# Generated from the derived types: pytest tests/api/v1/test_campaign_spec.py --rewrite
from datetime import datetime

from forewarn.api.v1.common import Request, Response
from forewarn.core.campaign.spec import CampaignSpec as CoreSpec
from forewarn.core.campaign.spec import WaveKind, Weekday
from forewarn.core.event_type import CampaignType
"""
TAIL = """
def spec_from_request(request: CampaignRequest | CampaignSpec) -> CoreSpec: ...
def spec_request(spec: CoreSpec) -> CampaignRequest: ...
def spec_view(spec: CoreSpec) -> CampaignSpec: ...
"""


def test_type_checkers_see_the_fields_of_derived_types(rewrite: bool) -> None:
    check_stub(campaign_spec, HEAD, TAIL, rewrite=rewrite)
