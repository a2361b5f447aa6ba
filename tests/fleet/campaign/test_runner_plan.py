"""An undisturbed campaign whose waves take as long as expected follows its plan exactly."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from forewarn.clock import ManualClock
from forewarn.core.campaign.record import CampaignState
from forewarn.core.campaign.spec import Blackout, Limit, Window
from forewarn.core.journal import EntryKind
from forewarn.core.scope import Scope
from forewarn.store.memory import MemoryStore
from tests.core.sample_scopes import scope, vm
from tests.fleet.campaign.campaigns import (
    CAMPAIGN_ID,
    DurablePlatform,
    advance_to,
    campaign_spec,
    plan_campaign,
    read_campaign_journal,
    start_campaign,
)
from tests.fleet.fleets import run_fleet

NOW = datetime(2030, 3, 30, 12, 0, tzinfo=UTC)
"""In the night that follows, clocks in Vienna go forward."""

MINUTE = timedelta(minutes=1)
LENGTH = 5 * MINUTE
NIGHT = Window(start="22:00", end="04:00", zone="Europe/Vienna")
NOON = Window(start="12:30", end="13:40", zone="UTC")

POLICIES: dict[str, dict[str, Any]] = {
    "nothing said": {},
    "scopes": {"scopes_at_once": Limit(percent=20)},
    "hosts": {"hosts_at_once": Limit(number=4)},
    "VMs": {"vms_at_once": Limit(number=6)},
    "all limits": {"scopes_at_once": Limit(number=3), "hosts_at_once": Limit(number=5), "vms_at_once": Limit(number=7)},
    "long notice": {"notice": 50 * MINUTE, "gap": timedelta(0), "vms_at_once": Limit(number=9)},
    "notice beyond the gap": {"notice": 20 * MINUTE, "gap": 5 * MINUTE, "vms_at_once": Limit(number=6)},
    "windows": {"windows": (NIGHT, NOON), "vms_at_once": Limit(number=9), "must_end_inside": True},
    "black-outs": {
        "blackouts": (Blackout(start=NOW + 33 * MINUTE, end=NOW + 90 * MINUTE),),
        "scopes_at_once": Limit(number=4),
    },
}


def a_fleet(seed: int) -> list[Scope]:
    """Make scopes of one to four update domains, on hosts that they share or that are not known."""
    lots = random.Random(seed)
    return [
        scope(
            f"s-{number}",
            *(
                vm(f"s-{number}_{n}", domain=lots.randrange(4), host=lots.choice([None, "hv-0", "hv-1", "hv-2"]))
                for n in range(lots.randint(1, 5))
            ),
        )
        for number in range(12)
    ]


@pytest.mark.parametrize("advance", [True, False], ids=["advance", "as planned"])
@pytest.mark.parametrize("name", POLICIES)
async def test_undisturbed_campaign_follows_its_plan(name: str, advance: bool) -> None:
    await follow(name, 7, advance=advance)


async def test_wave_does_not_move_up_into_the_room_of_another_due_wave() -> None:
    await follow("notice beyond the gap", 3, advance=True)


async def follow(name: str, seed: int, *, advance: bool) -> None:
    """Let a campaign over a fleet of this seed roll, and compare it with its plan."""
    store, clock = MemoryStore(), ManualClock(NOW)
    platform = DurablePlatform(clock, length=LENGTH)
    spec = campaign_spec(expected=LENGTH, advance=advance, **POLICIES[name])
    async with run_fleet(*a_fleet(seed), store=store, clock=clock, platform=platform) as fleet:
        plan = plan_campaign(fleet, spec)
        await start_campaign(fleet, spec)
        assert plan.ends_at is not None
        assert not plan.unplaced
        assert (await fleet.campaigns.status(CAMPAIGN_ID)).expected_end == plan.ends_at
        await advance_to(fleet, plan.ends_at)
        campaign = fleet.campaigns.find(CAMPAIGN_ID)
    assert (campaign.state, campaign.ended_at) == (CampaignState.COMPLETED, plan.ends_at)
    happened = {
        (row.entry.kind, row.entry.facts["scope"], int(row.entry.facts["wave"])): row.entry.at
        for row in await read_campaign_journal(store)
        if row.entry.kind in (EntryKind.WAVE_ANNOUNCED, EntryKind.WAVE_CLEARED, EntryKind.WAVE_SETTLED)
    }
    assert happened == {
        (did, wave.scope, wave.n): at
        for wave in plan.waves
        for did, at in (
            (EntryKind.WAVE_ANNOUNCED, wave.announce_at),
            (EntryKind.WAVE_CLEARED, wave.not_before),
            (EntryKind.WAVE_SETTLED, wave.ends_at),
        )
    }
