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
    """Return how much time of the scenario passes at most: if every expected fact occurs at its limit."""
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
    """Return the policy after the command."""
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
    """The policy and the duration of work that a scenario requires. `lasting` None: the platform's usual durations."""

    policy: Policy = EMULATOR
    lasting: timedelta | None = None

    @property
    def settings(self) -> dict[str, object]:
        """The settings for a service with this setup."""
        idle = self.policy.idle_after
        settings: dict[str, object] = {
            "speed": self.policy.speed,
            "policy.announce": self.policy.announce.value,
            "policy.enforce_notice": self.policy.enforce_notice,
            "policy.idle_after": "none" if idle is None else format_duration(idle),
            "policy.user_operations": self.policy.user_operations,
        }
        if self.lasting is not None:
            settings |= {f"simulated.{kind.name.lower()}": format_duration(self.lasting) for kind in EventType}
        return settings


DEFAULT_SETUP = ServiceSetup()
"""The setup of scenarios that do not specify one: the emulator's defaults."""


def required_setup(script: Script) -> ServiceSetup:
    """Return the setup that the first lines of a scenario specify."""
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
