"""Fleet state: the record for the whole fleet, with outages, the manual clock and the guest ports.

The hold on the fleet is a separate record (`fleet.holds`), so that a heartbeat does not conflict with decisions that
depend on the hold.

The functions are rules like those of `core`: they decide, and the caller saves.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from forewarn.core.errors import Invalid
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.limits import MAX_RECORD_BYTES
from forewarn.core.policy import Outage
from forewarn.fleet.main_loop import Decision
from forewarn.store.port import RecordKey, RecordKind, Store

FLEET_STATE = RecordKey(RecordKind.FLEET, "ledger")
MAX_OUTAGES = 64
RESERVED_BYTES = 96 * 1024
"""Bytes that ports must leave free for the other fields, so that a start can always be saved."""

MIN_OUTAGE = timedelta(seconds=1)


class SpeedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A speed that an operator has set, and the speed of the settings at that time, which it replaces."""

    speed: float
    setting: float


class FleetState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of the fleet as a whole."""

    entries: int = 0
    filled: bool = False
    outages: tuple[Outage, ...] = ()
    alive_at: datetime | None = None
    clock_at: datetime | None = None
    ports: dict[str, int] = {}
    speed: SpeedChange | None = None


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(FleetState).decode


async def manual_clock_start(store: Store, *, now: datetime) -> datetime:
    """Return the start of a manual clock: its last position, and never before a time that the service has seen.

    A new one starts at a whole second, as notices do, so that an event is due exactly after its notice.
    """
    record = await store.load(FLEET_STATE)
    if record is None:
        return now.replace(microsecond=0)
    state = decode(record.value)
    start = state.clock_at or now.replace(microsecond=0)
    return max(start, state.alive_at or start)


async def speed_at_start(store: Store, *, setting: float) -> float:
    """Return the speed of a service that starts: the one that an operator set last, unless the setting has changed."""
    record = await store.load(FLEET_STATE)
    change = None if record is None else decode(record.value).speed
    return change.speed if change is not None and change.setting == setting else setting


def record_start(state: FleetState, *, now: datetime) -> Decision[FleetState, None]:
    """Record that the service has started: the time since the last heartbeat was an outage."""
    if state.alive_at is None or now - state.alive_at <= MIN_OUTAGE:
        return record_heartbeat(state, now=now)
    return record_outage(state, Outage(began_at=state.alive_at, ended_at=now))


def record_outage(state: FleetState, outage: Outage) -> Decision[FleetState, None]:
    """Record an outage that has ended."""
    outages = (*state.outages, outage)[-MAX_OUTAGES:]
    return Decision(msgspec.structs.replace(state, outages=outages, alive_at=outage.ended_at), (), None)


def record_heartbeat(state: FleetState, *, now: datetime) -> Decision[FleetState, None]:
    """Record that the service is alive."""
    return Decision(msgspec.structs.replace(state, alive_at=now), (), None)


def mark_filled(state: FleetState) -> Decision[FleetState, None]:
    """Record that the initial fleet file is saved completely."""
    return Decision(msgspec.structs.replace(state, filled=True), (), None)


def move_clock(state: FleetState, *, to: datetime, by: str, why: str = "") -> Decision[FleetState, None]:
    """Record that an operator moves the manual clock to this time."""
    return _with_entry(msgspec.structs.replace(state, clock_at=to), EntryKind.CLOCK_MOVED, by=by, why=why, now=to)


def pass_clock(state: FleetState, *, to: datetime) -> Decision[FleetState, None]:
    """Record that the manual clock has reached this time, on a move that the journal already has."""
    return Decision(msgspec.structs.replace(state, clock_at=to), (), None)


def change_speed(state: FleetState, change: SpeedChange, *, by: str, now: datetime) -> Decision[FleetState, None]:
    """Record that an operator changes the speed."""
    changed = msgspec.structs.replace(state, speed=change)
    return _with_entry(changed, EntryKind.SPEED_CHANGED, by=by, why="", now=now, facts={"speed": f"{change.speed:g}"})


def record_occurrence(
    state: FleetState, entry_kind: EntryKind, *, by: str, why: str, now: datetime, facts: dict[str, str]
) -> Decision[FleetState, None]:
    """Record that something happened in the emulator, which is not stored as part of the fleet."""
    return _with_entry(state, entry_kind, by=by, why=why, now=now, facts=facts)


def assign_ports(state: FleetState, ports: Mapping[str, int]) -> Decision[FleetState, None]:
    """Assign ports to VMs permanently."""
    owners = {port: vm for vm, port in state.ports.items()}
    for vm, port in ports.items():
        if owners.setdefault(port, vm) != vm:
            raise Invalid(f"port {port} belongs to {owners[port]} and cannot be assigned to another VM")
        if state.ports.get(vm, port) != port:
            raise Invalid(f"{vm} has port {state.ports[vm]}, which cannot change")
    if ports.items() <= state.ports.items():
        return Decision(state, (), None)  # a restart saves nothing, and works on a full disk
    given = msgspec.structs.replace(state, ports={**state.ports, **ports})
    if len(encode(given)) > MAX_RECORD_BYTES - RESERVED_BYTES:
        raise Invalid(
            f"{len(given.ports)} ports are too many to store: use --listen none, or start with a new data directory"
        )
    return Decision(given, (), None)


def _with_entry(
    state: FleetState, entry_kind: EntryKind, *, by: str, why: str, now: datetime, facts: dict[str, str] | None = None
) -> Decision[FleetState, None]:
    entry = Entry(n=state.entries + 1, at=now, kind=entry_kind, by=by, why=why, facts=facts or {})
    return Decision(msgspec.structs.replace(state, entries=entry.n), (entry,), None)
