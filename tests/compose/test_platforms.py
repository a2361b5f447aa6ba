"""Platform, gates, webhooks and policy that the settings name."""

from datetime import timedelta
from pathlib import Path

import msgspec

from forewarn.clock import ManualClock
from forewarn.compose.platforms import HostSet, create_adapters, create_platform, create_policy
from forewarn.core import policy
from forewarn.core.event import EventType
from forewarn.core.policy import AnnouncePolicy, Policy
from forewarn.fleet.scopes import ScopeChange
from forewarn.platform.command import CommandPlatform
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.settings.gates import Gate, GateSettings
from forewarn.settings.schema import (
    EMULATOR,
    PRODUCTION,
    CampaignSettings,
    CommandSettings,
    PolicySettings,
    Settings,
    SimulatedSettings,
)
from forewarn.settings.types import PlatformName
from tests.core.sample_scopes import TEN, scope, vm

CLOCK = ManualClock(TEN)


def test_hosts_are_remembered_when_their_last_vm_has_left() -> None:
    hosts = HostSet()
    hosts.add(scope("web", vm("web-0", host="hv-0"), vm("web-1")))
    hosts.observe(ScopeChange("web", None, scope("web", vm("web-0", host="hv-1"))))
    hosts.observe(ScopeChange("web", scope("web"), None))
    assert sorted(hosts()) == ["hv-0", "hv-1"]


def test_simulated_platform_has_durations_speed_and_hosts(tmp_path: Path) -> None:
    hosts = HostSet()
    hosts.add(scope("web", vm("web-0", host="hv-0")))
    settings = Settings(speed=2.0, simulated=SimulatedSettings(reboot=timedelta(seconds=8)))
    platform = create_platform(settings, CLOCK, hosts, tmp_path)
    assert isinstance(platform, SimulatedPlatform)
    assert (platform._durations[EventType.REBOOT], platform._speed, platform._hosts()) == (
        timedelta(seconds=8),
        2.0,
        ("hv-0",),
    )


def test_command_platform_works_in_the_data_directory(tmp_path: Path) -> None:
    command = CommandSettings(program=("/bin/maintain",))
    platform = create_platform(Settings(platform=PlatformName.COMMAND, command=command), CLOCK, HostSet(), tmp_path)
    assert isinstance(platform, CommandPlatform)
    assert (platform.settings, platform._directory) == (command, tmp_path / "work")


def test_reload_gives_every_adapter_its_settings(tmp_path: Path) -> None:
    before = Settings(platform=PlatformName.COMMAND, command=CommandSettings(program=("/bin/a",)))
    adapters = create_adapters(before, CLOCK, HostSet(), tmp_path)
    assert (adapters.gates.gates, adapters.webhooks.has_receivers) == ((), False)
    after = Settings(
        platform=PlatformName.SIMULATED,
        command=CommandSettings(program=("/bin/b",)),
        gates=(Gate("web", GateSettings(url="http://h")),),
        campaigns=CampaignSettings(webhooks=("http://h/hook",)),
    )
    adapters.reload(after)
    assert isinstance(adapters.platform, CommandPlatform), "another platform needs a restart"
    assert adapters.platform.settings == after.command
    assert (adapters.gates.gates, adapters.webhooks.has_receivers) == (("web",), True)


def test_policy_is_that_of_the_settings() -> None:
    settings = Settings(
        speed=3.0,
        policy=PolicySettings(
            announce=AnnouncePolicy.ALWAYS, enforce_notice=False, idle_after=timedelta(hours=1), user_operations=4
        ),
    )
    assert create_policy(settings) == Policy(
        announce=AnnouncePolicy.ALWAYS,
        enforce_notice=False,
        idle_after=timedelta(hours=1),
        user_operations=4,
        speed=3.0,
    )


def test_presets_of_settings_give_the_presets_of_policies() -> None:
    slower = msgspec.structs.replace(policy.EMULATOR, shortest_notice=timedelta(seconds=10))
    assert create_policy(EMULATOR.settings) == slower, "for clients that poll every 5 seconds"
    assert create_policy(PRODUCTION.settings) == policy.PRODUCTION
