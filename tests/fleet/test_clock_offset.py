"""The clock offset of a process: measured by the servers, watched in between, and what follows for the clock lease."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from forewarn.clock import ManualClock
from forewarn.core.clock_offset import ClockState, TimeResponse
from forewarn.core.event import EventType, State
from forewarn.core.policy import EMULATOR
from forewarn.fleet.clock_offset import ClockOffset
from forewarn.fleet.errors import LeaseLost
from forewarn.fleet.service import Fleet
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.memory import MemoryStore
from tests.core.sample_scopes import TEN, schedule_request, web_scope
from tests.fleet.fleets import SharedLease, SteppedClock, until

HOUR = timedelta(hours=1)


def response(at_seconds: float = 0.0) -> TimeResponse:
    """Return the answer of a server that is at TEN when the monotonic clock is at 100."""
    return TimeResponse(at=TEN + timedelta(seconds=at_seconds), sent=100.0, received=100.0)


class Servers:
    """Servers whose time is that of the clock, and which count how often they are asked."""

    def __init__(self, clock: SteppedClock) -> None:
        self._clock = clock
        self.is_up = True
        self.asked = 0

    async def read_times(self) -> Sequence[TimeResponse]:
        """Return the true time."""
        self.asked += 1
        now = asyncio.get_running_loop().time()
        return [TimeResponse(at=self._clock.now() - self._clock.step, sent=now, received=now)] if self.is_up else []


async def test_offset_is_unknown_until_a_server_has_answered() -> None:
    offset = ClockOffset(ManualClock(TEN), monotonic=lambda: 100.0)
    assert (offset.state, offset.seconds, offset.cluster_time()) == (ClockState.UNKNOWN, None, None)
    assert offset.problem() is not None
    offset.take([response()])
    assert (offset.state, offset.seconds, offset.cluster_time()) == (ClockState.EXACT, 0.0, TEN)
    assert offset.problem() is None
    offset.take([])
    assert offset.state is ClockState.EXACT


ADVICE = "check the time synchronisation of this machine"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, f"the clock is 2.0 s fast: {ADVICE}"),
        (30, f"the clock is 30.0 s slow, so this process does nothing by time: {ADVICE}"),
    ],
)
async def test_problem_says_how_far_the_clock_is_off(seconds: int, text: str, caplog: pytest.LogCaptureFixture) -> None:
    offset = ClockOffset(ManualClock(TEN), monotonic=lambda: 100.0)
    offset.take([response(seconds)])
    assert offset.problem() == text
    offset.check()
    assert [record.message for record in caplog.records] == [text]
    offset.take([response()])
    assert caplog.records[-1].message == "the clock is exact again"


async def test_host_does_not_stop_because_of_its_clock() -> None:
    offset = ClockOffset(ManualClock(TEN), acts_by_time=False, monotonic=lambda: 100.0)
    assert offset.problem() is None
    offset.take([response(30)])
    assert offset.problem() == f"the clock is 30.0 s slow: {ADVICE}"


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_step_of_the_clock_stops_everything_by_time(step: timedelta) -> None:
    clock, lease = SteppedClock(), SharedLease("one")
    servers = Servers(clock)
    lease.is_free.set()
    async with Fleet.run(
        store=MemoryStore(),
        platform=SimulatedPlatform(clock),
        clock=clock,
        policy=EMULATOR,
        lease=lease,
        times=servers,
    ) as fleet:
        await until(lambda: fleet.duties.scheduler.is_running)
        await fleet.inventory.add_scope(web_scope(), by="test")
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        assert servers.asked == 1
        clock.step = step
        assert not fleet.cluster.clock_lease.is_held
        with pytest.raises(LeaseLost, match="this process does nothing by time"):
            fleet.cluster.clock_lease.guards()
        await until(lambda: not fleet.duties.scheduler.is_running)
        await until(lease.lost.is_set)
        assert fleet.replica.scope("web").events[0].state is State.SCHEDULED
        assert any("the clock is" in problem for problem in fleet.health.limitations())
        clock.step = timedelta(0)
        lease.is_free.set()
        await until(lambda: fleet.duties.scheduler.is_running)


async def test_process_with_a_wrong_clock_takes_no_lease() -> None:
    clock, lease = SteppedClock(), SharedLease("one")
    servers = Servers(clock)
    clock.step = timedelta(seconds=-6)
    lease.is_free.set()
    async with Fleet.run(
        store=MemoryStore(),
        platform=SimulatedPlatform(clock),
        clock=clock,
        policy=EMULATOR,
        lease=lease,
        times=servers,
    ) as fleet:
        await until(lambda: servers.asked > 1)
        assert lease.lost.is_set()
        clock.step = timedelta(seconds=-4)
        await until(lambda: fleet.duties.scheduler.is_running)
        assert fleet.cluster.clock_offset is not None
        assert fleet.cluster.clock_offset.state is ClockState.OFF


async def test_only_process_of_a_cell_keeps_its_lease_with_a_wrong_clock() -> None:
    """Without it, not even an approval could be saved."""
    clock, lease = SteppedClock(), SharedLease("one")
    lease.is_shared = False
    lease.is_free.set()
    await lease.claim()
    async with Fleet.run(
        store=MemoryStore(),
        platform=SimulatedPlatform(clock),
        clock=clock,
        policy=EMULATOR,
        lease=lease,
        times=Servers(clock),
    ) as fleet:
        assert fleet.duties.scheduler.is_running
        clock.step = HOUR
        await until(lambda: not fleet.duties.scheduler.is_running)
        assert not lease.lost.is_set()
