"""Fleet state: outages, the position of the manual clock, and the ports of guests."""

from datetime import timedelta

import pytest

from forewarn.core.errors import Invalid
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.policy import Outage
from forewarn.fleet import fleet_state
from forewarn.fleet.fleet_state import (
    MAX_OUTAGES,
    FleetState,
    assign_ports,
    decode,
    encode,
    manual_clock_start,
    mark_filled,
    move_clock,
    pass_clock,
    record_outage,
    record_start,
)
from forewarn.fleet.main_loop import Decision
from forewarn.store.memory import MemoryStore
from tests.core.sample_scopes import TEN, web_scope
from tests.fleet.fleets import run_fleet

MINUTE = timedelta(minutes=1)


async def test_manual_clock_continues_at_its_last_position() -> None:
    """Its position is saved before anything happens there, so it never goes back."""
    store = MemoryStore()
    assert await manual_clock_start(store, now=TEN + timedelta(milliseconds=700)) == TEN
    async with run_fleet(web_scope(), store=store) as fleet:
        await fleet.time.advance(90 * MINUTE)
    assert await manual_clock_start(store, now=TEN + MINUTE) == TEN + 90 * MINUTE


async def test_new_manual_clock_starts_at_the_real_time() -> None:
    """Only a position that it had itself is older than the present."""
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store):
        pass
    assert await manual_clock_start(store, now=TEN + timedelta(days=30)) == TEN + timedelta(days=30)
    assert await manual_clock_start(store, now=TEN - timedelta(days=30)) == TEN


def test_first_start_and_a_quick_restart_are_no_outage() -> None:
    for state in (FleetState(), FleetState(alive_at=TEN - fleet_state.MIN_OUTAGE)):
        assert record_start(state, now=TEN) == Decision(FleetState(alive_at=TEN), (), None)


def test_time_since_the_last_heartbeat_was_an_outage() -> None:
    decision = record_start(FleetState(alive_at=TEN), now=TEN + MINUTE)
    outage = Outage(began_at=TEN, ended_at=TEN + MINUTE)
    assert decision.value == FleetState(alive_at=TEN + MINUTE, outages=(outage,))


def test_number_of_remembered_outages_is_limited() -> None:
    state = FleetState()
    for n in range(MAX_OUTAGES + 1):
        outage = Outage(began_at=TEN + n * MINUTE, ended_at=TEN + n * MINUTE + timedelta(seconds=30))
        state = value_of(record_outage(state, outage))
    assert (len(state.outages), state.outages[0].began_at) == (MAX_OUTAGES, TEN + MINUTE)


def value_of(decision: Decision[FleetState, None]) -> FleetState:
    assert decision.value is not None
    return decision.value


def test_moved_clock_is_in_the_journal_and_a_passing_one_is_not() -> None:
    moved = move_clock(FleetState(entries=2), to=TEN, by="ann", why="test")
    assert moved == Decision(
        FleetState(entries=3, clock_at=TEN),
        (Entry(n=3, at=TEN, kind=EntryKind.CLOCK_MOVED, by="ann", why="test"),),
        None,
    )
    assert pass_clock(FleetState(entries=2), to=TEN) == Decision(FleetState(entries=2, clock_at=TEN), (), None)


def test_first_fleet_file_is_loaded_once() -> None:
    assert mark_filled(FleetState(entries=2)) == Decision(FleetState(entries=2, filled=True), (), None)


def test_port_belongs_to_one_vm_forever() -> None:
    state = value_of(assign_ports(FleetState(), {"web/a": 8001, "web/b": 8002}))
    assert value_of(assign_ports(state, {"web/a": 8001, "web/c": 8003})).ports == {
        "web/a": 8001,
        "web/b": 8002,
        "web/c": 8003,
    }
    for ports in ({"web/c": 8001}, {"web/a": 8009}, {"web/c": 8003, "web/d": 8003}):
        with pytest.raises(Invalid):
            assign_ports(state, ports)


def test_ports_leave_room_for_the_rest_of_the_record() -> None:
    with pytest.raises(Invalid, match="40000 ports"):
        assign_ports(FleetState(), {f"web/vm-{n:06}": n for n in range(40_000)})


def test_state_is_decoded_as_it_was_encoded_and_a_new_one_is_empty() -> None:
    state = FleetState(
        entries=7,
        filled=True,
        outages=(Outage(began_at=TEN, ended_at=TEN + MINUTE),),
        alive_at=TEN,
        clock_at=TEN,
        ports={"web/a": 8001},
    )
    assert decode(encode(state)) == state
    assert encode(FleetState()) == b"{}"
