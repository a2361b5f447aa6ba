"""Progress bars and policy text of a campaign."""

from datetime import UTC, datetime, timedelta

from forewarn.api import v1
from forewarn.cli.views.campaign import BAR_WIDTH, policy_text, progress_lines
from forewarn.core.campaign.spec import Blackout, CampaignPolicy, HttpCheck, Limit, Weekday, Window
from tests.cli.sample_campaign import campaign_of


def test_bars_show_every_state() -> None:
    campaign = campaign_of(
        v1.WaveProgress(number=1, wave_count=1_000, vm_count=5_000, done=997, announced=1, failed=1, planned=1),
        v1.WaveProgress(number=2, wave_count=1, vm_count=1, planned=1),
    )
    first, second = progress_lines(campaign)
    assert (
        first
        == f"wave 1  {'█' * (BAR_WIDTH - 3)}▒▚░   997/1000 scopes, 5000 VMs: 997 done, 1 announced, 1 failed, 1 planned"
    )
    assert second == f"wave 2  {'░' * BAR_WIDTH}     0/1    scopes, 1 VM: 1 planned"


EVERY_KEY = CampaignPolicy(
    gap=timedelta(minutes=5),
    notice=timedelta(hours=1),
    expected=timedelta(minutes=9),
    scopes_at_once=Limit(percent=10),
    hosts_at_once=Limit(number=3),
    vms_at_once=Limit(number=20),
    windows=(Window(days=(Weekday.SAT,), start="22:00", end="04:00"), Window(start="00:00", end="06:00", zone="UTC")),
    blackouts=(
        Blackout(start=datetime(2026, 12, 24, 12, tzinfo=UTC), end=datetime(2027, 1, 2, 6, tzinfo=UTC), why="holidays"),
    ),
    zone="Europe/Vienna",
    must_end_inside=True,
    gate=HttpCheck(url="http://x/healthy?token=secret"),
    gate_patience=timedelta(hours=2),
    halt_after=None,
    advance=False,
)


def test_policy_shows_every_key_that_differs_from_its_default() -> None:
    defaults = CampaignPolicy()
    same = {key for key in CampaignPolicy.__struct_fields__ if getattr(EVERY_KEY, key) == getattr(defaults, key)}
    assert same == {"waves"}, "add a new key to EVERY_KEY; there is only one kind of waves"
    assert policy_text(EVERY_KEY).split("; ") == [
        "gap 5m",
        "notice 1h",
        "expected 9m",
        "scopes at once 10%",
        "hosts at once 3",
        "vms at once 20",
        "windows sat 22:00-04:00 Europe/Vienna or every day 00:00-06:00 UTC",
        "blackouts 2026-12-24 12:00:00Z to 2027-01-02 06:00:00Z (holidays)",
        "zone Europe/Vienna",
        "must end inside yes",
        "gate http://x/healthy",
        "gate patience 2h",
        "halt after none",
        "advance no",
    ]


def test_default_policy_is_empty() -> None:
    assert policy_text(CampaignPolicy()) == ""
