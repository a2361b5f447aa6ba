"""Creates the platform, gate checker, webhook notifier and policy that the settings name."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from forewarn.clock import Clock
from forewarn.core.event import EventType
from forewarn.core.policy import Policy
from forewarn.core.scope import Scope
from forewarn.fleet.scopes import ScopeChange
from forewarn.platform.command import CommandPlatform
from forewarn.platform.gate_checker import SettingsGateChecker
from forewarn.platform.simulated import SimulatedGateChecker, SimulatedPlatform
from forewarn.platform.webhooks import WebhookNotifier
from forewarn.settings.rehearsal import Rehearsal
from forewarn.settings.schema import CampaignSettings, Settings
from forewarn.settings.types import PlatformName

WORK_DIRECTORY = "work"
"""The directory for running programs, in the data directory."""


class HostSet:
    """Every host that has ever had a VM: VMs can also move to a host that is empty now."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def add(self, scope: Scope) -> None:
        """Add the hosts of a scope's VMs."""
        self._seen.update(vm.host for vm in scope.roster if vm.host is not None)

    def observe(self, change: ScopeChange) -> None:
        """Add the hosts of a changed scope."""
        if change.after is not None:
            self.add(change.after)

    def __call__(self) -> tuple[str, ...]:
        """Return the hosts."""
        return tuple(self._seen)


class PlatformAdapters(NamedTuple):
    """The adapters through which the service acts on the outside: platform, gate checker, notifier."""

    platform: SimulatedPlatform | CommandPlatform
    gates: SettingsGateChecker | SimulatedGateChecker
    webhooks: WebhookNotifier

    def reload(self, settings: Settings) -> None:
        """Apply new settings; the platform itself cannot change."""
        if isinstance(self.platform, CommandPlatform):
            self.platform.reload(settings.command)
        if isinstance(self.gates, SettingsGateChecker):
            self.gates.reload(settings.gates)
        self.webhooks.reload(settings.campaigns)


def create_adapters(
    settings: Settings,
    clock: Clock,
    hosts: HostSet,
    directory: Path,
    rehearsal: Rehearsal | None = None,
) -> PlatformAdapters:
    """Create all adapters that the settings name. In a rehearsal none of them reaches anything real."""
    if rehearsal is not None:
        return PlatformAdapters(
            _create_simulated(settings, clock, hosts),
            SimulatedGateChecker([gate.name for gate in settings.gates], rehearsal.closed_gates),
            WebhookNotifier(CampaignSettings()),
        )
    return PlatformAdapters(
        create_platform(settings, clock, hosts, directory),
        SettingsGateChecker(settings.gates),
        WebhookNotifier(settings.campaigns),
    )


def create_platform(
    settings: Settings, clock: Clock, hosts: HostSet, directory: Path
) -> SimulatedPlatform | CommandPlatform:
    """Create the platform that the settings name."""
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
    """Return the policy that the settings define."""
    return Policy(
        **msgspec.structs.asdict(settings.policy),
        speed=settings.speed,
        allows_unreleased=settings.guest.unreleased_version,
    )
