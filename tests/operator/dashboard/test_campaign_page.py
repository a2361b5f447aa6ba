"""Campaign pages: list, progress, what a campaign waits for, and its actions."""

import re

import msgspec
import pytest

from forewarn.core.access import Role
from forewarn.core.impact import Failed
from forewarn.core.policy import PRODUCTION
from forewarn.fleet.campaign.service import CampaignStatus
from forewarn.fleet.errors import CampaignNotFound
from forewarn.operator.dashboard import campaign_page
from forewarn.operator.dashboard.pages import PAUSE_PER_ITEM
from tests.operator.dashboard.signed_in import page_text, sign_in
from tests.operator.running_api import run_api
from tests.operator.sample_campaign import asked, shown, start


async def test_list_and_page_show_progress_and_waves() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        assert "No campaigns." in await browser.text("/ui/campaigns")
        campaign = await start(service, asked("kernel", "web"))
        assert "Running kernel Reboot 0 of 6 VMs" in await browser.text("/ui/campaigns")
        text = await browser.text(f"/ui/campaigns/{campaign.id}")
        assert "kernel Running 0 of 6 VMs" in text
        assert "All waves 3" in text
        assert "campaign-started" in text
        assert (await browser.get("/ui/campaigns/nothing")).status == 404


async def test_list_has_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_page, "MAX_CAMPAIGNS", 2)
    async with run_api() as service:
        browser = await sign_in(service)
        for name in ("first", "second", "third"):
            await start(service, asked(name, "web"))
            await service.request("POST", "/v1/clock/advance", {"duration": "1s"})
        page = (await browser.get("/ui/campaigns")).body.decode()
        older = page.partition('<p class="more"><a href="')[2].partition('"')[0]
        assert re.findall("first|second|third", page_text(page)) == ["third", "second"]
        text = await browser.text(older)
    assert (re.findall("first|second|third", text), "Older campaigns" in text) == (["first"], False)


@pytest.mark.parametrize("path", ["/ui", "/ui/campaigns"])
async def test_campaign_that_is_pruned_meanwhile_is_left_out(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        pruned = await start(service, asked("kernel", "web"))
        await start(service, asked("firmware", "shop"))
        show_status = service.fleet.campaigns.status

        async def status(id_: str) -> CampaignStatus:
            if id_ == pruned.id:
                raise CampaignNotFound(id_)
            return await show_status(id_)

        monkeypatch.setattr(service.fleet.campaigns, "status", status)
        text = await browser.text(path)
    assert ("firmware" in text, "Running kernel" in text) == (True, False)


async def test_pages_of_large_campaigns_update_themselves_less_often() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        campaign = await start(service, asked("kernel", "web", "shop"))
        pages = [(await browser.get(f"/ui{path}")).body for path in ("", "/campaigns", f"/campaigns/{campaign.id}")]
    assert [f'data-pause="{2 * PAUSE_PER_ITEM}"'.encode() in page for page in pages] == [True, True, True]


async def test_wave_without_notice_is_not_shown_as_announced() -> None:
    async with run_api(policy=PRODUCTION) as service:
        browser = await sign_in(service)
        campaign = await start(service, msgspec.structs.replace(asked("kernel", "web"), unannounced=True))
        await service.request("POST", "/v1/clock/advance", {"duration": "1s"})
        text = await browser.text(f"/ui/campaigns/{campaign.id}")
    assert "Not announced to 6 VMs in 1 scope" in text
    assert "Planned Announced Unannounced Cleared Done Failed Skipped Wave 1 1 2 0 0 1 0 0 0 0" in text
    assert "Unannounced web 1" in text


async def test_bar_of_an_announced_wave_is_empty() -> None:
    """Only work that has begun or ended fills it."""
    async with run_api() as service:
        browser = await sign_in(service)
        campaign = await start(service, asked("kernel", "web"))
        assert (await shown(service)).progress[0].announced == 1
        page = (await browser.get(f"/ui/campaigns/{campaign.id}")).body.decode()
    assert 'aria-label="0 of 1 done"></svg>' in page.partition("<tr><td>Wave 1</td>")[2].partition("</tr>")[0]


async def test_campaign_is_paused_resumed_and_aborted() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        path = f"/ui/campaigns/{(await start(service, asked('kernel', 'web'))).id}"
        states = []
        for form in (
            {"action": "pause", "reason": "lunch"},
            {"action": "resume"},
            {"action": "abort", "reason": "not needed"},
        ):
            assert (await browser.post(path, form)).status == 204
            states.append((await shown(service)).state.value)
        assert states[:2] == ["Paused", "Running"]
        assert states[2] in ("Aborting", "Aborted")
        assert (await browser.post(path, {"action": "resume"})).status == 409


async def test_wrong_forms_change_nothing() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        path = f"/ui/campaigns/{(await start(service, asked('kernel', 'web'))).id}"
        for form in ({}, {"action": "explode"}, {"action": "abort"}, {"action": "skip"}, {"action": "retry"}):
            assert (await browser.post(path, form)).status == 400, form
        assert (await shown(service)).state.value == "Running"


@pytest.mark.parametrize("action", ["retry", "skip"])
async def test_failed_wave_is_retried_or_skipped(action: str) -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        for vm in ("web-0", "web-3"):
            service.platform.set_outcomes(f"web/{vm}", Failed("no power"))
        path = f"/ui/campaigns/{(await start(service, asked('kernel', 'web'))).id}"
        await service.request("POST", "/v1/clock/advance", {"duration": "2h"})
        page = (await browser.get(path)).body.decode()
        assert "no power" in page
        assert f'data-dialog="{action}"' in page
        assert '<span class="state failed">Halted</span>' in page
        assert (await browser.post(path, {"action": action, "scope": "web", "reason": "broken"})).status == 204
        assert "broken" in (await browser.get(path)).body.decode()


async def test_campaign_of_other_scopes_is_hidden_and_viewer_gets_no_action() -> None:
    async with run_api() as service:
        campaign = await start(service, asked("kernel", "web"))
        team = await sign_in(service, await service.token("team", Role.OPERATOR, "shop"))
        assert "kernel" not in await team.text("/ui/campaigns")
        assert (await team.get(f"/ui/campaigns/{campaign.id}")).status == 404
        assert (await team.post(f"/ui/campaigns/{campaign.id}", {"action": "pause"})).status == 404
        eve = await sign_in(service, await service.token("eve", Role.VIEWER))
        page = (await eve.get(f"/ui/campaigns/{campaign.id}")).body.decode()
        assert "data-dialog" not in page.replace('data-dialog="help"', "")
        assert (await eve.post(f"/ui/campaigns/{campaign.id}", {"action": "pause"})).status == 403
