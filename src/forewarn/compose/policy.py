"""What the rules are told of the settings."""

from forewarn.core.policy import Policy
from forewarn.settings import Settings


def policy(settings: Settings) -> Policy:
    """Return the policy that the settings say."""
    said = settings.policy
    return Policy(
        announce=said.announce,
        enforce_notice=said.enforce_notice,
        idle_after=said.idle_after,
        user_operations=said.user_operations,
        speed=settings.speed,
    )
