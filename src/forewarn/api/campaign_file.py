"""The campaign file: parse and validate a campaign spec in TOML.

docs/reference/campaign-policy.md describes every key.
"""

import tomllib
from collections.abc import Mapping
from datetime import datetime, time

import msgspec

from forewarn.api.campaign_windows import parse_blackout, parse_moment, parse_window
from forewarn.api.v1 import CampaignType
from forewarn.core.campaign.spec import (
    MAX_RETRIES,
    Blackout,
    CampaignPolicy,
    CampaignSpec,
    HttpCheck,
    Limit,
    Selection,
    WaveKind,
    Weekday,
    Window,
)
from forewarn.core.event import EventType
from forewarn.settings.file_reader import FileError, FileValue

NONE = "none"
"""How a rule is switched off that holds unless something else is said."""


def table_keys(struct: type[msgspec.Struct]) -> frozenset[str]:
    """Return the keys of a table: they are called as the fields of what is read from it."""
    return frozenset(struct.__struct_fields__)


def parse_campaign(text: str, *, file: str) -> dict[str, object]:
    """Read TOML, whatever it says."""
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise FileError(file, "", f"this is not TOML: {error}") from error


def read_campaign(content: Mapping[str, object], *, file: str) -> CampaignSpec:
    """Read what a campaign file says; what is wrong is named by its key."""
    document = FileValue(file, "", content)
    top = document.table(table_keys(CampaignSpec))
    name = top.require("name", FileValue.name, 'a name in quotes, such as "kernel-6.1"')
    type_ = top.require("type", lambda value: value.choice(CampaignType), '"Freeze", "Reboot" or "Redeploy"')
    selection = top.require("selection", _selection, 'a table such as { scopes = ["web-*"] }')
    with document.wrap_errors():
        return CampaignSpec(
            name=name,
            type=EventType(type_.value),
            selection=selection,
            duration=top.get("duration", FileValue.duration, None),
            description=top.get("description", FileValue.text, ""),
            policy=top.get("policy", _policy, CampaignPolicy()),
            start_at=top.get("start_at", _moment, None),
        )


def _selection(raw: FileValue) -> Selection:
    table = raw.table(table_keys(Selection))
    with raw.wrap_errors():
        return Selection(
            scopes=table.get("scopes", _texts, ()),
            hosts=table.get("hosts", _texts, ()),
            tags=table.get("tags", _tags, {}),
            all=table.get("all", FileValue.flag, False),
            exclude_scopes=table.get("exclude_scopes", _texts, ()),
            exclude_hosts=table.get("exclude_hosts", _texts, ()),
            exclude_vms=table.get("exclude_vms", _texts, ()),
            exclude_tags=table.get("exclude_tags", _tags, {}),
        )


def _policy(raw: FileValue) -> CampaignPolicy:
    table, defaults = raw.table(table_keys(CampaignPolicy)), CampaignPolicy()
    with raw.wrap_errors():
        return CampaignPolicy(
            waves=table.get("waves", lambda value: value.choice(WaveKind), defaults.waves),
            gap=table.get("gap", FileValue.duration, defaults.gap),
            notice=table.get("notice", FileValue.duration, defaults.notice),
            expected=table.get("expected", FileValue.duration, defaults.expected),
            scopes_at_once=table.get("scopes_at_once", _limit, None),
            hosts_at_once=table.get("hosts_at_once", _limit, None),
            vms_at_once=table.get("vms_at_once", _limit, None),
            windows=table.get("windows", lambda value: tuple(map(_window, value.items())), ()),
            blackouts=table.get("blackouts", lambda value: tuple(map(_blackout, value.items())), ()),
            zone=table.get("zone", FileValue.text, defaults.zone),
            must_end_inside=table.get("must_end_inside", FileValue.flag, defaults.must_end_inside),
            gate=table.get("gate", _gate, None),
            gate_patience=table.get("gate_patience", FileValue.duration, defaults.gate_patience),
            halt_after=table.get("halt_after", _halt_after, defaults.halt_after),
            advance=table.get("advance", FileValue.flag, defaults.advance),
        )


def _window(raw: FileValue) -> Window:
    if isinstance(raw.value, str):
        return raw.read(lambda value: parse_window(str(value)), "a window")
    table = raw.table(table_keys(Window), 'a text such as "sat,sun 22:00-04:00", or a table')
    start = table.require("start", _clock_time, 'a time of day such as "22:00"')
    end = table.require("end", _clock_time, 'a time of day such as "04:00"')
    days = table.get("days", lambda value: tuple(day.choice(Weekday) for day in value.items()), ())
    with raw.wrap_errors():
        return Window(days=days, start=start, end=end, zone=table.get("zone", FileValue.text, ""))


def _blackout(raw: FileValue) -> Blackout:
    if isinstance(raw.value, str):
        return raw.read(lambda value: parse_blackout(str(value)), "a black-out")
    table = raw.table(table_keys(Blackout), "a table with start and end")
    start = table.require("start", _moment, "a moment such as 2026-12-24T12:00:00Z")
    end = table.require("end", _moment, "a moment such as 2027-01-02T06:00:00Z")
    with raw.wrap_errors():
        return Blackout(start=start, end=end, why=table.get("why", FileValue.text, ""))


def _gate(raw: FileValue) -> str | HttpCheck:
    if isinstance(raw.value, str):
        return raw.name()
    table = raw.table(table_keys(HttpCheck), "the name of a gate in quotes, or a table with url")
    url = table.require("url", FileValue.text, 'an address such as "http://127.0.0.1:9090/-/healthy"')
    defaults = HttpCheck(url="http://localhost")
    with raw.wrap_errors():
        return HttpCheck(
            url=url,
            expect_status=table.get("expect_status", lambda value: value.number(100, 599), defaults.expect_status),
            timeout=table.get("timeout", FileValue.duration, defaults.timeout),
            retries=table.get("retries", lambda value: value.number(0, MAX_RETRIES), defaults.retries),
            pause=table.get("pause", FileValue.duration, defaults.pause),
        )


def _limit(raw: FileValue) -> Limit:
    def parse(value: object) -> Limit:
        if not isinstance(value, int | str) or isinstance(value, bool):
            raise TypeError
        return Limit.parse(value)

    return raw.read(parse, 'a number such as 10, or a percentage such as "10%"')


def _halt_after(raw: FileValue) -> int | None:
    return None if raw.value == NONE else raw.number(1, 1_000_000)


def _texts(raw: FileValue) -> tuple[str, ...]:
    return tuple(item.text() for item in raw.items())


def _tags(raw: FileValue) -> dict[str, str]:
    return {name: value.text() for name, value in raw.entries().items()}


def _moment(raw: FileValue) -> datetime:
    def parse(value: object) -> datetime:
        if isinstance(value, datetime):
            return value
        if not isinstance(value, str):
            raise TypeError
        return parse_moment(value)

    return raw.read(parse, "a moment such as 2026-12-24T12:00:00Z")


def _clock_time(raw: FileValue) -> str:
    return f"{raw.value:%H:%M}" if isinstance(raw.value, time) else raw.text()
