"""Charts of a campaign: the plan, and the plan against what happened."""

from datetime import timedelta

import pytest

from forewarn.core.campaign.limits import Counts
from forewarn.core.campaign.plan import Plan, PlannedWave, UnplacedVms
from forewarn.core.campaign.spec import Blackout, CampaignPolicy, Window
from forewarn.core.impact import Failed
from forewarn.operator.dashboard import campaign_chart
from forewarn.operator.dashboard.campaign_chart import CHART_KINDS, CampaignChart, plan_chart, progress_chart
from forewarn.operator.dashboard.time_chart import ChartItem, to_seconds
from forewarn.store.port import JournalQuery, RecordKey, RecordKind
from tests.operator.running_api import TEN, RunningApi, run_api
from tests.operator.sample_campaign import asked, start

MINUTE = timedelta(minutes=1)


def a_wave(scope: str, n: int, minutes: int, *, announced: bool = True) -> PlannedWave:
    """Return a wave that is announced at a minute, starts 15 minutes later and lasts 5."""
    at = TEN + minutes * MINUTE
    return PlannedWave(
        scope=scope,
        n=n,
        update_domain=n - 1,
        announce_at=at,
        not_before=at + 15 * MINUTE,
        ends_at=at + 20 * MINUTE,
        hosts=("hv-0",),
        vms=tuple(f"{scope}-{number}" for number in range(6)),
        announced=announced,
    )


def a_plan(*waves: PlannedWave, unplaced: tuple[UnplacedVms, ...] = ()) -> Plan:
    """Return a plan of these waves."""
    ends_at = max((wave.ends_at for wave in waves), default=None)
    return Plan(waves=waves, unplaced=unplaced, ends_at=ends_at, totals=Counts(1, 1, 1))


def minute(seconds: int) -> int:
    """Return a time of a chart in minutes since ten o'clock."""
    return (seconds - to_seconds(TEN)) // 60


def bars(item: ChartItem) -> list[tuple[str, int, int | None]]:
    """Return the bars of an item, in minutes since ten o'clock."""
    return [(bar.kind.value, minute(bar.start), None if bar.end is None else minute(bar.end)) for bar in item.bars]


def rows(picture: CampaignChart, *, plan: bool = False) -> dict[str, list[list[tuple[str, int, int | None]]]]:
    """Return the bars of what is planned or happened, by scope."""
    return {row.label: [bars(item) for item in row.items if item.plan is plan] for row in picture.chart.rows}


def test_plan_has_a_row_per_scope_with_notice_and_impact() -> None:
    picture = plan_chart(
        a_plan(a_wave("web", 1, 0), a_wave("db", 1, 0), a_wave("web", 2, 50)), CampaignPolicy(), now=TEN
    )
    expected = {
        "web": [[("planned", 0, 15), ("expected", 15, 20)], [("planned", 50, 65), ("expected", 65, 70)]],
        "db": [[("planned", 0, 15), ("expected", 15, 20)]],
    }
    assert rows(picture) == expected
    assert list(rows(picture)) == ["web", "db"]
    assert picture.chart.rows[0].href == "/ui/fleet?scope=web"
    assert ("VMs", "web-0, web-1, web-2, web-3, web-4 and 1 more") in picture.chart.rows[0].items[0].facts
    assert (minute(picture.chart.start) < 0, minute(picture.chart.end) > 70) == (True, True)


def test_wave_without_notice_has_no_notice_and_unplaced_vms_are_counted() -> None:
    left = UnplacedVms(scope="db", update_domain=0, vms=("a", "b"), rule="vms_at_once", excess="1", why="")
    picture = plan_chart(a_plan(a_wave("web", 1, 0, announced=False), unplaced=(left,)), CampaignPolicy(), now=TEN)
    assert rows(picture) == {"web": [[("expected", 15, 20)]], "db": []}
    assert [row.note for row in picture.chart.rows] == ["", "2 unplaced"]
    empty = plan_chart(a_plan(unplaced=(left,)), CampaignPolicy(), now=TEN)
    assert rows(empty) == {"db": []}


def test_windows_and_blackouts_are_the_background() -> None:
    policy = CampaignPolicy(
        windows=(Window(start="09:00", end="10:10"), Window(start="10:30", end="12:00", zone="Europe/Vienna")),
        blackouts=(
            Blackout(start=TEN + 5 * MINUTE, end=TEN + 8 * MINUTE, why="fair"),
            Blackout(start=TEN + timedelta(days=9), end=TEN + timedelta(days=10)),
        ),
    )
    picture = plan_chart(a_plan(a_wave("web", 1, 0)), policy, now=TEN)
    shown = [(each.kind.value, minute(each.start), minute(each.end), each.label) for each in picture.chart.backgrounds]
    assert shown == [("blackout", 5, 8, "fair"), ("window", -60, 10, "Window"), ("window", -30, 60, "Window")]


