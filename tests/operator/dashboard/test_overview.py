"""Overview page: what needs a person, what is in impact, what comes next, and what a limited token sees of it."""

import re
from datetime import datetime

import pytest

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.event import Event
from forewarn.core.impact import Failed
from forewarn.core.policy import HostState
from forewarn.core.scope import Scope
from forewarn.fleet.service import Fleet
from forewarn.operator.dashboard import overview
from forewarn.operator.dashboard.overview import MAX_ITEMS, MAX_ROWS
from forewarn.operator.views import events
from tests.operator.dashboard.signed_in import SignedIn, page_text, sign_in
from tests.operator.running_api import TEN, RunningApi, run_api, schedule_event
from tests.operator.sample_campaign import asked, start

HOSTILE = "<script>alert(1)</script>\"'&{{7*7}}"

FLEET = """
[[scopes]]
name = "web"
kind = "availability-set"
hosts = ["hv-0"]
vms = [{ name = "web-{n}", count = 4 }]

[[scopes]]
name = "db"
kind = "availability-set"
hosts = ["hv-1"]
vms = [{ name = "db-{n}", count = 2 }]
"""


async def sections(browser: SignedIn) -> dict[str, str]:
    """Return the texts of the sections by their headings."""
    page = (await browser.get("/ui")).body.decode()
    found = re.findall(r'<section[^>]*aria-labelledby="(\w+)">(.*?)</section>', page, re.DOTALL)
    return {name: page_text(f"<main>{text}</main>") for name, text in found}


async def test_quiet_fleet_needs_nothing() -> None:
    async with run_api(fleet_file=FLEET) as service:
        browser = await sign_in(service)
        text = await browser.text("/ui")
        assert text.startswith(
            "Overview Scopes 2 VMs 6 Hosts 2 Open events 0 Held scopes 0 Scopes that do not poll 2 Needs a person 0"
        )


async def test_event_moves_from_coming_to_in_impact_and_disappears() -> None:
    async with run_api(fleet_file=FLEET) as service:
        browser = await sign_in(service)
        event = await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        await schedule_event(service, "Reboot", "web/web-1", notice="2d", unannounced=True)
        shown = await sections(browser)
        assert f"Scheduled Reboot {event[:8]} web UD 0 web-0" in shown["soon"]
        assert "1 event later." in shown["soon"]
        await service.request("POST", "/v1/clock/advance", {"duration": "15m"})
        shown = await sections(browser)
        assert f"In impact Reboot {event[:8]}" in shown["impact"]
        await service.request("POST", "/v1/clock/advance", {"duration": "15m"})
        shown = await sections(browser)
        assert event[:8] not in str(shown)


async def test_failed_impacts_holds_faults_and_stopped_campaigns_need_a_person() -> None:
    async with run_api(fleet_file=FLEET) as service:
        browser = await sign_in(service)
        service.platform.set_outcomes("web/web-0", Failed("the disk is full"))
        event = await schedule_event(service, "Reboot", "web/web-0", now=True, unannounced=True)
        await service.request("POST", "/v1/clock/advance", {"duration": "1h"})
        await service.request("POST", "/v1/holds", {"reason": "freeze"})
        await service.request("POST", "/v1/holds", {"reason": "quarter end", "scope": "web"})
        await service.request("POST", "/v1/faults", {"kind": "slow", "vm": "db/db-0"})
        campaign = await start(service, asked("kernel", "db"))
        await service.request("POST", f"/v1/campaigns/{campaign.id}/pause", {"reason": "later"})
        shown = (await sections(browser))["needs"]
        assert f"Stuck Reboot {event[:8]}" in shown
        assert "the work on web-0 has failed: the disk is full" in shown
        assert "Held the whole fleet : freeze" in shown
        assert "Held scope web : quarter end" in shown
        assert "Fault slow for db/db-0" in shown
        assert "Paused campaign kernel" in shown


async def test_limited_token_sees_only_its_scopes() -> None:
    async with run_api(fleet_file=FLEET) as service:
        await schedule_event(service, "Reboot", "db/db-0", notice="15m", unannounced=True)
        await service.request("POST", "/v1/holds", {"reason": "quarter end", "scope": "db"})
        await service.request("POST", "/v1/faults", {"kind": "slow", "vm": "db/db-0"})
        browser = await sign_in(service, await service.token("web-team", Role.VIEWER, "web*"))
        text = await browser.text("/ui")
        assert "Scopes 1 VMs 4 Hosts 1 Open events 0 Held scopes 0" in text
        assert "db" not in text


async def test_hostile_text_is_escaped_everywhere() -> None:
    async with run_api(fleet_file=FLEET) as service:
        browser = await sign_in(service)
        await schedule_event(
            service, "Reboot", "web/web-0", description=HOSTILE, reason=HOSTILE, notice="1h", unannounced=True
        )
        await service.request("POST", "/v1/holds", {"reason": HOSTILE, "scope": "web"})
        page = (await browser.get("/ui")).body.decode()
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
        assert "<script>" not in page.replace('<script src="', "")
        assert "&amp;{{7*7}}" in page


