"""Journal entries about the emulator: faults, scenarios and reports, which the store does not have."""

from collections.abc import Mapping
from functools import partial

from forewarn.core.fault import Fault, add_fault_entry, fault_facts
from forewarn.core.journal import EntryKind
from forewarn.fleet import fleet_state
from forewarn.fleet.fleet_state_record import FleetStateRecord
from forewarn.fleet.scopes import Scopes


class EmulatorJournal:
    """Adds entries to the journal: of a scope if they are about one of its VMs, else of the fleet state."""

    def __init__(self, scopes: Scopes, state_record: FleetStateRecord) -> None:
        self._scopes = scopes
        self._state_record = state_record

    async def record(self, entry_kind: EntryKind, *, by: str, facts: Mapping[str, str], why: str = "") -> None:
        """Add an entry about the emulator as a whole."""
        now = self._scopes.clock.now()
        await self._state_record.apply(
            partial(fleet_state.record_occurrence, entry_kind=entry_kind, by=by, why=why, now=now, facts=dict(facts))
        )

    async def record_fault(self, entry_kind: EntryKind, fault: Fault, *, by: str, why: str = "") -> None:
        """Add an entry: a fault was set or cleared, or has ended."""
        if fault.vm is None:
            await self.record(entry_kind, by=by, facts=fault_facts(fault, entry_kind), why=why)
        else:
            scope, now = fault.vm.rpartition("/")[0], self._scopes.clock.now()
            await self._scopes.apply(
                scope, lambda value: add_fault_entry(value, entry_kind, fault, by=by, why=why, now=now)
            )
