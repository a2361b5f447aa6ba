"""The spec of a campaign in the API: requests become specs of the core, specs become responses, and type checkers know
the fields."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pytest

from forewarn.api.v1 import campaign_spec
from forewarn.api.v1.campaign_spec import StartCampaign, spec_from_request, spec_request, spec_view
from forewarn.api.v1.common import Request, Response
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
        ({"duration": "8d"}, "duration must be 0s to 7d, got 8d"),
        ({"policy": {"gap": "31d"}}, "policy: gap must be 0s to 30d, got 31d"),
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


STUB = Path(campaign_spec.__file__).with_suffix(".pyi")
HEAD = """\
# Generated from the derived types: pytest tests/api/v1/test_campaign_spec.py --rewrite
from datetime import datetime

from forewarn.api.v1.common import Request, Response
from forewarn.core.campaign.spec import CampaignSpec as CoreSpec
from forewarn.core.campaign.spec import CampaignType, WaveKind, Weekday
"""
TAIL = """
def spec_from_request(request: CampaignRequest | CampaignSpec) -> CoreSpec: ...
def spec_request(spec: CoreSpec) -> CampaignRequest: ...
def spec_view(spec: CoreSpec) -> CampaignSpec: ...
"""


def test_type_checkers_see_the_fields_of_derived_types(rewrite: bool) -> None:
    structs = [each for each in vars(campaign_spec).values() if _is_api_type(each)]
    text = HEAD + "".join(_stub_of(struct) for struct in structs) + TAIL
    if rewrite:
        STUB.write_text(text, encoding="utf-8")
    assert STUB.read_text(encoding="utf-8") == text


def _is_api_type(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Request | Response) and value not in (Request, Response)


def _stub_of(struct: type[msgspec.Struct]) -> str:
    base = struct.__bases__[0]
    inherited = {field.name for field in msgspec.structs.fields(base)}
    lines = [
        f"    {field.name}: {_text_of(field.type)}{'' if field.required else ' = ...'}\n"
        for field in msgspec.structs.fields(struct)
        if field.name not in inherited
    ]
    return f"\nclass {struct.__name__}({base.__name__}, frozen=True, kw_only=True):\n" + "".join(lines)


def _text_of(type_: Any) -> str:
    """Return a type as source text, without the bounds that only the decoder checks."""
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Annotated:
        return _text_of(arguments[0])
    if origin in (Union, UnionType):
        return " | ".join(map(_text_of, arguments))
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(_text_of, arguments))}]"
    if type_ in (Ellipsis, NoneType):
        return "..." if type_ is Ellipsis else "None"
    return str(type_.__name__)
