"""Journal entries about faults, which are stored nowhere else."""

from functools import partial

from forewarn.core.fault import Fault, add_fault_entry
from forewarn.core.journal import EntryKind
from forewarn.fleet import fleet_state
from forewarn.fleet.fleet_state_record import FleetStateRecord
from forewarn.fleet.scopes import Scopes


class FaultJournal:
    """Adds journal entries about faults: to the VM's scope, or to the fleet state if a fault affects all VMs."""

    def __init__(self, scopes: Scopes, state_record: FleetStateRecord) -> None:
        self._scopes = scopes
        self._state_record = state_record

    async def record(self, entry_kind: EntryKind, fault: Fault, *, by: str, why: str = "") -> None:
        """Add an entry: a fault was set or cleared, or has ended."""
        now = self._scopes.clock.now()
        if fault.vm is None:
            await self._state_record.apply(
                partial(fleet_state.record_fault, entry_kind=entry_kind, fault=fault, by=by, why=why, now=now)
            )
        else:
            scope = fault.vm.rpartition("/")[0]
            await self._scopes.apply(
                scope, lambda value: add_fault_entry(value, entry_kind, fault, by=by, why=why, now=now)
            )
