"""Timeline: which bars an event and a wave have, in which rows, and what is left out."""

import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.impact import Failed, Retry
from forewarn.operator.dashboard import timeline
from forewarn.operator.dashboard.time_chart import to_seconds
from tests.operator.dashboard.signed_in import SignedIn, page_text, sign_in
from tests.operator.running_api import TEN, RunningApi, event_detail, run_api, schedule_event
from tests.operator.sample_campaign import asked, start

START = to_seconds(TEN)
MINUTE = 60
HOUR = 3600


async def read_chart(browser: SignedIn, query: str = "") -> Any:
    """Return the data of the chart on the page."""
    html = (await browser.get(f"/ui/timeline?{query}")).body.decode()
    found = re.search(r'<script type="application/json" id="timeline-data">(.*?)</script>', html)
    assert found is not None, page_text(html)
    return msgspec.json.decode(found[1])


async def read_bars(browser: SignedIn, query: str = "") -> dict[str, list[list[Any]]]:
    """Return the bars of each row with times relative to the start of the test, items one after the other."""
    return {
        row["label"]: [
            [kind, begin - START, None if end is None else end - START]
            for item in row["items"]
            for kind, begin, end in item["bars"]
        ]
        for row in (await read_chart(browser, query))["rows"]
    }


async def advance(service: RunningApi, duration: str) -> None:
    """Move the clock."""
    await service.request("POST", "/v1/clock/advance", {"duration": duration})


async def test_event_has_its_notice_approval_and_impact_from_the_journal_after_its_end() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        event = await schedule_event(service, "Reboot", "web/web-0", notice="30m", unannounced=True, reason="kernel")
        assert await read_bars(browser) == {"web": [["notice", 0, 30 * MINUTE], ["expected", 30 * MINUTE, 30 * MINUTE]]}
        await advance(service, "10m")
        await service.request("POST", f"/v1/events/{event}/approve", {"vm": "web-0"})
        begun = [["notice", 0, 10 * MINUTE], ["approval", 10 * MINUTE, 10 * MINUTE]]
        assert await read_bars(browser) == {"web": [*begun, ["impact", 10 * MINUTE, None]]}
        await advance(service, "10m")
        assert await read_bars(browser) == {"web": [*begun, ["impact", 10 * MINUTE, 11 * MINUTE]]}
        (row,) = (await read_chart(browser))["rows"]
        (item,) = row["items"]
        assert row["href"] == "/ui/fleet?scope=web"
        assert (item["label"], item["href"]) == (f"Reboot {event[:8]}", f"/ui/events/{event}")
        assert (item["mark"], item["facts"]) == (
            "done",
            [["State", "completed"], ["VMs", "web-0"], ["Host", "hv-0"], ["Reason", "kernel"]],
        )


async def test_canceled_event_ends_with_its_notice() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        event = await schedule_event(service, "Reboot", "web/web-0", notice="30m", unannounced=True)
        await advance(service, "5m")
        await service.request("POST", f"/v1/events/{event}/cancel", {})
        assert await read_bars(browser) == {"web": [["notice", 0, 5 * MINUTE]]}
        assert (await read_chart(browser))["rows"][0]["items"][0]["mark"] == "canceled"


async def test_held_event_waits_and_failed_work_is_stuck_until_now() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        service.platform.set_outcomes("web/web-0", Failed("no disk"))
        await service.fleet.holds.set(by="test", reason="a test", scope="shop")
        await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        await schedule_event(service, "Reboot", "shop/FrontEnd_IN_0", notice="15m", unannounced=True)
        await advance(service, "1h")
        notice = ["notice", 0, 15 * MINUTE]
        assert await read_bars(browser) == {
            "shop": [notice, ["waiting", 15 * MINUTE, None]],
            "web": [notice, ["stuck", 15 * MINUTE, None]],
        }


async def test_event_is_stuck_as_in_the_api_only_when_no_other_work_is_in_progress() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        service.platform.set_outcomes("web/web-0", Failed("no disk"))
        service.platform.set_outcomes("web/web-3", Retry(timedelta(minutes=30)), Failed("no disk"))
        event = await schedule_event(service, "Reboot", "web/web-0", "web/web-3", notice="15m", unannounced=True)
        seen = []
        for _ in range(2):
            await advance(service, "30m")
            kind = (await read_bars(browser))["web"][-1][0]
            shown = (await event_detail(service, event)).event
            assert shown is not None
            seen.append((kind, shown.is_stuck))
        assert seen == [("impact", False), ("stuck", True)]


async def test_rows_are_scopes_hosts_or_vms() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        await schedule_event(service, "Reboot", "web/web-0", "web/web-3", notice="30m", unannounced=True)
        labels = {
            group: [(row["label"], row["href"]) for row in (await read_chart(browser, f"group={group}"))["rows"]]
            for group in ("scope", "host", "vm")
        }
        assert labels == {
            "scope": [("web", "/ui/fleet?scope=web")],
            "host": [("hv-0", "/ui/fleet?view=hosts&host=hv-0")],
            "vm": [("web/web-0", "/ui/vms/web/web-0"), ("web/web-3", "/ui/vms/web/web-3")],
        }


