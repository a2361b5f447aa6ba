"""Notice, gap and expected duration of a campaign's waves, after the policy's speed, rounded up to whole seconds."""

from datetime import timedelta

from forewarn.core.campaign.spec import CampaignSpec
from forewarn.core.policy import RuleContext

SECOND = timedelta(seconds=1)


def wave_notice(spec: CampaignSpec, context: RuleContext) -> timedelta:
    """Return the time from a wave's announcement to its start."""
    notice = spec.policy.notice
    return _apply_speed(context.policy.minimum_notice[spec.type] if notice is None else notice, context)


def wave_gap(spec: CampaignSpec, context: RuleContext) -> timedelta:
    """Return the least time from the end of a scope's wave to the start of its next."""
    return _apply_speed(spec.policy.gap, context)


def wave_duration(spec: CampaignSpec, context: RuleContext) -> timedelta:
    """Return how long a wave is expected to take."""
    return max(_apply_speed(spec.expected, context), SECOND)


def _apply_speed(time: timedelta, context: RuleContext) -> timedelta:
    seconds = -(-(time / context.policy.speed) // SECOND)
    return seconds * SECOND
