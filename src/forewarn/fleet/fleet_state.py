"""Fleet state: the record with what concerns the whole fleet: outages, the manual clock and the guests' ports.

The hold on the fleet is a record of its own (`fleet.holds`): a heartbeat must not disturb what rests on the hold.

The functions are rules like those of `core`: they decide, and the caller saves."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from forewarn.core.errors import Invalid
from forewarn.core.fault import Fault, fault_facts
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.limits import MAX_RECORD_BYTES
from forewarn.core.policy import Outage
from forewarn.fleet.main_loop import Decision
from forewarn.store.port import RecordKey, RecordKind, Store

FLEET_STATE = RecordKey(RecordKind.FLEET, "ledger")
MAX_OUTAGES = 64
RESERVED_BYTES = 96 * 1024
"""Room that ports leave for everything else: a start must always be possible."""

MIN_OUTAGE = timedelta(seconds=1)


class FleetState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the fleet as a whole remembers."""

    entries: int = 0
    filled: bool = False
    outages: tuple[Outage, ...] = ()
    alive_at: datetime | None = None
    clock_at: datetime | None = None
    ports: dict[str, int] = {}


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(FleetState).decode


async def manual_clock_start(store: Store, *, now: datetime) -> datetime:
    """Return where a manual clock goes on: where it was, and never before what the service has lived through.

    A new one begins with a whole second, as notices do: after the whole of its notice an event is due.
    """
    record = await store.load(FLEET_STATE)
    if record is None:
        return now.replace(microsecond=0)
    state = decode(record.value)
    start = state.clock_at or now.replace(microsecond=0)
    return max(start, state.alive_at or start)


def record_start(state: FleetState, *, now: datetime) -> Decision[FleetState, None]:
    """The service has started: the time since it was last alive was an outage."""
    if state.alive_at is None or now - state.alive_at <= MIN_OUTAGE:
        return record_heartbeat(state, now=now)
    return record_outage(state, Outage(began_at=state.alive_at, ended_at=now))


def record_outage(state: FleetState, outage: Outage) -> Decision[FleetState, None]:
    """The service was not there for a time, and is back."""
    outages = (*state.outages, outage)[-MAX_OUTAGES:]
    return Decision(msgspec.structs.replace(state, outages=outages, alive_at=outage.ended_at), (), None)


def record_heartbeat(state: FleetState, *, now: datetime) -> Decision[FleetState, None]:
    """The service is alive."""
    return Decision(msgspec.structs.replace(state, alive_at=now), (), None)


def mark_filled(state: FleetState) -> Decision[FleetState, None]:
    """Everything of the first fleet file is saved."""
    return Decision(msgspec.structs.replace(state, filled=True), (), None)


def move_clock(state: FleetState, *, to: datetime, by: str, why: str = "") -> Decision[FleetState, None]:
    """Somebody has the manual clock go to this moment."""
    return _with_entry(msgspec.structs.replace(state, clock_at=to), EntryKind.CLOCK_MOVED, by=by, why=why, now=to)


def pass_clock(state: FleetState, *, to: datetime) -> Decision[FleetState, None]:
    """The manual clock goes on to this moment, on a way that the journal has told of."""
    return Decision(msgspec.structs.replace(state, clock_at=to), (), None)


def record_fault(
    state: FleetState, entry_kind: EntryKind, fault: Fault, *, by: str, why: str, now: datetime
) -> Decision[FleetState, None]:
    """A fault of all VMs was set or cleared, or is over; it is told here, and kept nowhere."""
    return _with_entry(state, entry_kind, by=by, why=why, now=now, facts=fault_facts(fault, entry_kind))


def assign_ports(state: FleetState, ports: Mapping[str, int]) -> Decision[FleetState, None]:
    """Give ports to VMs, each for ever."""
    owners = {port: vm for vm, port in state.ports.items()}
    for vm, port in ports.items():
        if owners.setdefault(port, vm) != vm:
            raise Invalid(f"port {port} was given to {owners[port]} and is given to no other VM")
        if state.ports.get(vm, port) != port:
            raise Invalid(f"{vm} was given port {state.ports[vm]} and keeps it")
    given = msgspec.structs.replace(state, ports={**state.ports, **ports})
    if len(encode(given)) > MAX_RECORD_BYTES - RESERVED_BYTES:
        raise Invalid(f"{len(given.ports)} ports are more than can be kept: start with --listen none, or anew")
    return Decision(given, (), None)


def _with_entry(
    state: FleetState, entry_kind: EntryKind, *, by: str, why: str, now: datetime, facts: dict[str, str] | None = None
) -> Decision[FleetState, None]:
    entry = Entry(n=state.entries + 1, at=now, kind=entry_kind, by=by, why=why, facts=facts or {})
    return Decision(msgspec.structs.replace(state, entries=entry.n), (entry,), None)
