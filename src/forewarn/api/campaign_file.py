"""The campaign file: a campaign as a person writes it down in TOML, read into what the rules are asked.

docs/reference/campaign-policy.md describes every key.
"""

import tomllib
from collections.abc import Mapping
from datetime import datetime, time

import msgspec

from forewarn.api.campaign_writing import parse_blackout, parse_moment, parse_window
from forewarn.api.v1 import CampaignType
from forewarn.api.written import FleetFileError, Written
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

NONE = "none"
"""How a rule is switched off that holds unless something else is said."""


def campaign_keys(struct: type[msgspec.Struct]) -> frozenset[str]:
    """Return the keys of a table: they are called as the fields of what is read from it."""
    return frozenset(struct.__struct_fields__)


def parse_campaign(text: str, *, file: str) -> dict[str, object]:
    """Read TOML, whatever it says."""
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise FleetFileError(file, "", f"this is not TOML: {error}") from error


def read_campaign(content: Mapping[str, object], *, file: str) -> CampaignSpec:
    """Read what a campaign file says; what is wrong is named by its key."""
    written = Written(file, "", content)
    top = written.table(campaign_keys(CampaignSpec))
    name = top.need("name", Written.name, 'a name in quotes, such as "kernel-6.1"')
    type_ = top.need("type", lambda value: value.choice(CampaignType), '"Freeze", "Reboot" or "Redeploy"')
    selection = top.need("selection", _selection, 'a table such as { scopes = ["web-*"] }')
    with written.checked():
        return CampaignSpec(
            name=name,
            type=EventType(type_.value),
            selection=selection,
            duration=top.get("duration", Written.duration, None),
            description=top.get("description", Written.text, ""),
            policy=top.get("policy", _policy, CampaignPolicy()),
            start_at=top.get("start_at", _moment, None),
        )


def _selection(written: Written) -> Selection:
    table = written.table(campaign_keys(Selection))
    with written.checked():
        return Selection(
            scopes=table.get("scopes", _texts, ()),
            hosts=table.get("hosts", _texts, ()),
            tags=table.get("tags", _tags, {}),
            all=table.get("all", Written.flag, False),
            exclude_scopes=table.get("exclude_scopes", _texts, ()),
            exclude_hosts=table.get("exclude_hosts", _texts, ()),
            exclude_vms=table.get("exclude_vms", _texts, ()),
            exclude_tags=table.get("exclude_tags", _tags, {}),
        )


def _policy(written: Written) -> CampaignPolicy:
    table, usual = written.table(campaign_keys(CampaignPolicy)), CampaignPolicy()
    with written.checked():
        return CampaignPolicy(
            waves=table.get("waves", lambda value: value.choice(WaveKind), usual.waves),
            gap=table.get("gap", Written.duration, usual.gap),
            notice=table.get("notice", Written.duration, usual.notice),
            expected=table.get("expected", Written.duration, usual.expected),
            scopes_at_once=table.get("scopes_at_once", _limit, None),
            hosts_at_once=table.get("hosts_at_once", _limit, None),
            vms_at_once=table.get("vms_at_once", _limit, None),
            windows=table.get("windows", lambda value: tuple(map(_window, value.items())), ()),
            blackouts=table.get("blackouts", lambda value: tuple(map(_blackout, value.items())), ()),
            zone=table.get("zone", Written.text, usual.zone),
            must_end_inside=table.get("must_end_inside", Written.flag, usual.must_end_inside),
            gate=table.get("gate", _gate, None),
            gate_patience=table.get("gate_patience", Written.duration, usual.gate_patience),
            halt_after=table.get("halt_after", _halt_after, usual.halt_after),
            advance=table.get("advance", Written.flag, usual.advance),
        )


def _window(written: Written) -> Window:
    if isinstance(written.value, str):
        return written.read(lambda value: parse_window(str(value)), "a window")
    table = written.table(campaign_keys(Window), 'a text such as "sat,sun 22:00-04:00", or a table')
    start = table.need("start", _clock_time, 'a time of day such as "22:00"')
    end = table.need("end", _clock_time, 'a time of day such as "04:00"')
    days = table.get("days", lambda value: tuple(day.choice(Weekday) for day in value.items()), ())
    with written.checked():
        return Window(days=days, start=start, end=end, zone=table.get("zone", Written.text, ""))


def _blackout(written: Written) -> Blackout:
    if isinstance(written.value, str):
        return written.read(lambda value: parse_blackout(str(value)), "a black-out")
    table = written.table(campaign_keys(Blackout), "a table with start and end")
    start = table.need("start", _moment, "a moment such as 2026-12-24T12:00:00Z")
    end = table.need("end", _moment, "a moment such as 2027-01-02T06:00:00Z")
    with written.checked():
        return Blackout(start=start, end=end, why=table.get("why", Written.text, ""))


def _gate(written: Written) -> str | HttpCheck:
    if isinstance(written.value, str):
        return written.name()
    table = written.table(campaign_keys(HttpCheck), "the name of a gate in quotes, or a table with url")
    url = table.need("url", Written.text, 'an address such as "http://127.0.0.1:9090/-/healthy"')
    usual = HttpCheck(url="http://localhost")
    with written.checked():
        return HttpCheck(
            url=url,
            expect_status=table.get("expect_status", lambda value: value.number(100, 599), usual.expect_status),
            timeout=table.get("timeout", Written.duration, usual.timeout),
            retries=table.get("retries", lambda value: value.number(0, MAX_RETRIES), usual.retries),
            pause=table.get("pause", Written.duration, usual.pause),
        )


def _limit(written: Written) -> Limit:
    def parse(value: object) -> Limit:
        if not isinstance(value, int | str) or isinstance(value, bool):
            raise TypeError
        return Limit.parse(value)

    return written.read(parse, 'a number such as 10, or a percentage such as "10%"')


def _halt_after(written: Written) -> int | None:
    return None if written.value == NONE else written.number(1, 1_000_000)


def _texts(written: Written) -> tuple[str, ...]:
    return tuple(item.text() for item in written.items())


def _tags(written: Written) -> dict[str, str]:
    return {name: value.text() for name, value in written.entries().items()}


def _moment(written: Written) -> datetime:
    def parse(value: object) -> datetime:
        if isinstance(value, datetime):
            return value
        if not isinstance(value, str):
            raise TypeError
        return parse_moment(value)

    return written.read(parse, "a moment such as 2026-12-24T12:00:00Z")


def _clock_time(written: Written) -> str:
    return f"{written.value:%H:%M}" if isinstance(written.value, time) else written.text()
