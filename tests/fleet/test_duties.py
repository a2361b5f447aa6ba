"""The duties of a process start and stop together."""

from datetime import timedelta

from forewarn.clock import ManualClock
from forewarn.core.event import EventType, State
from tests.core.sample_scopes import TEN, schedule_request, web_scope
from tests.fleet.fleets import run_fleet, until


async def test_stopped_duties_start_no_event_until_they_are_started_again() -> None:
    clock = ManualClock(TEN)
    async with run_fleet(web_scope(), clock=clock) as fleet:
        ((_, event),) = await fleet.events.schedule(schedule_request(EventType.FREEZE, "web-0"))
        await fleet.duties.stop()
        clock.set(TEN + timedelta(hours=1))
        assert (fleet.duties.scheduler.busy, fleet.duties.overdue) == (0, timedelta(0))
        assert fleet.events.find(event)[1].state is State.SCHEDULED
        await fleet.duties.start()
        await until(lambda: fleet.events.find(event)[1].state is State.STARTED)


async def test_halted_duties_begin_nothing_more() -> None:
    clock = ManualClock(TEN)
    async with run_fleet(web_scope(), clock=clock) as fleet:
        ((_, event),) = await fleet.events.schedule(schedule_request(EventType.FREEZE, "web-0"))
        fleet.duties.halt()
        clock.set(TEN + timedelta(hours=1))
        assert fleet.duties.scheduler.busy == 0
        assert fleet.events.find(event)[1].state is State.SCHEDULED
