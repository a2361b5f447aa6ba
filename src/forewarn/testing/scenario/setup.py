"""Service setup that a scenario requires, as policy and settings, and its maximum duration."""

from datetime import timedelta

import msgspec

from forewarn.core.duration import format_duration
from forewarn.core.event import EventType
from forewarn.core.policy import EMULATOR, PRODUCTION, Policy
from forewarn.testing.scenario import commands
from forewarn.testing.scenario.core_state import START_TIME
from forewarn.testing.scenario.parser import Script


def max_duration(script: Script) -> timedelta:
    """Return how much time of a scenario passes at most: all of it, where nothing that is expected comes early."""
    time = START_TIME
    for step in script.steps:
        time = max(time, step.at or time)
        match step.command:
            case commands.Wait(time=more) | commands.Expect(within=more):
                time += more
            case commands.Tick(time=timedelta() as until):
                time = max(time, until)
            case _:
                pass
    return time - START_TIME


PRESETS = {commands.Preset.EMULATOR: EMULATOR, commands.Preset.PRODUCTION: PRODUCTION}


def apply_policy(policy: Policy, command: commands.SetPolicy) -> Policy:
    """Return the policy that the command leads to."""
    base = PRESETS[command.preset] if command.preset is not None else policy
    values: dict[str, object] = {
        "announce": command.announce,
        "enforce_notice": None if command.notice is None else command.notice is commands.NoticeRule.ENFORCED,
        "speed": command.speed,
        "user_operations": command.operations,
    }
    changes = {name: value for name, value in values.items() if value is not None}
    if command.idle is not msgspec.UNSET:
        changes["idle_after"] = command.idle
    return msgspec.structs.replace(base, **changes)


class ServiceSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What a scenario wants of the service before it begins. `lasting` None: work takes as long as it usually does."""

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


DEFAULT_SETUP = ServiceSetup()
"""What scenarios want that say nothing of it: the emulator as it is."""


def required_setup(script: Script) -> ServiceSetup:
    """Return what a scenario says of the service before anything happens."""
    setup = DEFAULT_SETUP
    for step in script.steps:
        match step.command:
            case commands.SetPolicy() as command:
                setup = msgspec.structs.replace(setup, policy=apply_policy(setup.policy, command))
            case commands.UsePlatform(lasting=lasting):
                setup = msgspec.structs.replace(setup, lasting=lasting)
            case _:
                return setup
    return setup
