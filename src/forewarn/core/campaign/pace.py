"""How fast a campaign goes: its notice, gap and expected length as they hold, after the policy's speed.

They are rounded up to whole seconds, as everything is that a plan says.
"""

from datetime import timedelta

from forewarn.core.campaign.spec import CampaignSpec
from forewarn.core.conditions import Conditions

SECOND = timedelta(seconds=1)


def notice_of(spec: CampaignSpec, conditions: Conditions) -> timedelta:
    """Return the time from a wave's announcement to its start."""
    notice = spec.policy.notice
    return _after_speed(conditions.policy.minimum_notice[spec.type] if notice is None else notice, conditions)


def gap_of(spec: CampaignSpec, conditions: Conditions) -> timedelta:
    """Return the least time from the end of a scope's wave to the start of its next."""
    return _after_speed(spec.policy.gap, conditions)


def length_of(spec: CampaignSpec, conditions: Conditions) -> timedelta:
    """Return how long a wave is expected to take."""
    return max(_after_speed(spec.expected, conditions), SECOND)


def _after_speed(time: timedelta, conditions: Conditions) -> timedelta:
    seconds = -(-(time / conditions.policy.speed) // SECOND)
    return seconds * SECOND
