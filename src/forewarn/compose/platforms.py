"""The world outside, as the settings say: who carries maintenance out, who is asked before waves, and who is told."""

from pathlib import Path
from typing import NamedTuple

from forewarn.clock import Clock
from forewarn.core.event import EventType
from forewarn.fleet.replica import View
from forewarn.platform.checking import Gatekeeper
from forewarn.platform.command import CommandPlatform
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.platform.webhook import Webhooks
from forewarn.settings import PlatformName, Settings

WORK = "work"
"""The directory, among the data, of the programs that are under way."""


class Hosts:
    """Every host on which a VM was seen: one that has become empty is still there to move to."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def note(self, view: View) -> None:
        """Take note of the hosts of a scope's VMs."""
        self._seen.update(vm.host for vm in view.roster or () if vm.host is not None)

    def __call__(self) -> tuple[str, ...]:
        """Return them."""
        return tuple(self._seen)


class Outside(NamedTuple):
    """Everything beyond the service that it acts on or asks."""

    platform: SimulatedPlatform | CommandPlatform
    gates: Gatekeeper
    webhooks: Webhooks

    def take(self, settings: Settings) -> None:
        """Go on with other settings; who carries maintenance out stays."""
        if isinstance(self.platform, CommandPlatform):
            self.platform.take(settings.command)
        self.gates.take(settings.gates)
        self.webhooks.take(settings.campaigns)


def make_outside(settings: Settings, clock: Clock, hosts: Hosts, directory: Path) -> Outside:
    """Make everything that the settings name."""
    return Outside(
        make_platform(settings, clock, hosts, directory),
        Gatekeeper(settings.gates, directory / WORK),
        Webhooks(settings.campaigns),
    )


def make_platform(
    settings: Settings, clock: Clock, hosts: Hosts, directory: Path
) -> SimulatedPlatform | CommandPlatform:
    """Make the platform that the settings name."""
    match settings.platform:
        case PlatformName.COMMAND:
            return CommandPlatform(settings.command, directory / WORK)
        case PlatformName.SIMULATED:
            return _simulated(settings, clock, hosts)


def _simulated(settings: Settings, clock: Clock, hosts: Hosts) -> SimulatedPlatform:
    simulated = settings.simulated
    return SimulatedPlatform(
        clock,
        hosts=hosts,
        durations={
            EventType.FREEZE: simulated.freeze,
            EventType.REBOOT: simulated.reboot,
            EventType.REDEPLOY: simulated.redeploy,
            EventType.PREEMPT: simulated.preempt,
            EventType.TERMINATE: simulated.terminate,
        },
        speed=settings.speed,
    )
