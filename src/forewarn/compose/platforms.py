"""Creates the platform, gate checker, webhook notifier and policy that the settings name."""

from pathlib import Path
from typing import NamedTuple

from forewarn.clock import Clock
from forewarn.core.event import EventType
from forewarn.core.policy import Policy
from forewarn.core.scope import Scope
from forewarn.fleet.scopes import ScopeChange
from forewarn.platform.command import CommandPlatform
from forewarn.platform.gate_checker import SettingsGateChecker
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.platform.webhooks import WebhookNotifier
from forewarn.settings import PlatformName, Settings

WORK_DIRECTORY = "work"
"""The directory, among the data, of the programs that are under way."""


class HostSet:
    """Every host on which a VM was seen: one that has become empty is still there to move to."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def add(self, scope: Scope) -> None:
        """Take note of the hosts of a scope's VMs."""
        self._seen.update(vm.host for vm in scope.roster if vm.host is not None)

    def observe(self, change: ScopeChange) -> None:
        """Take note of the hosts of a scope that has changed."""
        if change.after is not None:
            self.add(change.after)

    def __call__(self) -> tuple[str, ...]:
        """Return them."""
        return tuple(self._seen)


class PlatformAdapters(NamedTuple):
    """Everything beyond the service that it acts on or asks."""

    platform: SimulatedPlatform | CommandPlatform
    gates: SettingsGateChecker
    webhooks: WebhookNotifier

    def reload(self, settings: Settings) -> None:
        """Go on with other settings; who carries maintenance out stays."""
        if isinstance(self.platform, CommandPlatform):
            self.platform.reload(settings.command)
        self.gates.reload(settings.gates)
        self.webhooks.reload(settings.campaigns)


def create_adapters(settings: Settings, clock: Clock, hosts: HostSet, directory: Path) -> PlatformAdapters:
    """Make everything that the settings name."""
    return PlatformAdapters(
        create_platform(settings, clock, hosts, directory),
        SettingsGateChecker(settings.gates),
        WebhookNotifier(settings.campaigns),
    )


def create_platform(
    settings: Settings, clock: Clock, hosts: HostSet, directory: Path
) -> SimulatedPlatform | CommandPlatform:
    """Make the platform that the settings name."""
    match settings.platform:
        case PlatformName.COMMAND:
            return CommandPlatform(settings.command, directory / WORK_DIRECTORY)
        case PlatformName.SIMULATED:
            return _create_simulated(settings, clock, hosts)


def _create_simulated(settings: Settings, clock: Clock, hosts: HostSet) -> SimulatedPlatform:
    return SimulatedPlatform(
        clock,
        hosts=hosts,
        durations={type_: getattr(settings.simulated, type_.name.lower()) for type_ in EventType},
        speed=settings.speed,
    )


def create_policy(settings: Settings) -> Policy:
    """Return the policy that the settings say."""
    policy_settings = settings.policy
    return Policy(
        announce=policy_settings.announce,
        enforce_notice=policy_settings.enforce_notice,
        idle_after=policy_settings.idle_after,
        user_operations=policy_settings.user_operations,
        speed=settings.speed,
    )
