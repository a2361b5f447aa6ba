"""Random specs of campaigns, with hostile texts, for tests of what writes and reads them."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import strategies as st

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
from forewarn.core.event_type import MAINTENANCE_TYPES

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)
PATTERNS = st.lists(st.from_regex(r"[A-Za-z0-9._/*?\[\]!-]{1,8}", fullmatch=True), max_size=3).map(tuple)
TAGS = st.dictionaries(TEXTS, TEXTS, max_size=3)
CLOCK_TIMES = st.from_regex(r"([01][0-9]|2[0-3]):[0-5][0-9]", fullmatch=True)
ZONES = st.sampled_from(["UTC", "Europe/Vienna", "Etc/GMT+5"])
OFFSETS = st.integers(-12, 14).map(lambda hours: timezone(timedelta(hours=hours)) if hours else UTC)
MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=OFFSETS)  # noqa: DTZ001  # bounds are naive


def durations(least: timedelta, most: timedelta) -> st.SearchStrategy[timedelta]:
    """Return durations within bounds."""
    return st.timedeltas(least, most)


def a_blackout(start: datetime, length: timedelta, why: str) -> Blackout:
    """Return a black-out that begins at a time."""
    return Blackout(start=start, end=start + length, why=why)


LIMITS = (
    st.none() | st.builds(Limit, st.integers(1, 10**7)) | st.integers(1, 10**5).map(lambda n: Limit(None, n / 1000))
)
DAYS = st.lists(st.sampled_from(Weekday), unique=True).map(tuple)
WINDOWS = st.builds(Window, days=DAYS, start=CLOCK_TIMES, end=CLOCK_TIMES | st.just("24:00"), zone=st.just("") | ZONES)
BLACKOUTS = st.builds(a_blackout, MOMENTS, durations(timedelta(seconds=1), timedelta(days=9)), TEXTS)
GATES = st.builds(
    HttpCheck,
    url=st.sampled_from(["http://h/", "https://user@host:8443/a?b=c&d=%20#e"]),
    expect_status=st.integers(100, 599),
    timeout=durations(timedelta(milliseconds=1), timedelta(minutes=10)),
    retries=st.integers(0, 100),
    pause=durations(timedelta(0), timedelta(minutes=10)),
)
SELECTIONS = st.builds(
    Selection,
    scopes=PATTERNS.map(lambda names: (*names, "web")),
    hosts=PATTERNS,
    tags=TAGS,
    exclude_scopes=PATTERNS,
    exclude_hosts=PATTERNS,
    exclude_vms=PATTERNS,
    exclude_tags=TAGS,
) | st.just(Selection(all=True))
POLICIES = st.builds(
    CampaignPolicy,
    gap=durations(timedelta(0), timedelta(days=30)),
    notice=st.none() | durations(timedelta(0), timedelta(days=1)),
    expected=st.none() | durations(timedelta(seconds=1), timedelta(days=7)),
    scopes_at_once=LIMITS,
    hosts_at_once=LIMITS,
    vms_at_once=LIMITS,
    windows=st.lists(WINDOWS, max_size=3).map(tuple),
    blackouts=st.lists(BLACKOUTS, max_size=3).map(tuple),
    zone=ZONES,
    must_end_inside=st.booleans(),
    gate=st.none() | NAMES | GATES,
    gate_patience=durations(timedelta(0), timedelta(days=30)),
    halt_after=st.none() | st.integers(1, 10**6),
    advance=st.booleans(),
)
SPECS = st.builds(
    CampaignSpec,
    name=NAMES,
    type=st.sampled_from(sorted(MAINTENANCE_TYPES)),
    selection=SELECTIONS,
    duration=st.none() | durations(timedelta(0), timedelta(days=7)),
    description=TEXTS,
    policy=POLICIES,
    start_at=st.none() | MOMENTS,
)
