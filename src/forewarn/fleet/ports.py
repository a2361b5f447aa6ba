"""The ports at which VMs find their guest endpoint where each has one of its own."""

from collections.abc import Mapping
from functools import partial

from forewarn.fleet import fleet_state
from forewarn.fleet.fleet_state_record import FleetStateRecord


class Ports:
    """The guest ports of the VMs. A VM keeps the port that it was given."""

    def __init__(self, state_record: FleetStateRecord) -> None:
        self._state_record = state_record

    @property
    def assigned(self) -> Mapping[str, int]:
        """The port of each VM, `scope/name`, also of those that have left."""
        return self._state_record.state.ports

    async def assign(self, ports: Mapping[str, int]) -> None:
        """Give ports to VMs; one that belongs or belonged to another VM is refused."""
        await self._state_record.apply(partial(fleet_state.assign_ports, ports=ports))
