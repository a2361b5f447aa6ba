"""A campaign as it is shown."""

from forewarn.api import v1
from forewarn.cli.views.campaign import BAR_WIDTH, progress_lines
from tests.cli.sample_campaign import campaign_of


def test_bars_show_everything_that_there_is() -> None:
    campaign = campaign_of(
        v1.WaveProgress(number=1, wave_count=1_000, vm_count=5_000, done=997, announced=1, failed=1, planned=1),
        v1.WaveProgress(number=2, wave_count=1, vm_count=1, planned=1),
    )
    first, second = progress_lines(campaign)
    assert (
        first
        == f"wave 1  {'█' * (BAR_WIDTH - 3)}▒▚░   997/1000 scopes, 5000 VMs: 997 done, 1 announced, 1 failed, 1 planned"
    )
    assert second == f"wave 2  {'░' * BAR_WIDTH}     0/1    scopes, 1 VM: 1 planned"
