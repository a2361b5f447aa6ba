"""Counts of a campaign's waves."""

from collections import Counter

from forewarn.core.campaign.record import Campaign, WaveState


def wave_counts(campaign: Campaign) -> Counter[WaveState]:
    """Count the waves of a campaign by state as shown to users."""
    return Counter(campaign.effective_state(wave) for progress in campaign.scopes for wave in progress.waves)