def test_many_scopes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_chart, "MAX_SCOPES", 2)
    picture = plan_chart(a_plan(*(a_wave(f"s-{n}", 1, 0) for n in range(5))), CampaignPolicy(), now=TEN)
    assert (len(picture.chart.rows), picture.omitted) == (2, 3)


async def chart_of(service: RunningApi, *, journal: bool = True) -> CampaignChart:
    """Return the chart of the only campaign."""
    (campaign,) = service.fleet.campaigns.all()
    key = RecordKey(RecordKind.CAMPAIGN, campaign.id)
    found = await service.fleet.journal.query(JournalQuery(key=key, kinds=CHART_KINDS, limit=1000))
    entries = [row.entry for row in found] if journal else []
    return progress_chart(campaign, entries, service.fleet.scopes.rule_context, now=service.fleet.clock.now())


async def advance(service: RunningApi, minutes: int) -> None:
    reply = await service.request("POST", "/v1/clock/advance", {"duration": f"{minutes}m"})
    assert reply.status == 200, reply.json


async def test_what_happens_is_below_the_plan() -> None:
    async with run_api() as service:
        await start(service, asked("kernel", "web", expected="5m"))
        await advance(service, 1)
        begun = await chart_of(service)
        await advance(service, 120)
        later = await chart_of(service)
    plan = [
        [("planned", 0, 15), ("expected", 15, 20)],
        [("planned", 65, 80), ("expected", 80, 85)],
        [("planned", 130, 145), ("expected", 145, 150)],
    ]
    assert rows(begun, plan=True) == rows(later, plan=True) == {"web": plan}
    assert rows(begun) == {"web": [[("notice", 0, 15), ("expected", 15, 20)]]}
    assert rows(later) == {"web": [[("notice", 0, 15), ("impact", 15, 16)], [("notice", 61, 76), ("impact", 76, 77)]]}
    assert [item.mark for item in later.chart.rows[0].items if not item.plan] == ["done", "done"]


async def test_failure_halt_and_pause_are_shown() -> None:
    async with run_api() as service:
        service.platform.set_outcomes("web/web-0", Failed("no power"))
        campaign = await start(service, asked("kernel", "web"))
        await advance(service, 30)
        picture = await chart_of(service)
        assert rows(picture) == {"web": [[("notice", 0, 15), ("impact", 15, 16), ("stuck", 16, None)]]}
        assert picture.chart.rows[0].items[1].mark == "failed"
        await service.request("POST", f"/v1/campaigns/{campaign.id}/retry", {"scope": "web"})
        await service.request("POST", f"/v1/campaigns/{campaign.id}/resume", {})
        await advance(service, 10)
        await service.request("POST", f"/v1/campaigns/{campaign.id}/pause", {"reason": "lunch"})
        await advance(service, 10)
        picture = await chart_of(service)
    (done,) = rows(picture)["web"]
    assert done[:3] == [("notice", 0, 15), ("impact", 15, 16), ("stuck", 16, 30)]
    stops = [(each.kind.value, minute(each.start), minute(each.end), each.label) for each in picture.chart.backgrounds]
    assert stops[0][:3] == ("stop", 16, 30)
    assert stops[0][3].startswith("Halted: a wave has failed: web, wave 1")
    assert stops[1:] == [("stop", 40, 50, "Paused: lunch")]


async def test_due_wave_of_a_paused_campaign_waits() -> None:
    async with run_api() as service:
        campaign = await start(service, asked("kernel", "web"))
        await advance(service, 5)
        await service.request("POST", f"/v1/campaigns/{campaign.id}/pause", {"reason": "lunch"})
        await advance(service, 25)
        waiting = await chart_of(service)
        await service.request("POST", f"/v1/campaigns/{campaign.id}/resume", {})
        await advance(service, 5)
        resumed = await chart_of(service)
    assert rows(waiting) == {"web": [[("notice", 0, 15), ("waiting", 15, None)]]}
    assert rows(resumed) == {"web": [[("notice", 0, 15), ("waiting", 15, 30), ("impact", 30, 31)]]}


async def test_without_the_journal_the_end_of_a_wave_is_known() -> None:
    async with run_api() as service:
        await start(service, asked("kernel", "web"))
        await advance(service, 30)
        picture = await chart_of(service, journal=False)
    assert rows(picture) == {"web": [[("wave", 16, 16)]]}


async def test_scopes_that_need_attention_are_chosen_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_chart, "MAX_SCOPES", 1)
    async with run_api() as service:
        service.platform.set_outcomes("web/web-0", Failed("no power"))
        await start(service, asked("kernel", "batch", "web"))
        await advance(service, 30)
        picture = await chart_of(service)
    assert (list(rows(picture)), picture.omitted) == (["web"], 1)
