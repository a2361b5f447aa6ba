"""The process of a host: guests, health and metrics, with and without control nodes."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from forewarn.api import local_service
from forewarn.compose.host import RunningHost, run_host
from forewarn.core.event import EventType
from forewarn.files import UnsafeDirectory
from forewarn.settings.nats import NatsSettings
from forewarn.settings.schema import Settings
from forewarn.settings.types import ListenAddress, RoleName, StoreName
from forewarn.store.port import StoreInUse
from tests.compose.reporters import RecordingReporter
from tests.compose.test_data_directory import modes_in, umask
from tests.core.sample_scopes import schedule_request, scope, vm
from tests.fleet.host.clusters import run_control, until
from tests.support.disks import make_full, make_read_only, mount_disk
from tests.support.nats_servers import run_nats

pytestmark = pytest.mark.process

FILES = (
    "forewarn.lock",
    "ports.json",
    "preset",
    "records.db",
    "records.db-shm",
    "records.db-wal",
    "token",
    "work",
)
"""Everything in the directory of a host."""

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


@pytest.mark.parametrize("mask", [0, 0o077])
async def test_files_are_private_whatever_the_umask_is(tmp_path: Path, mask: int) -> None:
    with run_nats(tmp_path / "nats") as cluster, umask(mask):
        modes = await run_once(await cluster.create_cell(), tmp_path)
    assert modes == {name: 0o700 if name == "work" else 0o600 for name in FILES}


async def test_symbolic_link_in_place_of_any_file_is_refused_and_not_followed(tmp_path: Path) -> None:
    with run_nats(tmp_path / "nats") as cluster:
        nats = await cluster.create_cell()
        await run_once(nats, tmp_path)
        for name in FILES:
            data, target = tmp_path / f"copy-{name}", tmp_path / f"target-{name}"
            shutil.copytree(tmp_path / "h", data)
            place = data / name
            if place.is_dir():
                place.rename(target)
            else:
                target.write_text("of another user")
                place.unlink(missing_ok=True)
            place.symlink_to(target)
            before = sorted(target.iterdir()) if target.is_dir() else target.read_text()
            with pytest.raises(UnsafeDirectory, match="is a symbolic link"):
                async with running_host(nats, data):
                    raise AssertionError(f"{name} was followed")
            assert (sorted(target.iterdir()) if target.is_dir() else target.read_text()) == before


async def run_once(nats: NatsSettings, directory: Path) -> dict[str, int]:
    """Run a host that uses everything of its directory; return the modes of what is there while it runs."""
    web = scope("web", vm("web-0", host="hv-0"))
    async with run_control(nats, directory / "c", web) as control, running_host(nats, directory / "h"):
        (web_0,) = control.replica.scope("web").roster
        await until(lambda: control.cluster.hosts.url("web", web_0) is not None)
        (directory / "h/work").mkdir(mode=0o700)
        return modes_in(directory / "h")


async def test_host_serves_its_guests_and_reports_its_age(tmp_path: Path) -> None:
    with run_nats(tmp_path / "nats") as cluster:
        nats = await cluster.create_cell()
        web = scope("web", vm("web-0", host="hv-0"), vm("web-1", host="hv-1", domain=1))
        async with run_control(nats, tmp_path / "c", web) as control, running_host(nats, tmp_path / "h") as host:
            web_0, web_1 = control.replica.scope("web").roster
            await until(lambda: control.cluster.hosts.url("web", web_0) is not None)
            url = control.cluster.hosts.url("web", web_0)
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


@pytest.mark.parametrize("make_unwritable", [make_full, make_read_only])
async def test_host_that_cannot_write_at_its_start_serves_guests_and_recovers(
    tmp_path: Path, make_unwritable: Callable[[Path], Callable[[], None]]
) -> None:
    """It shows only what is on its disk, so new events wait until it can write."""
    data = tmp_path / "disk/h"
    with mount_disk(tmp_path / "disk", "4m"), run_nats(tmp_path / "nats") as cluster:
        nats = await cluster.create_cell()
        async with run_control(nats, tmp_path / "c", scope("web", vm("web-0", host="hv-0"))) as control:
            (web_0,) = control.replica.scope("web").roster
            async with running_host(nats, data) as host:
                await until(lambda: control.cluster.hosts.url("web", web_0) is not None)
                url = host.guests.url("web", web_0)
                assert (await get(f"{url}{DOCUMENT}", Metadata="true"))[0] == 200
                await until(lambda: host.fleet.replica.scope("web").enabled)
            make_writable = make_unwritable(tmp_path / "disk")
            async with running_host(nats, data) as host:
                assert host.guests.url("web", web_0) == url
                _, body = await get(f"{url}{DOCUMENT}", Metadata="true")
                assert json.loads(body) == {"DocumentIncarnation": 1, "Events": []}
                status, body = await get(f"{host.url}/readyz")
                assert (status, json.loads(body)["ready"]) == (503, False)
                assert "cannot" in json.loads(body)["problems"][0]
                await control.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
                make_writable()
                await until(lambda: bool(host.fleet.replica.scope("web").events))
                await until(lambda: host.fleet.disk_problem is None)
                assert (await get(f"{host.url}/readyz"))[0] == 200


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
