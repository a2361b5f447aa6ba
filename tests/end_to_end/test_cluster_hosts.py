"""A control node and hosts as processes on a NATS server, each with the permissions of its role."""

import asyncio
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from forewarn.api import v1
from forewarn.compose.cell import prepare_cell
from forewarn.core.event import EventType
from forewarn.settings.schema import Settings
from tests.support.nats_servers import NatsCluster, run_nats
from tests.support.serve_process import EVENTS, SETTINGS, ServeProcess, get, run_serve

pytestmark = pytest.mark.process

GUARD_SECONDS = 120


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NatsCluster]:
    with run_nats(tmp_path / "nats") as cluster:
        asyncio.run(cluster.create_cell("main"))
        settings = Settings(nats=cluster.settings("main"))
        assert asyncio.run(prepare_cell(settings, tmp_path / "control" / "data")) == (True, True)
        yield cluster


def settings_of(cluster: NatsCluster, role: str, host: str | None = None) -> str:
    servers = ", ".join(f'"{server.url}"' for server in cluster.servers)
    name = "" if host is None else f'host = "{host}"\n'
    role_settings = f'store = "nats"\nrole = "{role}"\n{name}{SETTINGS}'
    guest_settings = '[guest]\nrequests_per_second = "none"\n'  # tests ask until something has changed
    return f'{role_settings}\n{guest_settings}[nats]\nservers = [{servers}]\n[simulated]\nreboot = "1s"\n'


@contextmanager
def serve(cluster: NatsCluster, directory: Path, role: str, host: str | None = None) -> Iterator[ServeProcess]:
    directory.mkdir(exist_ok=True)
    with run_serve(directory, settings_of(cluster, role, host)) as service:
        yield service


def post(url: str, body: bytes) -> tuple[int, str | None]:
    """Approve as a VM; return the status and the header Retry-After."""
    request = Request(f"{url}{EVENTS}", body, {"Metadata": "true"})
    try:
        with urlopen(request, timeout=GUARD_SECONDS) as answer:
            return answer.status, None
    except HTTPError as error:
        with error:
            return error.code, error.headers["Retry-After"]


def until(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + GUARD_SECONDS
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_host_serves_its_vm_while_the_control_node_is_killed_and_started_again(
    cluster: NatsCluster, tmp_path: Path
) -> None:
    with (
        serve(cluster, tmp_path / "control", "control") as control,
        serve(cluster, tmp_path / "hv-0", "host", "hv-0"),
    ):
        until(lambda: control.api.vm("web-0").guest_url)
        url = control.api.vm("web-0").guest_url
        assert url is not None
        assert control.api.vm("web-1").guest_url is None
        assert get(url, EVENTS)[0] == 200
        scheduled = control.api.schedule(v1.ScheduleEvents(type=EventType.REBOOT, vms=("web-0",), unannounced=True))
        event = scheduled.events[0].id
        until(lambda: json.loads(get(url, EVENTS)[2])["Events"])
        control.stop(signal.SIGKILL)
        approval = json.dumps({"StartRequests": [{"EventId": event}]}).encode()
        assert get(url, EVENTS)[0] == 200
        assert post(url, approval) == (503, "1")
        with serve(cluster, tmp_path / "control", "control") as again:
            until(lambda: post(url, approval)[0] == 200)
            until(lambda: not list(again.api.events()))
            actions = [entry.action for entry in again.api.journal() if entry.event == event]
            assert actions == ["scheduled", "approved", "started", "impact-begun", "impact-done", "completed"]


def test_host_stops_in_order_while_no_server_answers(cluster: NatsCluster, tmp_path: Path) -> None:
    with (
        serve(cluster, tmp_path / "control", "control") as control,
        serve(cluster, tmp_path / "hv-0", "host", "hv-0") as host,
    ):
        until(lambda: control.api.vm("web-0").guest_url)
        cluster.servers[0].kill()
        host.wait_for("follow of FOREWARN-main starts again: ")
        host.wait_for("follow of FOREWARN-main starts again: ")
        assert host.stop() == 0, host.text
        control.stop(signal.SIGKILL)
