"""Views of campaigns: waves, progress, failures, and whether an operator is needed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from forewarn.api import v1
from forewarn.api.errors import RequestRefused
from forewarn.core.campaign.record import CampaignState
from forewarn.core.impact import Failed
from tests.operator.running_api import TEN, RunningApi, run_api
from tests.operator.sample_campaign import HOUR, asked, shown, start


@asynccontextmanager
async def failing(*vms: str) -> AsyncIterator[RunningApi]:
    """Serve with a platform that fails on some VMs."""
    async with run_api() as service:
        for vm in vms:
            service.platform.set_outcomes(vm, Failed("the host does not answer"))
        yield service


async def test_waves_are_listed_by_page_scope_and_state() -> None:
    async with run_api() as service:
        await start(service, asked())
        await service.fleet.time.advance(timedelta(0))
        first = await service.request("GET", "/v1/campaigns/kernel/waves?limit=4")
        rest = await service.request("GET", f"/v1/campaigns/kernel/waves?after={first.json['next']}")
        single: list[Any] = []
        after: str | None = ""
        while after is not None:
            page = await service.request("GET", f"/v1/campaigns/kernel/waves?limit=1&after={after}")
            single += page.json["waves"]
            after = page.json["next"]
        of_web = await service.client(lambda api: list(api.waves("kernel", scope="web", state=v1.WaveState.ANNOUNCED)))
    assert len(first.json["waves"]) == 4
    assert len(first.json["waves"] + rest.json["waves"]) == 10
    assert single == first.json["waves"] + rest.json["waves"]
    assert rest.json["next"] is None
    assert [(wave.scope, wave.number, wave.state_changed_at) for wave in of_web] == [
        ("web", 1, TEN + timedelta(minutes=15))
    ]


async def test_failure_halts_the_campaign_and_can_be_retried_or_skipped() -> None:
    async with failing("web/web-0", "db-0/db-0") as service:
        await start(service, asked("kernel", "web", "db-0", halt_after=2))
        await service.fleet.time.advance(timedelta(minutes=20))
        halted = await shown(service)
        await service.client(lambda api: api.retry_wave("kernel", v1.RetryWave(scope="web", reason="the host is back")))
        await service.client(lambda api: api.skip_wave("kernel", v1.SkipWave(scope="db-0", reason="by hand")))
        with pytest.raises(RequestRefused):
            await service.client(lambda api: api.retry_wave("kernel", v1.RetryWave(scope="no-such")))
        await service.client(lambda api: api.resume_campaign("kernel", v1.ResumeCampaign()))
        await service.fleet.time.advance(6 * HOUR)
        ended = await shown(service)
    assert halted.state is CampaignState.HALTED
    assert halted.expected_end_at is None
    assert {(failure.scope, failure.number, failure.update_domain) for failure in halted.failures} == {
        ("web", 1, 0),
        ("db-0", 1, 0),
    }
    assert all("the host does not answer" in failure.reason for failure in halted.failures)
    assert any("retry it or skip it" in sentence for sentence in halted.explanation)
    assert (ended.state, ended.failures) == (CampaignState.COMPLETED, [])
    assert ended.progress[0] == v1.WaveProgress(number=1, wave_count=2, vm_count=3, done=1, skipped=1)


async def test_running_campaign_is_stuck_if_every_open_scope_has_failed() -> None:
    async with failing("web/web-0", "db-0/db-0") as service:
        await start(service, asked("kernel", "web", "db-0", "shop", halt_after=None))
        seen = []
        for minutes in (16, 80, 80):
            await service.fleet.time.advance(timedelta(minutes=minutes))
            campaign = await shown(service)
            seen.append((campaign.state, sorted(each.scope for each in campaign.failures), campaign.is_stuck))
        await service.client(lambda api: api.skip_wave("kernel", v1.SkipWave(scope="db-0", reason="broken")))
        await service.client(lambda api: api.skip_wave("kernel", v1.SkipWave(scope="web", reason="broken")))
        gone_on = await shown(service)
    both = ["db-0", "web"]
    assert seen == [(CampaignState.RUNNING, both, False)] + [(CampaignState.RUNNING, both, True)] * 2
    assert (gone_on.state, gone_on.is_stuck) == (CampaignState.RUNNING, False)
