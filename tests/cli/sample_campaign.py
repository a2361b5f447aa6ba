"""A campaign as the API returns it."""

from datetime import UTC, datetime

from forewarn.api import v1
from forewarn.core.campaign.record import CampaignState

BEGIN = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)


def campaign_of(*progress: v1.WaveProgress) -> v1.Campaign:
    return v1.Campaign(
        id="X", name="k", type=v1.CampaignType.REBOOT, state=CampaignState.RUNNING, created_by="a",
        started_at=BEGIN, ended_at=None, planned_end_at=None, expected_end_at=None,
        state_changed_by="a", state_changed_at=BEGIN, state_reason="",
        scope_count=1_000, host_count=1, vm_count=1, wave_count=1, finished_wave_count=0, finished_vm_count=0,
        failures=(), gate=None, explanation=(),
        spec=v1.CampaignSpec(name="k", type=v1.CampaignType.REBOOT, selection=v1.SelectionView(all=True)),
        progress=progress,
    )  # fmt: skip
