"""The service itself: its clock."""

from datetime import UTC, datetime, timedelta

from forewarn.api import v1
from forewarn.clock import SystemClock
from forewarn.core.event import EventType
from tests.operator.stage import TEN, stage


async def test_clock_is_shown_and_moved() -> None:
    async with stage() as service:
        assert await service.client(lambda api: api.clock()) == v1.Clock(now=TEN, manual=True, next_at=None)
        await service.client(lambda api: api.schedule(v1.ScheduleEvents(type=EventType.FREEZE, vms=["db-0"])))
        due = TEN + timedelta(minutes=15)
        assert await service.client(lambda api: api.advance("1m")) == v1.Clock(
            now=TEN + timedelta(minutes=1), manual=True, next_at=due
        )
        assert await service.client(lambda api: api.advance()) == v1.Clock(
            now=due, manual=True, next_at=due + timedelta(seconds=9)
        )


async def test_real_time_is_shown_and_stays() -> None:
    async with stage(clock=SystemClock()) as service:
        clock = await service.client(lambda api: api.clock())
        assert (clock.manual, clock.next_at, clock.now <= datetime.now(UTC)) == (False, None, True)
        reply = await service.ask("POST", "/v1/clock/advance", {"by": "1m"})
        assert (reply.status, reply.code) == (409, "time-is-real")
