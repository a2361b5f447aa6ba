"""The calendar: windows and the start rule, for plan, announcement, clearing and estimate."""

from datetime import UTC, datetime, timedelta, tzinfo

import msgspec

from forewarn.core.campaign.calendar import Calendar, wave_notice
from forewarn.core.campaign.record import FAR_PAST
from forewarn.core.campaign.spec import Blackout, CampaignPolicy, CampaignSpec, Selection, Window
from forewarn.core.event import EventType
from forewarn.core.policy import EMULATOR, RuleContext
from tests.core.sample_scopes import TEN

MINUTE = timedelta(minutes=1)
LENGTH = 5 * MINUTE


def zones(_: str) -> tzinfo:
    return UTC


def calendar(*, since: datetime = TEN, start_at: datetime | None = None, **policy: object) -> Calendar:
    spec = CampaignSpec(
        name="kernel",
        type=EventType.REBOOT,
        selection=Selection(all=True),
        policy=CampaignPolicy(expected=LENGTH, **policy),  # type: ignore[arg-type]  # keys vary by test
        start_at=start_at,
    )
    return Calendar(spec, RuleContext(policy=EMULATOR), zones, since=since)


def test_without_windows_every_time_is_open() -> None:
    moment = TEN + timedelta(milliseconds=300)
    assert calendar(since=moment).is_open(moment)


def test_speed_divides_the_notice_down_to_the_shortest_one() -> None:
    spec = CampaignSpec(name="kernel", type=EventType.REBOOT, selection=Selection(all=True))
    for speed, shortest, expected in ((1, 10, 900), (7, 10, 129), (600, 10, 10), (600, 0, 2)):
        policy = msgspec.structs.replace(EMULATOR, speed=float(speed), shortest_notice=timedelta(seconds=shortest))
        assert wave_notice(spec, RuleContext(policy=policy)) == timedelta(seconds=expected)


def test_window_within_another_one_has_no_effect() -> None:
    night, midnight = Window(start="22:00", end="04:00"), Window(start="23:00", end="23:30")
    times = calendar(windows=(night, midnight))
    for hours, expected in ((64, 64), (5, 12), (13.75, 13.75), (17.99, 17.99), (18, 36), (40, 40)):
        assert times.next_start(TEN + hours * 60 * MINUTE) == TEN + expected * 60 * MINUTE


def test_times_can_be_queried_in_any_order() -> None:
    times = calendar(windows=(Window(start="22:00", end="04:00"),))
    late, early = TEN + timedelta(days=30), TEN + timedelta(hours=1)
    assert [times.next_start(moment) for moment in (late, early, late)] == [
        late + timedelta(hours=12),
        TEN + timedelta(hours=12),
        late + timedelta(hours=12),
    ]


def test_windows_are_searched_within_a_year_of_today() -> None:
    black_out = Blackout(start=TEN, end=TEN + timedelta(days=400))
    times = calendar(blackouts=(black_out,))
    assert times.next_start(TEN) is None
    times.keep_current(TEN + timedelta(days=50))
    assert times.next_start(TEN + timedelta(days=50)) == black_out.end


def test_first_start_respects_notice_gap_start_at_and_without_advance_the_plan() -> None:
    rested, planned = TEN + 40 * MINUTE, TEN + 60 * MINUTE
    assert calendar().first_start(TEN, rested_at=FAR_PAST, planned_at=planned) == TEN + 15 * MINUTE
    assert calendar().first_start(TEN, rested_at=rested, planned_at=planned) == rested
    assert calendar(advance=False).first_start(TEN, rested_at=rested, planned_at=planned) == planned
    start_at = TEN + timedelta(seconds=59.5)
    assert calendar(start_at=start_at).first_start(TEN, rested_at=FAR_PAST, planned_at=planned) == TEN + 16 * MINUTE
