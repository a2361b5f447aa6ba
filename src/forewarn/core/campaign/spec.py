"""Specification of a campaign: which VMs, which event type, and the policy with windows, limits and gates.

These structs are the only declaration of a campaign's keys. The types of the operator API
(`api/v1/campaign_spec.py`), the campaign file (`api/campaign_file.py`), the options of `forewarn campaign plan` and the
form of the dashboard are derived from their fields: type, bounds, default, description and example. The rules that
bounds cannot express are in `__post_init__`.
"""

import re
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from forewarn.core.duration import duration_range
from forewarn.core.errors import Invalid
from forewarn.core.event import EventType
from forewarn.core.event_type import MAINTENANCE_TYPES, CampaignType
from forewarn.core.field_rule import check_fields
from forewarn.core.limits import MAX_TEXT_LENGTH
from forewarn.core.schedule import MAX_NOTICE
from forewarn.core.text import Name, Text, check_text, join_choices

DEFAULT_GAP = timedelta(minutes=30)
DEFAULT_WAVE_DURATION = timedelta(minutes=5)
"""The expected time of a wave if neither `expected` nor `duration` is given."""

MAX_GAP = timedelta(days=30)
MAX_WAVE_DURATION = timedelta(days=7)
MAX_CAMPAIGN_DURATION = timedelta(days=366)
"""Nothing is planned, and no window is searched, further ahead."""

MAX_NAMES = 1_000
MAX_WINDOWS = 64
MAX_BLACKOUTS = 256
MAX_RETRIES = 100
MAX_FAILURES = 1_000_000
MAX_CHECK_DURATION = timedelta(minutes=10)
MAX_GATE_TIMEOUT = timedelta(days=30)
MAX_URL_LENGTH = 2_048

CLOCK_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]"
ZONE = r"[A-Za-z0-9][A-Za-z0-9._+/-]{0,63}"

_CLOCK_TIME = re.compile(CLOCK_TIME)
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3})?) ?%")
_PATTERN = re.compile(r"[A-Za-z0-9._/*?\[\]!-]{1,260}")
_ZONE = re.compile(ZONE)

Pattern = Annotated[str, Meta(pattern=f"^{_PATTERN.pattern}$")]
"""A name, or a pattern such as `web-*`."""

Patterns = Annotated[tuple[Pattern, ...], Meta(max_length=MAX_NAMES, extra={"advice": "; use patterns such as web-*"})]


class WaveKind(StrEnum):
    """How the VMs of a scope are divided into waves."""

    UPDATE_DOMAIN = "update-domain"


class Weekday(StrEnum):
    """A day of the week, in the order of `datetime.weekday`."""

    MON = "mon"
    TUE = "tue"
    WED = "wed"
    THU = "thu"
    FRI = "fri"
    SAT = "sat"
    SUN = "sun"


WEEKDAYS = tuple(Weekday)


class Selection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which VMs are selected: the union of those of the scopes, those on the hosts, and those with all of the tags.

    VMs that match any exclusion are left out. Names may be patterns such as `web-*`.
    """

    scopes: Annotated[Patterns, Meta(description="VMs of these scopes; a pattern such as web-* is allowed.")] = ()
    hosts: Annotated[Patterns, Meta(description="VMs on these hosts; a pattern such as hv-* is allowed.")] = ()
    tags: Annotated[dict[str, str], Meta(description="VMs that have all of these tags.")] = {}
    all: Annotated[bool, Meta(description="All VMs.")] = False
    exclude_scopes: Annotated[Patterns, Meta(description="Except VMs of these scopes.")] = ()
    exclude_hosts: Annotated[Patterns, Meta(description="Except VMs on these hosts.")] = ()
    exclude_vms: Annotated[Patterns, Meta(description="Except these VMs: scope/name, or a name in any scope.")] = ()
    exclude_tags: Annotated[dict[str, str], Meta(description="Except VMs that have one of these tags.")] = {}

    def __post_init__(self) -> None:
        named = bool(self.scopes or self.hosts or self.tags)
        if not named and not self.all:
            raise Invalid("select VMs by scopes, hosts or tags, or all VMs with all = true")
        if named and self.all:
            raise Invalid("all = true selects every VM: omit scopes, hosts and tags, or omit all")
        check_fields(self)
        for field in ("scopes", "hosts", "exclude_scopes", "exclude_hosts", "exclude_vms"):
            _check_patterns(getattr(self, field), field)
        for field in ("tags", "exclude_tags"):
            _check_tags(getattr(self, field), field)


def _check_patterns(patterns: tuple[str, ...], field: str) -> None:
    for n, pattern in enumerate(patterns):
        if not _PATTERN.fullmatch(pattern):
            raise Invalid(f"{pattern!r} is neither a name nor a pattern such as web-*", f"{field}[{n}]")


def _check_tags(tags: dict[str, str], field: str) -> None:
    if len(tags) > MAX_NAMES:
        raise Invalid(f"{len(tags)} tags: at most {MAX_NAMES} are allowed", field)
    for name, value in tags.items():
        check_text(name, "a name", field=field)
        check_text(value, f"tag {name[:40]!r}", field=f"{field}.{name}")


class Limit(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many at once: a number, or a percentage of the selection."""

    number: int | None = None
    percent: float | None = None

    def __post_init__(self) -> None:
        if (self.number is None) == (self.percent is None):
            raise Invalid('a limit must be a number such as 10, or a percentage such as "10%"')
        if self.number is not None and not 1 <= self.number <= 10_000_000:
            raise Invalid(f"a limit must be at least 1, got {self.number}: omit it for no limit")
        if self.percent is not None and not 0 < self.percent <= 100:
            raise Invalid(f"a limit in percent must be above 0 and at most 100, got {self.percent:g}")

    @classmethod
    def parse(cls, written: int | str) -> "Limit":
        """Parse a limit as users write it: 10, "10" or "10%"."""
        if isinstance(written, int):
            return cls(number=written)
        if found := _PERCENT.fullmatch(written):
            return cls(percent=float(found[1]))
        if written.isascii() and written.isdigit() and len(written) <= 8:
            return cls(number=int(written))
        raise Invalid(f'{written!r} is not a limit: write a number such as 10, or a percentage such as "10%"')

    def resolve(self, total: int) -> int:
        """Return the limit for a total; a percentage is rounded down, but is at least 1."""
        if self.number is not None:
            return self.number
        # Binary fractions must not lose one: 4.35 % of 20,000 is 870.
        return max(1, int(round(total * (self.percent or 0) / 100, 6)))

    def __str__(self) -> str:
        return f"{self.number}" if self.number is not None else f"{self.percent:g}%"