async def test_planned_waves_windows_and_blackouts_of_a_campaign_are_shown() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        policy = {
            "windows": [v1.CampaignWindow(start="08:00", end="14:00")],
            "blackouts": [v1.CampaignBlackout(start=TEN + 2 * timedelta(hours=1), end=TEN + 3 * timedelta(hours=1))],
        }
        campaign = await start(service, asked("kernel", "web", **policy))
        chart = await read_chart(browser)
        (row,) = chart["rows"]
        waves = [item for item in row["items"] if item["label"].startswith("kernel")]
        assert [(item["label"], item["href"]) for item in waves] == [
            ("kernel wave 2", f"/ui/campaigns/{campaign.id}"),
            ("kernel wave 3", f"/ui/campaigns/{campaign.id}"),
        ]
        assert [[kind for kind, _, _ in item["bars"]] for item in waves] == [["planned", "expected"]] * 2
        assert dict(waves[0]["facts"]) == {
            "State": "planned",
            "Type": "Reboot",
            "VMs": "web-1, web-4",
            "Update domain": "1",
            "Host": "hv-1",
        }
        assert [(each["kind"], each["from"] - START, each["to"] - START) for each in chart["backgrounds"]][:2] == [
            ("blackout", 2 * HOUR, 3 * HOUR),
            ("window", -2 * HOUR, 4 * HOUR),
        ]


async def test_event_that_was_announced_long_before_the_range_has_its_type_and_beginning() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        await schedule_event(service, "Redeploy", "web/web-0", notice="3d", unannounced=True)
        await advance(service, "73h")
        (row,) = (await read_chart(browser))["rows"]
        (item,) = row["items"]
        assert (item["label"][:8], item["bars"][0]) == ("Redeploy", ["notice", START, START + 72 * HOUR])


async def test_filters_select_by_name_type_and_campaign() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        await schedule_event(service, "Reboot", "web/web-0", notice="30m", unannounced=True)
        await schedule_event(service, "Freeze", "db-0/db-0", notice="30m", unannounced=True)
        await start(service, asked("kernel", "batch"))
        shown = {
            query: list(await read_bars(browser, query))
            for query in ("q=HV-0", "q=web-0", "type=Freeze", "campaign=kernel")
        }
        assert shown == {
            "q=HV-0": ["web"],
            "q=web-0": ["web"],
            "type=Freeze": ["db-0"],
            "campaign=kernel": ["batch"],
        }


async def test_limited_token_sees_only_its_scopes() -> None:
    async with run_api() as service:
        await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        await schedule_event(service, "Reboot", "shop/FrontEnd_IN_0", notice="15m", unannounced=True)
        await start(service, asked("kernel", "batch", windows=[v1.CampaignWindow(start="08:00", end="14:00")]))
        browser = await sign_in(service, await service.token("team", Role.VIEWER, "web"))
        for duration in ("1s", "1h"):  # while they are open, and after their end
            await advance(service, duration)
            chart = await read_chart(browser)
            assert ([row["label"] for row in chart["rows"]], chart["backgrounds"]) == (["web"], [])


async def test_what_is_left_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        for vm in ("web-0", "web-1", "web-2"):
            await schedule_event(service, "Reboot", f"web/{vm}", notice="15m", unannounced=True)
        monkeypatch.setattr(timeline, "MAX_ITEMS", 2)
        assert "1 item left out: a timeline has at most 2." in await browser.text("/ui/timeline")
        assert "1 item left out: a timeline has at most 2." in await browser.text("/ui/timeline?group=vm")
        assert len((await read_chart(browser))["rows"][0]["items"]) == 2
        await advance(service, "3h")
        monkeypatch.setattr(timeline, "ENTRY_PAGE", 2)
        monkeypatch.setattr(timeline, "MAX_ENTRIES", 4)
        monkeypatch.setattr(timeline, "MAX_LOOKUPS", 0)
        text = await browser.text("/ui/timeline")
        assert "The journal has more than 4 entries about this range" in text
        assert "Of 2 events, only what happened near this range is shown" in text


async def test_ended_event_is_complete_in_a_range_that_has_neither_its_beginning_nor_its_end() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        event = await schedule_event(service, "Reboot", "web/web-0", notice="5d", unannounced=True)
        await advance(service, "50h")
        await service.request("POST", f"/v1/events/{event}/approve", {"vm": "web-0"})
        await advance(service, "5d")
        (row,) = (await read_chart(browser, "from=2026-03-03T11:00:00Z&to=2026-03-03T13:00:00Z"))["rows"]
        (item,) = row["items"]
        assert (item["label"], item["mark"]) == (f"Reboot {event[:8]}", "done")
        assert item["bars"][0] == ["notice", START, START + 50 * HOUR]


async def test_many_windows_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        await start(service, asked("kernel", "web", windows=[v1.CampaignWindow(start="08:00", end="14:00")]))
        monkeypatch.setattr(timeline, "MAX_BACKGROUNDS", 2)
        assert "Some windows and black-outs are left out" in await browser.text("/ui/timeline?hours=168")
        assert len((await read_chart(browser, "hours=168"))["backgrounds"]) == 2


async def test_window_that_campaigns_share_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        window = v1.CampaignWindow(start="08:00", end="14:00")
        for name, scope in (("a", "web"), ("b", "shop"), ("c", "batch"), ("d", "db-0")):
            await start(service, asked(name, scope, windows=[window]))
        (shown,) = (await read_chart(browser, "hours=4"))["backgrounds"]
        assert (shown["kind"], shown["label"]) == ("window", "a, b, c and 1 more")
        monkeypatch.setattr(timeline, "MAX_WINDOWS", 3)
        assert "Some windows and black-outs are left out" in await browser.text("/ui/timeline?hours=4")
