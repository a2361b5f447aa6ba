"""Clock, readiness and metrics of the service."""

from datetime import UTC, datetime, timedelta

from forewarn.api import v1
from forewarn.clock import SystemClock
from forewarn.core.access import Role
from forewarn.core.event import EventType
from forewarn.core.journal import EntryKind
from forewarn.store.port import JournalQuery
from tests.fleet.fleets import FailingStore
from tests.operator.running_api import TEN, run_api


async def test_clock_is_shown_and_advanced() -> None:
    async with run_api() as service:
        assert await service.client(lambda api: api.clock()) == v1.Clock(now=TEN, manual=True, next_change_at=None)
        await service.client(lambda api: api.schedule(v1.ScheduleEvents(type=EventType.FREEZE, vms=["db-0"])))
        due = TEN + timedelta(minutes=15)
        assert await service.client(lambda api: api.advance("1m")) == v1.AdvanceResult(
            now=TEN + timedelta(minutes=1), manual=True, next_change_at=due, changes=[]
        )
        moved = await service.client(lambda api: api.advance())
        assert (moved.now, moved.next_change_at) == (due, due + timedelta(seconds=5))
        assert [(change.action, change.record_id, change.vms) for change in moved.changes] == [
            (EntryKind.STARTED, "db-0", ["db-0"])
        ]


async def test_advance_returns_changes_in_order() -> None:
    async with run_api() as service:
        await service.client(lambda api: api.schedule(v1.ScheduleEvents(type=EventType.REBOOT, scope="web")))
        moved = await service.client(lambda api: api.advance("1h"))
    assert [(change.at - TEN, change.action, change.vms) for change in moved.changes] == [
        (timedelta(minutes=15 + n + m), did, [f"web-{n}", f"web-{n + 3}"])
        for n in range(3)
        for m, did in enumerate((EntryKind.STARTED, EntryKind.COMPLETED))
    ]


async def test_clock_stays_if_no_event_changes_with_time() -> None:
    async with run_api() as service:
        assert await service.client(lambda api: api.advance()) == v1.AdvanceResult(
            now=TEN, manual=True, next_change_at=None, changes=[]
        )


async def test_real_clock_is_shown_and_cannot_be_advanced() -> None:
    async with run_api(clock=SystemClock()) as service:
        clock = await service.client(lambda api: api.clock())
        assert (clock.manual, clock.next_change_at, clock.now <= datetime.now(UTC)) == (False, None, True)
        reply = await service.request("POST", "/v1/clock/advance", {"duration": "1m"})
        assert (reply.status, reply.code) == (409, "clock-not-manual")


async def test_speed_is_set_by_operators_of_an_emulator() -> None:
    async with run_api() as service:
        set_ = await service.client(lambda api: api.set_speed(v1.SetSpeed(speed=60)))
        assert set_ == v1.Clock(now=TEN, manual=True, next_change_at=None, speed=60)
        for speed in (0, -1, "fast", 1e300):
            reply = await service.request("POST", "/v1/clock/speed", {"speed": speed})
            assert (reply.status, reply.code) == (400, "invalid-request")
        limited, viewer = await service.token("team", Role.OPERATOR, "web"), await service.token("eve", Role.VIEWER)
        for token in (limited, viewer):
            reply = await service.request("POST", "/v1/clock/speed", {"speed": 2}, token=token)
            assert (reply.status, reply.code) == (403, "forbidden")
        assert service.fleet.emulator.speed.current == 60
    async with run_api(emulates=False) as service:
        reply = await service.request("POST", "/v1/clock/speed", {"speed": 2})
        assert (reply.status, reply.code) == (409, "emulator-only")


async def test_journal_records_who_advanced_the_clock() -> None:
    async with run_api() as service:
        token = await service.token("ann", Role.OPERATOR)
        await service.client(lambda api: api.schedule(v1.ScheduleEvents(type=EventType.FREEZE, vms=["db-0"])))
        for body in ({"duration": "1m"}, {"to_next_change": True}):
            await service.request("POST", "/v1/clock/advance", body, token=token)
        rows = await service.store.journal(JournalQuery(kinds=(EntryKind.CLOCK_MOVED,)))
    assert [row.entry.by for row in rows] == ["ann", "ann"]


async def test_service_that_cannot_save_is_not_ready() -> None:
    store = FailingStore()
    async with run_api(store=store) as service:
        store.full = True
        service.fleet.health.add_check(lambda: "the moon is full")
        reply = await service.request("GET", "/readyz", token=None)
        health = await service.request("GET", "/healthz", token=None)
    assert (reply.status, reply.json["ready"], reply.json["problems"][-1]) == (503, False, "the moon is full")
    assert health.status == 200


async def test_service_with_a_problem_of_single_vms_is_ready_and_says_so() -> None:
    async with run_api() as service:
        service.fleet.health.add_limitation(lambda: "one port is busy")
        reply = await service.request("GET", "/readyz", token=None)
    assert (reply.status, reply.json) == (
        200,
        {"ready": True, "problems": ["one port is busy"], "clock_offset_seconds": None},
    )


async def test_metrics_are_served() -> None:
    async with run_api() as service:
        for token in (None, "wrong"):
            await service.request("GET", "/v1/clock", token=token)
        reply = await service.request("GET", "/metrics")
    assert b'\nforewarn_operator_answers_total{status="401"} 2.0\n' in reply.body
    assert (reply.status, reply.headers["content-type"].split(";")[0]) == (200, "text/plain")
    assert b"\nforewarn_build_info{" in reply.body
