"""Who carries maintenance out, as the settings say."""

from pathlib import Path

from forewarn.clock import Clock
from forewarn.core.event import EventType
from forewarn.fleet.replica import View
from forewarn.platform.command import CommandPlatform
from forewarn.platform.simulated import SimulatedPlatform
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
