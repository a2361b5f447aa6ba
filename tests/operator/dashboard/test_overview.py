"""Overview page: what needs a person, what is in impact, what comes next, and what a limited token sees of it."""

import re

from forewarn.core.access import Role
from forewarn.core.impact import Failed
from forewarn.operator.dashboard.overview import MAX_ROWS
from tests.operator.dashboard.signed_in import SignedIn, page_text, sign_in
from tests.operator.running_api import RunningApi, run_api, schedule_event
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


async def test_long_lists_are_shortened() -> None:
    async with run_api(fleet_file=FLEET.replace("count = 4", f"count = {MAX_ROWS + 3}, update_domain = 0")) as service:
        browser = await sign_in(service)
        for n in range(MAX_ROWS + 2):
            await schedule_event(service, "Reboot", f"web/web-{n}", notice="1h", unannounced=True)
        assert "and 2 events more" in (await sections(browser))["soon"]


async def test_page_names_the_position_of_the_journal_that_it_shows() -> None:
    async with run_api(fleet_file=FLEET) as service:
        browser = await sign_in(service)
        page = (await browser.get("/ui")).body.decode()
        assert f'data-position="{await _end(service)}"' in page


async def _end(service: RunningApi) -> int:
    return await service.fleet.journal.end()
