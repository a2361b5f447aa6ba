"""Read your writes: the headers of responses and requests, and the client that sends them."""

import pytest

from forewarn.api import v1
from forewarn.fleet import position
from tests.operator.running_api import run_api


async def test_every_response_has_the_position() -> None:
    async with run_api() as api:
        for path, status in (("/v1/scopes", 200), ("/v1/scopes/missing", 404), ("/healthz", 200)):
            found = await api.request("GET", path)
            assert (found.status, found.headers["forewarn-position"]) == (status, api.fleet.cluster.positions.current)


async def test_request_waits_for_its_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(position, "WAIT_SECONDS", 0.01)
    async with run_api() as api:
        current = api.fleet.cluster.positions.current
        assert (await api.request("GET", "/v1/scopes", Forewarn_After=current)).status == 200
        data, _, number = current.rpartition("-")
        later = f"{data}-{int(number) + 1}"
        refused = await api.request("POST", "/v1/holds", {"reason": "x"}, Forewarn_After=later)
        assert (refused.status, refused.code, refused.headers["retry-after"]) == (503, "position-not-reached", "1")
        assert api.fleet.cluster.positions.current == current, "nothing has changed"
        assert (await api.request("GET", "/healthz", Forewarn_After=later)).status == 200


async def test_invalid_position_is_refused() -> None:
    async with run_api() as api:
        assert (await api.request("GET", "/v1/scopes", Forewarn_After="x")).code == "invalid-request"


async def test_client_sends_the_position_of_its_last_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(position, "WAIT_SECONDS", 0.01)
    async with run_api() as api:
        waited: list[str] = []
        wait = api.fleet.cluster.positions.wait

        async def record(text: str) -> None:
            waited.append(text)
            await wait(text)

        monkeypatch.setattr(api.fleet.cluster.positions, "wait", record)
        await api.client(lambda client: (client.hold(v1.CreateHold(reason="x")), list(client.scopes())))
        assert waited == [api.fleet.cluster.positions.current]
