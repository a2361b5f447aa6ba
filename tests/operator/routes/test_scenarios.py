"""Scenario routes without a player, permissions, and unknown runs; `tests/testing/scenario` plays real ones."""

from forewarn.core.access import Role
from tests.operator.running_api import run_api


async def test_service_without_a_player_lists_no_scenarios() -> None:
    async with run_api() as service:
        assert (await service.request("GET", "/v1/scenarios")).code == "emulator-only"
        assert (await service.request("GET", "/v1/scenario-runs")).json == {"runs": []}
        for method, path in (("GET", "/v1/scenario-runs/S1"), ("POST", "/v1/scenario-runs/S1/cancel")):
            reply = await service.request(method, path, {} if method == "POST" else None)
            assert (reply.status, reply.code) == (404, "scenario-run-not-found")


async def test_runs_need_a_token_for_all_scopes() -> None:
    async with run_api() as service:
        team = await service.token("team", Role.OPERATOR, "web")
        body = {"name": "user-restart"}
        for method, path, sent in (
            ("POST", "/v1/scenario-runs", body),
            ("GET", "/v1/scenario-runs", None),
            ("GET", "/v1/scenario-runs/S1", None),
            ("POST", "/v1/scenario-runs/S1/cancel", {}),
        ):
            assert (await service.request(method, path, sent, token=team)).status == 403
