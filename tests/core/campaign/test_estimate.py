"""When a campaign is expected to end: from its current progress, whatever has differed from the plan."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo

import msgspec

from forewarn.core.campaign.calendar import Calendar
from forewarn.core.campaign.estimate import CompletionEstimate
from forewarn.core.campaign.limits import Counts
from forewarn.core.campaign.record import (
    Campaign,
    CampaignState,
    ClosedGate,
    ScopeProgress,
    StateChange,
    Wave,
    WaveState,
)
from forewarn.core.campaign.spec import CampaignPolicy, CampaignSpec, Limit, Selection, Window
from forewarn.core.event import EventType
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.scope import Hold, Scope
from tests.core.sample_scopes import TEN, scope, vm

CONDITIONS = RuleContext(policy=EMULATOR)
MINUTE = timedelta(minutes=1)
DONE, PLANNED, ANNOUNCED, CLEARED, SKIPPED, FAILED = (
    WaveState.DONE,
    WaveState.PLANNED,
    WaveState.ANNOUNCED,
    WaveState.CLEARED,
    WaveState.SKIPPED,
    WaveState.FAILED,
)
Told = tuple[int, WaveState, int]
"""A wave: its planned start, its state, and the time of that state, in minutes since the campaign began."""


def zones(_: str) -> tzinfo:
    return UTC


def minutes(number: float) -> datetime:
    return TEN + number * MINUTE


def campaign(*scopes: tuple[Told, ...], start_at: datetime | None = None, **policy: object) -> Campaign:
    """Return a campaign in which every wave is expected to take five minutes, with a notice of fifteen."""
    spec = CampaignSpec(
        name="kernel",
        type=EventType.REBOOT,
        selection=Selection(all=True),
        policy=CampaignPolicy(**policy),  # type: ignore[arg-type]  # keys vary by test
        start_at=start_at,
    )
    progress = tuple(
        ScopeProgress(
            f"web-{n}",
            0,
            tuple(Wave(i, planned * 60, state, at * 60, 1) for i, (planned, state, at) in enumerate(told)),
        )
        for n, told in enumerate(scopes)
    )
    return Campaign(
        id="0F0E0D0C-0B0A-4908-8706-050403020100",
        spec=spec,
        state=CampaignState.RUNNING,
        by="alice",
        started_at=TEN,
        state_change=StateChange(by="alice", at=TEN),
        scopes=progress,
        selected=Counts(len(scopes), len(scopes), sum(map(len, scopes))),
    )


def expected_end(
    value: Campaign, conditions: RuleContext, now: datetime, scopes: Mapping[str, Scope] = {}
) -> datetime | None:
    outlook = CompletionEstimate(value, Calendar(value.spec, conditions, zones, since=now), conditions, now=now)
    for progress in value.scopes:
        outlook.add(progress, scopes.get(progress.scope))
    return outlook.end


def end(value: Campaign, now: float) -> float | None:
    """Return the expected end in minutes since the campaign began."""
    expected = expected_end(value, CONDITIONS, minutes(now))
    return None if expected is None else (expected - TEN) / MINUTE


def test_undisturbed_campaign_is_expected_to_end_as_planned() -> None:
    assert end(campaign(((15, PLANNED, 0), (50, PLANNED, 0))), 0) == 55
    assert end(campaign(((15, CLEARED, 15), (50, PLANNED, 0))), 16) == 55
    assert end(campaign(((15, DONE, 20), (50, ANNOUNCED, 50))), 36) == 55


def test_late_wave_delays_the_waves_after_it() -> None:
    late = campaign(((15, CLEARED, 15), (50, PLANNED, 0)))
    assert end(late, 30) == 30 + 30 + 5


def test_closed_gate_delays_starts_until_its_next_check() -> None:
    waiting = campaign(((15, DONE, 20), (50, ANNOUNCED, 50), (85, PLANNED, 0)))
    shut = ClosedGate(since=minutes(50), why="sick", retry_at=minutes(61))
    assert end(msgspec.structs.replace(waiting, gate=shut), 60) == 61 + 5 + 30 + 5


def test_gap_after_a_skipped_wave_has_to_pass() -> None:
    assert end(campaign(((15, DONE, 20), (50, SKIPPED, 40), (85, PLANNED, 0))), 41) == 40 + 30 + 5
    assert end(campaign(((15, DONE, 20), (50, PLANNED, 0)), ((15, FAILED, 20), (50, PLANNED, 0))), 40) == 40 + 30 + 5


def test_added_wave_has_its_notice_and_the_gap_before_it() -> None:
    assert end(campaign(((15, DONE, 20), (20, PLANNED, 0))), 20) == 20 + 30 + 5
    assert end(campaign(((15, DONE, 20), (20, PLANNED, 0)), gap=timedelta(0)), 20) == 20 + 15 + 5


def test_early_approval_moves_later_waves_up_unless_advance_is_false() -> None:
    waves = ((15, CLEARED, 2), (50, PLANNED, 0))
    assert end(campaign(waves), 3) == 2 + 5 + 30 + 5
    assert end(campaign(waves, advance=False), 3) == 55


def test_waves_that_wait_for_limits_keep_their_place_behind_late_ones() -> None:
    rows: tuple[tuple[Told, ...], ...] = (((15, ANNOUNCED, 15),), ((20, PLANNED, 0),), ((25, PLANNED, 0),))
    assert end(campaign(*rows, scopes_at_once=Limit(1)), 0) == 30
    assert end(campaign(*rows, scopes_at_once=Limit(1)), 40) == 40 + 3 * 5 + 10, (
        "the waves behind it still need their notice"
    )
    assert end(campaign(*rows), 40) == 40 + 15 + 5
    early: tuple[tuple[Told, ...], ...] = (((15, CLEARED, 5),), ((20, ANNOUNCED, 15),), ((25, PLANNED, 0),))
    assert end(campaign(*early, scopes_at_once=Limit(1)), 6) == 6 + 15 + 5


def test_estimate_never_exceeds_limits() -> None:
    many = tuple(((15, ANNOUNCED, 15),) for _ in range(10))
    assert end(campaign(*many, scopes_at_once=Limit(2)), 20) == 20 + 5 * 5
    assert end(campaign(*many, hosts_at_once=Limit(2)), 20) == 20 + 5 * 5
    assert end(campaign(*many, vms_at_once=Limit(2)), 20) == 20 + 5 * 5


def test_waves_on_the_same_hosts_are_expected_to_run_at_the_same_time() -> None:
    scopes = {name: scope(name, vm(f"{name}-0", host=f"hv-{n % 4}")) for n in range(8) for name in (f"web-{n}",)}
    value = campaign(*[((15, ANNOUNCED, 15),)] * 8, hosts_at_once=Limit(2))
    assert expected_end(value, CONDITIONS, minutes(20), scopes) == minutes(20 + 2 * 5)


def test_no_wave_starts_outside_of_windows_or_before_start_at() -> None:
    window = Window(start="22:00", end="22:10")
    assert end(campaign(((720, PLANNED, 0), (2160, PLANNED, 0)), windows=(window,)), 0) == 36 * 60 + 5
    assert end(campaign(((75, PLANNED, 0),), start_at=minutes(60)), 0) == 60 + 15 + 5


def test_end_that_waits_for_a_person_is_not_estimated() -> None:
    paused = msgspec.structs.replace(campaign(((15, PLANNED, 0),)), state=CampaignState.PAUSED)
    assert end(paused, 0) is None
    held = msgspec.structs.replace(CONDITIONS, hold=Hold(by="bob", reason="audit", at=TEN))
    assert expected_end(campaign(((15, PLANNED, 0),)), held, TEN) is None
    never = Window(start="22:00", end="22:02")
    assert end(campaign(((15, PLANNED, 0),), windows=(never,), must_end_inside=True), 0) is None


def test_campaign_without_remaining_waves_ends_now() -> None:
    assert end(campaign(((15, DONE, 20),)), 20.5) == 20.5
