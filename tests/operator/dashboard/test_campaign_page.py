"""Campaign pages: list, progress, what a campaign waits for, and its actions."""

import msgspec

from forewarn.core.access import Role
from forewarn.core.impact import Failed
from forewarn.core.policy import PRODUCTION
from tests.operator.dashboard.signed_in import sign_in
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


async def test_wave_without_notice_is_not_shown_as_announced() -> None:
    async with run_api(policy=PRODUCTION) as service:
        browser = await sign_in(service)
        campaign = await start(service, msgspec.structs.replace(asked("kernel", "web"), unannounced=True))
        await service.request("POST", "/v1/clock/advance", {"duration": "1s"})
        text = await browser.text(f"/ui/campaigns/{campaign.id}")
    assert "Not announced to 6 VMs in 1 scope" in text
    assert "Planned Announced Unannounced Cleared Done Failed Skipped Wave 1 1 2 0 0 1 0 0 0 0" in text
    assert "Unannounced web 1" in text


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


async def test_failed_wave_is_retried_or_skipped() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        for vm in ("web-0", "web-3"):
            service.platform.set_outcomes(f"web/{vm}", Failed("no power"))
        path = f"/ui/campaigns/{(await start(service, asked('kernel', 'web'))).id}"
        await service.request("POST", "/v1/clock/advance", {"duration": "2h"})
        page = (await browser.get(path)).body.decode()
        assert "no power" in page
        assert 'data-dialog="skip"' in page
        assert (await browser.post(path, {"action": "skip", "scope": "web", "reason": "broken"})).status in (204, 409)
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
