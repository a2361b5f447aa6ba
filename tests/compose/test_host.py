"""The process of a host: guests, health and metrics, with and without control nodes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from forewarn.api import local_service
from forewarn.compose.host import RunningHost, run_host
from forewarn.settings.nats import NatsSettings
from forewarn.settings.schema import Settings
from forewarn.settings.types import ListenAddress, RoleName, StoreName
from forewarn.store.port import StoreInUse
from tests.compose.reporters import RecordingReporter
from tests.core.sample_scopes import scope, vm
from tests.fleet.host.clusters import run_control, until
from tests.support.nats_servers import run_nats

pytestmark = pytest.mark.process

DOCUMENT = "/metadata/scheduledevents?api-version=2020-07-01"


@asynccontextmanager
async def running_host(nats: NatsSettings, directory: Path) -> AsyncIterator[RunningHost]:
    settings = Settings(
        data=directory,
        store=StoreName.NATS,
        nats=nats,
        role=RoleName.HOST,
        host="hv-0",
        listen=ListenAddress("127.0.0.1", 0),
        operator=ListenAddress("127.0.0.1", 0),
    )
    async with run_host(settings, environ={}, reporter=RecordingReporter()) as running:
        yield running


async def get(url: str, **headers: str) -> tuple[int, str]:
    def send() -> tuple[int, str]:
        try:
            with urlopen(Request(url, headers=headers), timeout=60) as response:
                return response.status, response.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(send)


async def test_host_serves_its_guests_and_reports_its_age(tmp_path: Path) -> None:
    with run_nats(tmp_path / "nats") as cluster:
        nats = await cluster.create_cell()
        web = scope("web", vm("web-0", host="hv-0"), vm("web-1", host="hv-1", domain=1))
        async with run_control(nats, tmp_path / "c", web) as control, running_host(nats, tmp_path / "h") as host:
            web_0, web_1 = control.replica.scope("web").roster
            await until(lambda: control.hosts.url("web", web_0) is not None)
            url = control.hosts.url("web", web_0)
            assert url == host.guests.url("web", web_0)
            assert host.guests.url("web", web_1) is None
            status, body = await get(f"{url}{DOCUMENT}", Metadata="true")
            assert (status, json.loads(body)) == (200, {"DocumentIncarnation": 1, "Events": []})
            assert control.replica.scope("web").enabled
            status, body = await get(f"{host.url}/readyz")
            ready = json.loads(body)
            assert (status, ready["ready"], ready["problems"], ready["host"], ready["term"]) == (
                200,
                True,
                [],
                "hv-0",
                1,
            )
            assert ready["age_seconds"] < 60
            assert (await get(f"{host.url}/healthz"))[0] == 200
            assert (await get(f"{host.url}/metrics"))[0] == 401
            assert (await get(f"{host.url}/other"))[0] == 404
            token = local_service.read_token(tmp_path / "h" / local_service.TOKEN_FILE)
            status, body = await get(f"{host.url}/metrics", Authorization=f"Bearer {token}")
            assert status == 200
            assert "forewarn_host_replica_age_seconds " in body
            with pytest.raises(StoreInUse):
                async with running_host(nats, tmp_path / "h"):
                    pass


async def test_approval_without_control_nodes_gets_503_and_the_document_is_answered(tmp_path: Path) -> None:
    with run_nats(tmp_path / "nats") as cluster:
        nats = await cluster.create_cell()
        web = scope("web", vm("web-0", host="hv-0"))
        async with run_control(nats, tmp_path / "c", web) as control, running_host(nats, tmp_path / "h") as host:
            web_0 = control.replica.scope("web").vm("web-0")
            url = host.guests.url("web", web_0)
            await get(f"{url}{DOCUMENT}", Metadata="true")
        async with running_host(nats, tmp_path / "h") as host:
            url = host.guests.url("web", web_0)
            status, _ = await get(f"{url}{DOCUMENT}", Metadata="true")
            assert status == 200

            def approve() -> tuple[int, str | None]:
                body = b'{"StartRequests":[{"EventId":"5B067F98-E790-5859-9A37-B75D86282A82"}]}'
                request = Request(f"{url}{DOCUMENT}", body, {"Metadata": "true"})
                try:
                    with urlopen(request, timeout=60) as response:
                        return response.status, None
                except HTTPError as error:
                    with error:
                        return error.code, error.headers["Retry-After"]

            assert await asyncio.to_thread(approve) == (503, "1")
            _, body = await get(f"{host.url}/readyz")
            assert [problem for problem in json.loads(body)["problems"] if "control node" in problem]