async def test_events_behind_a_stuck_one_are_coming_and_not_counted_as_needing_a_person() -> None:
    async with run_api() as service:
        service.platform.set_outcomes("web/web-0", Failed("the disk is full"))
        browser = await sign_in(service)
        await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        await service.request("POST", "/v1/clock/advance", {"duration": "1h"})
        behind = await schedule_event(service, "Reboot", "web/web-1", notice="15m", unannounced=True)
        shown = await sections(browser)
        assert (behind[:8] in shown["needs"], f"Blocked Reboot {behind[:8]}" in shown["soon"]) == (False, True)


async def test_long_lists_are_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events beyond the rows are only counted."""
    views: list[str] = []

    def show_event(fleet: Fleet, scope: Scope, event: Event, *, now: datetime) -> v1.Event:
        views.append(event.id)
        return events.show_event(fleet, scope, event, now=now)

    monkeypatch.setattr(overview, "show_event", show_event)
    async with run_api(fleet_file=FLEET.replace("count = 4", f"count = {MAX_ROWS + 3}, update_domain = 0")) as service:
        browser = await sign_in(service)
        for n in range(MAX_ROWS + 2):
            await schedule_event(service, "Reboot", f"web/web-{n}", notice="1h", unannounced=True)
        text = (await sections(browser))["soon"]
        assert (f"Next 24 hours {MAX_ROWS + 2}" in text, "and 2 more" in text) == (True, True)
        assert len(views) == MAX_ROWS
        await service.request("POST", "/v1/clock/advance", {"duration": "1h"})
        text = (await sections(browser))["impact"]
        assert (f"In impact now {MAX_ROWS + 2}" in text, "and 2 events more" in text) == (True, True)
        assert len(views) == 2 * MAX_ROWS


async def test_many_holds_are_shortened() -> None:
    scopes = MAX_ITEMS + 2
    fleet = "".join(
        f'[[scopes]]\nname = "s{n}"\nkind = "standalone"\nvms = [{{ name = "vm-{n}" }}]\n' for n in range(scopes)
    )
    async with run_api(fleet_file=fleet) as service:
        browser = await sign_in(service)
        for n in range(scopes):
            await service.request("POST", "/v1/holds", {"reason": "x", "scope": f"s{n}"})
        shown = (await sections(browser))["needs"]
        assert (f"Needs a person {scopes}" in shown, "and 2 holds more" in shown) == (True, True)


async def test_planned_waves_are_among_what_comes_until_they_are_announced() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        await schedule_event(service, "Reboot", "db-0/db-0", notice="90m", unannounced=True)
        campaign = await start(service, asked("kernel", "web", gap="12h"))
        shown = (await sections(browser))["soon"]
        assert re.findall(r"Scheduled|Planned wave of \w+ \w+ \d VMs?", shown) == [
            "Scheduled",
            "Scheduled",
            "Planned wave of kernel web 2 VMs",
        ]
        assert shown.startswith("Next 24 hours 3")
        assert "1 wave later." in shown
        await service.request("POST", f"/v1/campaigns/{campaign.id}/pause", {"reason": "later"})
        assert "Paused wave of kernel" in (await sections(browser))["soon"]


async def test_waves_of_many_scopes_that_start_together_are_one_row() -> None:
    async with run_api(fleet_file=FLEET) as service:
        browser = await sign_in(service)
        await service.request("POST", "/v1/holds", {"reason": "freeze"})
        await start(service, asked("kernel", "web", "db", gap="1h"))
        shown = (await sections(browser))["soon"]
        assert "Planned wave of kernel 2 scopes 6 VMs" in shown


async def test_silent_hosts_need_a_person_who_may_see_their_vms() -> None:
    async with run_api(fleet_file=FLEET) as service:
        service.fleet.scopes.host_states = {
            "hv-0": HostState(silent_since=TEN),
            "hv-1": HostState(is_unheard=True),
            "gone": HostState(is_unheard=True),
        }
        browser = await sign_in(service)
        shown = (await sections(browser))["needs"]
        assert shown == (
            "Needs a person 2 "
            "Host hv-0 has been silent since 2026-03-02 10:00 UTC no planned maintenance of its 4 VMs starts "
            "Host hv-1 has not reported since this service started no planned maintenance of its 2 VMs starts"
        )
        limited = await sign_in(service, await service.token("db-team", Role.VIEWER, "db"))
        shown = (await sections(limited))["needs"]
        assert ("hv-0" in shown, "hv-1" in shown) == (False, True)
        assert "hv-0 host · 4 VMs Silent" in await browser.text("/ui/fleet?view=hosts")


async def test_page_names_the_position_of_the_journal_that_it_shows() -> None:
    async with run_api(fleet_file=FLEET) as service:
        browser = await sign_in(service)
        page = (await browser.get("/ui")).body.decode()
        assert f'data-position="{await _end(service)}"' in page


async def _end(service: RunningApi) -> int:
    return await service.fleet.journal.end()