class Window(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When waves may start, in the local time of a time zone. If its end is not after its start, it spans midnight."""

    days: Annotated[tuple[Weekday, ...], Meta(max_length=7, description="On which it starts. Default: all days.")] = ()
    start: Annotated[str, Meta(pattern=f"^{CLOCK_TIME}$", examples=["22:00"])]
    end: Annotated[str, Meta(pattern=f"^({CLOCK_TIME}|24:00)$", examples=["04:00"])]
    """The window closes at this time, which is not part of it; 24:00 is the end of the day."""
    zone: Annotated[str, Meta(description="Default: the policy's zone.")] = ""

    def __post_init__(self) -> None:
        check_fields(self)
        _check_clock_time(self.start, "start")
        if self.end != "24:00":
            _check_clock_time(self.end, "end")
        if self.zone:
            check_zone(self.zone)
        if len(set(self.days)) < len(self.days):
            raise Invalid("a window must name each day at most once", "days")

    def __str__(self) -> str:
        days = ",".join(self.days) or "every day"
        return f"{days} {self.start}-{self.end}" + (f" {self.zone}" if self.zone else "")


def _check_clock_time(written: str, field: str) -> None:
    if not _CLOCK_TIME.fullmatch(written):
        raise Invalid(f'{written!r} is not a time of day: write it like "22:00"', field)


def check_zone(zone: str) -> None:
    """Refuse what cannot be the name of a time zone. Only the shell can look up whether it exists."""
    if not _ZONE.fullmatch(zone) or ".." in zone:
        raise Invalid(f'{zone!r} is not a time zone: write it like "Europe/Vienna" or "UTC"', "zone")


class Blackout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A time in which nothing of the campaign happens: no wave starts in it or is expected to last into it."""

    start: datetime
    end: datetime
    why: Annotated[Text, Meta(description="Shown when a wave waits for the end of the black-out.")] = ""

    def __post_init__(self) -> None:
        check_aware(self.start, "start")
        check_aware(self.end, "end")
        check_fields(self)
        if not self.start < self.end:
            raise Invalid(
                f"a black-out must end after it starts, not {_format_time(self.start)} to {_format_time(self.end)}"
            )

    def __str__(self) -> str:
        times = f"{_format_time(self.start)}/{_format_time(self.end)}"
        return f"{times} {self.why}" if self.why else times


def _format_time(moment: datetime) -> str:
    """Format a time as users write it in a policy."""
    return moment.isoformat().replace("+00:00", "Z")


def check_aware(moment: datetime, field: str) -> None:
    """Refuse a datetime without a time zone."""
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise Invalid("must have a time zone: write it like 2030-01-07T10:00:00Z", field)


class HttpCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A health gate that is checked by HTTP: open if the response has the expected status."""

    url: Annotated[
        str, Meta(pattern="^https?://[!-~]+$", max_length=MAX_URL_LENGTH, examples=["http://127.0.0.1:9090/-/healthy"])
    ]
    expect_status: Annotated[int, Meta(ge=100, le=599, description="The status that means open.")] = 200
    timeout: Annotated[
        timedelta,
        duration_range(timedelta(milliseconds=1), MAX_CHECK_DURATION),
        Meta(description="For one attempt."),
    ] = timedelta(seconds=10)
    retries: Annotated[int, Meta(ge=0, le=MAX_RETRIES, description="After a first attempt without success.")] = 2
    pause: Annotated[
        timedelta, duration_range(timedelta(0), MAX_CHECK_DURATION), Meta(description="Between two attempts.")
    ] = timedelta(seconds=10)

    def __post_init__(self) -> None:
        check_fields(self)
        _check_url(self.url)

    @property
    def display_url(self) -> str:
        """The URL with its path but without its query, for messages. The campaign itself shows the full URL."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def gate_name(gate: str | HttpCheck | None) -> str:
    """Return the name of a gate in messages."""
    return gate.display_url if isinstance(gate, HttpCheck) else gate or ""


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        raise Invalid(f"{url[:MAX_TEXT_LENGTH]!r} is not a valid gate URL: write http://… or https://…", "url")


class CampaignPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When waves may start, how many VMs at once, and when to stop. Every key has a default."""

    waves: Annotated[WaveKind, Meta(description="How the VMs of a scope are divided into waves.")] = (
        WaveKind.UPDATE_DOMAIN
    )
    gap: Annotated[
        timedelta,
        duration_range(timedelta(0), MAX_GAP),
        Meta(description="From the end of a scope's wave to the start of its next."),
    ] = DEFAULT_GAP
    notice: Annotated[
        timedelta | None,
        duration_range(timedelta(0), MAX_NOTICE),
        Meta(description="From a wave's announcement to its start. Default: the minimum of its type."),
    ] = None
    expected: Annotated[
        timedelta | None,
        duration_range(timedelta(seconds=1), MAX_WAVE_DURATION),
        Meta(description="How long a wave is expected to take. Default: the duration, or else 5m."),
    ] = None
    scopes_at_once: Annotated[Limit | None, Meta(description="In how many scopes waves run at once.")] = None
    hosts_at_once: Annotated[Limit | None, Meta(description="On how many hosts waves run at once.")] = None
    vms_at_once: Annotated[Limit | None, Meta(description="How many VMs are in running waves at once.")] = None
    windows: Annotated[
        tuple[Window, ...], Meta(max_length=MAX_WINDOWS, description="When waves may start. Default: always.")
    ] = ()
    blackouts: Annotated[
        tuple[Blackout, ...], Meta(max_length=MAX_BLACKOUTS, description="When no wave may start or be in progress.")
    ] = ()
    zone: Annotated[str, Meta(pattern=f"^{ZONE}$", description="The time zone of windows that name none.")] = "UTC"
    must_end_inside: Annotated[
        bool, Meta(description="Whether a wave must be expected to end in the window in which it starts.")
    ] = False
    gate: Annotated[
        Name | HttpCheck | None,
        Meta(description="Checked before a scope's next wave: the name of a gate in the settings, or a URL."),
    ] = None
    gate_patience: Annotated[
        timedelta,
        duration_range(timedelta(0), MAX_GATE_TIMEOUT),
        Meta(description="How long a gate may stay closed before the campaign halts."),
    ] = timedelta(minutes=30)
    halt_after: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_FAILURES)] | None,
        Meta(description="How many failed waves, since its start or last resume, halt the campaign; or none."),
    ] = 1
    advance: Annotated[bool, Meta(description="Whether waves move up when those before them were approved early.")] = (
        True
    )

    def __post_init__(self) -> None:
        check_fields(self)
        check_zone(self.zone)


class CampaignSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A whole campaign, as it was requested."""

    name: Annotated[Name, Meta(description="The name of the campaign.", examples=["kernel-6.1"])]
    type: Annotated[
        EventType,
        Meta(
            description=f"The type of its events: {join_choices(MAINTENANCE_TYPES)}.", extra={"choices": CampaignType}
        ),
    ]
    selection: Annotated[Selection, Meta(examples=[{"scopes": ["web-*"]}])]
    duration: Annotated[
        timedelta | None,
        duration_range(timedelta(0), MAX_WAVE_DURATION),
        Meta(description="How long each VM is interrupted."),
    ] = None
    description: Annotated[Text, Meta(description="The description that VMs get.")] = ""
    policy: CampaignPolicy = CampaignPolicy()
    start_at: Annotated[datetime | None, Meta(description="Announce nothing before this time.")] = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.type not in MAINTENANCE_TYPES:
            raise Invalid(f"must be {join_choices(MAINTENANCE_TYPES)}, not {self.type.value}", "type")
        if self.start_at is not None:
            check_aware(self.start_at, "start_at")

    @property
    def expected(self) -> timedelta:
        """How long a wave is expected to take, before speed."""
        return self.policy.expected or self.duration or DEFAULT_WAVE_DURATION
