"""The setup that a scenario requires: policy, durations of work, and its maximum duration."""

from datetime import timedelta

from forewarn.core.event import EventType
from forewarn.core.policy import EMULATOR, PRODUCTION, AnnouncePolicy
from forewarn.testing.scenario.commands import Preset, SetPolicy
from forewarn.testing.scenario.parser import parse
from forewarn.testing.scenario.setup import (
    DEFAULT_SETUP,
    ServiceSetup,
    apply_policy,
    max_duration,
    required_setup,
)

SCOPE = "scope web availability-set\nvm web-0\n"


def test_scenario_without_a_setup_uses_the_emulator() -> None:
    assert required_setup(parse(f"# T.\n{SCOPE}")) == DEFAULT_SETUP == ServiceSetup(policy=EMULATOR, lasting=None)


def test_policy_replaces_what_it_names() -> None:
    assert apply_policy(EMULATOR, SetPolicy(preset=Preset.PRODUCTION)) == PRODUCTION
    assert apply_policy(EMULATOR, SetPolicy()) == EMULATOR
    changed = apply_policy(PRODUCTION, SetPolicy(announce=AnnouncePolicy.ALWAYS, speed=2.0, operations=3, idle=None))
    assert (changed.announce, changed.speed, changed.user_operations, changed.idle_after) == (
        AnnouncePolicy.ALWAYS,
        2.0,
        3,
        None,
    )
    assert changed.enforce_notice


def test_settings_of_a_setup_start_a_service_with_it() -> None:
    settings = ServiceSetup(policy=PRODUCTION, lasting=timedelta(seconds=5)).settings
    assert settings == {
        "speed": 1.0,
        "policy.announce": "when-enabled",
        "policy.enforce_notice": True,
        "policy.idle_after": "1d",
        "policy.user_operations": 10,
        **{f"simulated.{type_.name.lower()}": "5s" for type_ in EventType},
    }
    assert DEFAULT_SETUP.settings["policy.idle_after"] == "none"


def test_duration_of_a_scenario_is_that_of_its_longest_run() -> None:
    script = parse(f"# T.\n{SCOPE}schedule Reboot web-0 in 20m\nexpect E1 Started within 1h\nwait 30m\n")
    assert max_duration(script) == timedelta(minutes=90)
    assert max_duration(parse(f"# T.\n{SCOPE}")) == timedelta(0)
