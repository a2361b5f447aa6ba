"""What only an emulator has is refused elsewhere, and scenarios also where time is real."""

from forewarn.api import v1
from forewarn.clock import SystemClock
from tests.operator.running_api import run_api

PLAY: tuple[str, str, object] = ("POST", "/v1/scenario-runs", {"name": "user-restart"})
REPORT = {"kind": "exam", "subject": "./handler", "passed": True, "summary": "1 scenario: 1 passed."}
REQUESTS: tuple[tuple[str, str, object], ...] = (
    ("GET", "/v1/scenarios", None),
    PLAY,
    ("GET", "/v1/scenario-runs", None),
    ("GET", "/v1/scenario-runs/S1", None),
    ("POST", "/v1/scenario-runs/S1/cancel", {}),
    ("GET", "/v1/reports", None),
    ("GET", "/v1/reports/R1", None),
    ("POST", "/v1/reports", REPORT),
)


async def test_service_for_real_vms_refuses_everything() -> None:
    async with run_api(emulates=False) as service:
        for method, path, body in REQUESTS:
            reply = await service.request(method, path, body)
            assert (reply.status, reply.code) == (409, "emulator-only"), path


async def test_scenario_is_refused_in_real_time_until_a_speed_is_set() -> None:
    async with run_api(clock=SystemClock()) as service:
        reply = await service.request(*PLAY)
        assert (reply.status, reply.code) == (409, "time-not-virtual")
        await service.client(lambda api: api.set_speed(v1.SetSpeed(speed=60)))
        # This service has no player of scenarios, as one without the test tools.
        reply = await service.request(*PLAY)
        assert (reply.status, reply.code) == (409, "emulator-only")
