"""The service is killed repeatedly during a campaign and continues: nothing is lost or done twice."""

from collections import Counter
from pathlib import Path

from forewarn.api import v1
from forewarn.core.campaign.record import CampaignState
from forewarn.core.journal import EntryKind
from tests.end_to_end.service_process import run_service_process


def test_campaign_completes_although_the_service_is_killed_at_every_step(tmp_path: Path) -> None:
    with run_service_process(tmp_path) as service:
        ask = v1.StartCampaign(
            name="kernel",
            type=v1.CampaignType.REBOOT,
            selection=v1.CampaignSelection(all=True),
            policy=v1.CampaignPolicy(gap="20m", scopes_at_once=2),
        )
        started = service.api.start_campaign(ask, key="start-1")
        for step in ("10m", "5m", "30s", "20m", "16m"):
            service.api.advance(step)
            service.crash_and_restart()
        assert service.api.start_campaign(ask, key="start-1").id == started.id
        service.api.advance("6h")
        campaign = service.api.campaign(started.id)
        assert (campaign.state, list(campaign.failures)) == (CampaignState.COMPLETED, [])
        entries = list(service.api.journal())
        done = Counter(
            f"{entry.record_id}/{vm}" for entry in entries if entry.action is EntryKind.IMPACT_DONE for vm in entry.vms
        )
        assert done == dict.fromkeys((f"{vm.scope}/{vm.name}" for vm in service.api.vms()), 1)
        waves = Counter(
            entry.action for entry in entries if entry.action in (EntryKind.WAVE_ANNOUNCED, EntryKind.WAVE_SETTLED)
        )
        assert waves == {EntryKind.WAVE_ANNOUNCED: campaign.wave_count, EntryKind.WAVE_SETTLED: campaign.wave_count}
