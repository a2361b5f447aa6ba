"""The clock as a response type."""

from datetime import timedelta

import msgspec

from forewarn.operator.clock_view import show_clock
from tests.operator.running_api import run_api


async def test_clock_has_its_speed_and_the_shortest_notice() -> None:
    async with run_api() as service:
        scopes = service.fleet.scopes
        scopes.policy = msgspec.structs.replace(scopes.policy, shortest_notice=timedelta(seconds=10))
        shown = show_clock(service.fleet)
    assert (shown.speed, shown.shortest_notice) == (service.fleet.emulator.speed.current, "10s")
