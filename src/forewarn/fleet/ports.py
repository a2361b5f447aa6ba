"""Guest ports, one per VM, for listeners where each VM has its own."""

from collections.abc import Mapping
from functools import partial

from forewarn.fleet import fleet_state
from forewarn.fleet.fleet_state_record import FleetStateRecord


class Ports:
    """The guest ports of the VMs. A VM keeps its port permanently."""

    def __init__(self, state_record: FleetStateRecord) -> None:
        self._state_record = state_record

    @property
    def assigned(self) -> Mapping[str, int]:
        """The port of each VM, by `scope/name`, including removed VMs."""
        return self._state_record.state.ports

    async def assign(self, ports: Mapping[str, int]) -> None:
        """Assign ports to VMs; a port that belongs or belonged to another VM is refused."""
        await self._state_record.apply(partial(fleet_state.assign_ports, ports=ports))
