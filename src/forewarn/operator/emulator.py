"""What only the emulator has: a speed that can be changed, scenarios and reports. Other services refuse it."""

from forewarn.operator.errors import EmulatorNotRunning, TimeNotVirtual
from forewarn.operator.state import AppState, ServiceState


def is_time_virtual(state: AppState | ServiceState) -> bool:
    """Return whether this is an emulator whose time is virtual: a manual clock, or a speed that was chosen."""
    return state.guests.faults is not None and state.fleet.emulator.speed.is_time_virtual


def check_emulator(state: AppState) -> None:
    """Refuse if the service is for real VMs."""
    if state.guests.faults is None:
        raise EmulatorNotRunning


def check_time_virtual(state: AppState) -> None:
    """Refuse if the service is for real VMs, or if its time is real."""
    check_emulator(state)
    if not is_time_virtual(state):
        raise TimeNotVirtual
