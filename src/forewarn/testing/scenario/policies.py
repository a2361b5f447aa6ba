"""How a story has the service run: as a policy of the rules, and as settings of a service that is started for it."""

from datetime import timedelta

import msgspec

from forewarn.core.duration import format_duration
from forewarn.core.event import EventType
from forewarn.core.policy import EMULATOR, PRODUCTION, Policy
from forewarn.testing.scenario import commands as say
from forewarn.testing.scenario.story import Story

PRESETS = {say.Preset.EMULATOR: EMULATOR, say.Preset.PRODUCTION: PRODUCTION}


def changed(policy: Policy, command: say.SetPolicy) -> Policy:
    """Return the policy that the command leads to."""
    base = PRESETS[command.preset] if command.preset is not None else policy
    said: dict[str, object] = {
        "announce": command.announce,
        "enforce_notice": None if command.notice is None else command.notice is say.NoticeRule.ENFORCED,
        "speed": command.speed,
        "user_operations": command.operations,
    }
    changes = {name: value for name, value in said.items() if value is not None}
    if command.idle is not msgspec.UNSET:
        changes["idle_after"] = command.idle
    return msgspec.structs.replace(base, **changes)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a story wants of the service before it begins. `lasting` None: work takes as long as it usually does."""

    policy: Policy = EMULATOR
    lasting: timedelta | None = None

    @property
    def settings(self) -> dict[str, object]:
        """The settings of a service that is like this."""
        idle = self.policy.idle_after
        settings: dict[str, object] = {
            "speed": self.policy.speed,
            "policy.announce": self.policy.announce.value,
            "policy.enforce_notice": self.policy.enforce_notice,
            "policy.idle_after": "none" if idle is None else format_duration(idle),
            "policy.user_operations": self.policy.user_operations,
        }
        if self.lasting is not None:
            settings |= {f"simulated.{kind.value.lower()}": format_duration(self.lasting) for kind in EventType}
        return settings


USUAL = Wanted()
"""What stories want that say nothing of it: the emulator as it is."""


def wanted_by(story: Story) -> Wanted:
    """Return what a story says of the service before anything happens."""
    wanted = USUAL
    for step in story.steps:
        match step.command:
            case say.SetPolicy() as command:
                wanted = msgspec.structs.replace(wanted, policy=changed(wanted.policy, command))
            case say.UsePlatform(lasting=lasting):
                wanted = msgspec.structs.replace(wanted, lasting=lasting)
            case _:
                return wanted
    return wanted
