"""The simulated platform: how long work takes, how it ends, and where a VM is afterwards."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from forewarn.clock import ManualClock
from forewarn.core.campaign.spec import HttpCheck
from forewarn.core.event import EventType
from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.impact import Done, Failed, NotStarted, Retry
from forewarn.platform.port import GatePassed, GateRequest, Work
from forewarn.platform.simulated import MAX_RESULTS, SimulatedGateChecker, SimulatedPlatform, WorkResult
from tests.core.sample_scopes import TEN

SECOND = timedelta(seconds=1)


def work(type_: EventType = EventType.REBOOT, **fields: Any) -> Work:
    values: dict[str, Any] = {
        "id": "w1",
        "attempt": 1,
        "event": "E1",
        "type": type_,
        "scope": "web",
        "vm": "web-0",
        "vm_id": "id",
        "host": "hv-1",
        "duration": None,
        "description": "",
    }
    return Work(**values | fields)


@pytest.mark.parametrize("type_", EventType)
def test_work_takes_as_long_as_its_type_at_the_speed_of_the_service(type_: EventType) -> None:
    default = EVENT_TYPES[type_].default_duration
    assert SimulatedPlatform(ManualClock(TEN)).duration_for(work(type_)) == default
    assert SimulatedPlatform(ManualClock(TEN), speed=4.0).duration_for(work(type_)) == default / 4
    quick = SimulatedPlatform(ManualClock(TEN), durations={type_: SECOND})
    assert quick.duration_for(work(type_)) == SECOND


@pytest.mark.parametrize("type_", EventType)
def test_only_a_freeze_takes_as_long_as_its_event(type_: EventType) -> None:
    """The event's own duration was divided by the speed when the event was created."""
    platform = SimulatedPlatform(ManualClock(TEN), durations=dict.fromkeys(EventType, 8 * SECOND), speed=2.0)
    expected = 3 * SECOND if type_ is EventType.FREEZE else 4 * SECOND
    assert platform.duration_for(work(type_, duration=3 * SECOND)) == expected


@pytest.mark.parametrize(
    ("hosts", "host", "new"),
    [
        (("hv-2", "hv-0", "hv-1"), "hv-1", "hv-2"),
        (("hv-0", "hv-1"), "hv-1", "hv-0"),
        (("hv-1",), "hv-1", "hv-1"),
        ((), "hv-1", "hv-1"),
        ((), None, None),
        (("hv-0",), None, "hv-0"),
    ],
    ids=["next", "around", "no other", "unknown", "nowhere", "first known"],
)
def test_redeployed_vm_moves_to_the_next_host(hosts: tuple[str, ...], host: str | None, new: str | None) -> None:
    platform = SimulatedPlatform(ManualClock(TEN), hosts=lambda: hosts)
    assert platform.new_host(work(EventType.REDEPLOY, host=host)) == new
    assert platform.new_host(work(EventType.REBOOT, host=host)) is None


async def test_work_ends_when_its_time_has_passed_with_the_planned_outcomes_first() -> None:
    clock = ManualClock(TEN)
    platform = SimulatedPlatform(clock, durations={EventType.REBOOT: 10 * SECOND})
    platform.set_outcomes("web/web-0", Retry(SECOND), Failed("no power"))
    outcomes = []
    for attempt in range(1, 4):
        running = asyncio.ensure_future(platform.carry_out(work(attempt=attempt)))
        await asyncio.sleep(0)
        clock.set(clock.now() + 10 * SECOND - timedelta.resolution)
        await asyncio.sleep(0)
        assert not running.done()
        clock.set(clock.now() + timedelta.resolution)
        outcomes.append(await running)
    assert outcomes == [Retry(SECOND), Failed("no power"), Done()]
    assert list(platform.results) == [WorkResult(work(attempt=n), outcome) for n, outcome in enumerate(outcomes, 1)]


async def test_probe_knows_the_work_that_was_done_in_this_process() -> None:
    platform = SimulatedPlatform(ManualClock(TEN), durations=dict.fromkeys(EventType, timedelta(0)))
    platform.set_outcomes("web/web-0", Failed("no power"))
    await platform.carry_out(work(id="failed"))
    await platform.carry_out(work(EventType.REDEPLOY, id="done", host="hv-1"))
    found = [await platform.probe(work(id=id_)) for id_ in ("failed", "done", "other")]
    assert found == [NotStarted(), Done("hv-1"), NotStarted()]


def test_number_of_kept_results_is_limited() -> None:
    assert SimulatedPlatform(ManualClock(TEN)).results.maxlen == MAX_RESULTS


async def test_simulated_gates_are_open_unless_they_are_closed_or_unknown() -> None:
    checker = SimulatedGateChecker(["web", "db"], closed=["db"])

    async def check(gate: str | HttpCheck) -> bool:
        result = await checker.check(GateRequest(gate=gate, campaign="c", name="kernel"))
        return isinstance(result, GatePassed)

    assert [await check(gate) for gate in ("web", "db", "other")] == [True, False, False]
    assert await check(HttpCheck(url="http://127.0.0.1:1/"))
