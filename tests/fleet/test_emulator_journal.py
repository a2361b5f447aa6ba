"""Journal entries about the emulator: in the scope of a VM, or in the fleet state."""

import pytest

from forewarn.core.fault import Fault, FaultKind
from forewarn.core.journal import EntryKind
from forewarn.fleet.errors import ScopeNotFound
from forewarn.fleet.fleet_state import FLEET_STATE
from forewarn.store.memory import MemoryStore
from forewarn.store.port import RecordKey, RecordKind
from tests.core.sample_scopes import TEN, web_scope
from tests.fleet.fleets import read_journal, run_fleet


def a_fault(vm: str | None) -> Fault:
    return Fault(id="F1", kind=FaultKind.SLOW, vm=vm, by="ann", set_at=TEN, hits=3)


@pytest.mark.parametrize(
    ("vm", "key", "vms"),
    [("web/web-0", RecordKey(RecordKind.SCOPE, "web"), ("web-0",)), (None, FLEET_STATE, ())],
    ids=["one VM", "all VMs"],
)
async def test_fault_is_recorded_where_it_belongs(vm: str | None, key: RecordKey, vms: tuple[str, ...]) -> None:
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        await fleet.emulator.journal.record_fault(EntryKind.FAULT_SET, a_fault(vm), by="ann", why="test")
        await fleet.emulator.journal.record_fault(EntryKind.FAULT_ENDED, a_fault(vm), by="faults")
    facts = {"fault": "F1", "kind": "slow", "vm": vm or "all"}
    rows = [row for row in await read_journal(store) if row.entry.kind.value.startswith("fault-")]
    assert [(row.key, row.entry.kind, row.entry.by, row.entry.why, row.entry.vms, row.entry.facts) for row in rows] == [
        (key, EntryKind.FAULT_SET, "ann", "test", vms, facts),
        (key, EntryKind.FAULT_ENDED, "faults", "", vms, {**facts, "hits": "3"}),
    ]


async def test_fault_of_a_scope_that_is_gone_cannot_be_recorded() -> None:
    async with run_fleet(web_scope()) as fleet:
        with pytest.raises(ScopeNotFound):
            await fleet.emulator.journal.record_fault(EntryKind.FAULT_SET, a_fault("db/db-0"), by="ann")


async def test_occurrence_is_recorded_with_its_facts() -> None:
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        await fleet.emulator.journal.record(EntryKind.SCENARIO_STARTED, by="ann", facts={"run": "1"})
        await fleet.emulator.journal.record(EntryKind.SCENARIO_ENDED, by="ann", facts={"run": "1"}, why="stopped")
    rows = [row for row in await read_journal(store) if row.entry.kind.value.startswith("scenario-")]
    assert [(row.key, row.entry.at, row.entry.by, row.entry.why, row.entry.facts) for row in rows] == [
        (FLEET_STATE, TEN, "ann", "", {"run": "1"}),
        (FLEET_STATE, TEN, "ann", "stopped", {"run": "1"}),
    ]
