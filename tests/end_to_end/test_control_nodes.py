"""Two control processes on one cell: both serve operators, one starts due events, and the other takes over."""

import asyncio
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from types import MappingProxyType

import pytest

from forewarn.api import v1
from forewarn.compose.cell import prepare_cell
from forewarn.core.event import EventType
from forewarn.settings.schema import Settings
from tests.support.nats_servers import NatsCluster, run_nats
from tests.support.serve_process import ServeProcess, run_serve

pytestmark = pytest.mark.process

SETTINGS = """
store = "nats"
role = "control"
data = "data"
fleet = "fleet.toml"
operator = "127.0.0.1:0"
platform = "simulated"

[policy]
enforce_notice = false

[nats]
replicas = 1
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NatsCluster]:
    with run_nats(tmp_path / "nats") as cluster:
        asyncio.run(cluster.create_cell("main"))
        settings = Settings(nats=cluster.settings("main"))
        assert asyncio.run(prepare_cell(settings, tmp_path / "one" / "data")) == (True, True)
        assert asyncio.run(prepare_cell(settings, tmp_path / "spare")) == (False, False)
        (tmp_path / "two" / "data").mkdir(parents=True, mode=0o700)
        shutil.copy(tmp_path / "one" / "data" / "token", tmp_path / "two" / "data" / "token")
        yield cluster


@contextmanager
def serve(cluster: NatsCluster, directory: Path) -> Iterator[ServeProcess]:
    with run_serve(directory, f'{SETTINGS}servers = ["{cluster.servers[0].url}"]\n') as service:
        yield service


def read(service: ServeProcess, path: str, headers: Mapping[str, str] = MappingProxyType({})) -> HTTPResponse:
    """Send a request with the token of the service."""
    token = {"Authorization": f"Bearer {(service.directory / 'data' / 'token').read_text().strip()}"}
    connection = HTTPConnection(service.operator_url.removeprefix("http://"), timeout=60)
    connection.request("GET", path, headers={**token, **headers})
    response = connection.getresponse()
    response.read()
    connection.close()
    return response


def test_other_node_takes_over_after_the_holder_was_killed(cluster: NatsCluster, tmp_path: Path) -> None:
    """Each node accepts changes, sees those of the other one, and accepts the token of `cluster init`."""
    with ExitStack() as stack:
        first = stack.enter_context(serve(cluster, tmp_path / "one"))
        held = "this process holds the lease clock, term 1"
        if held not in first.text:
            first.wait_for(held)
        second = stack.enter_context(serve(cluster, tmp_path / "two"))
        request = v1.ScheduleEvents(type=EventType.REBOOT, vms=("web/web-0",), unannounced=True)
        event = second.api.schedule(request).events[0].id
        written = read(second, "/v1/me").headers["Forewarn-Position"]
        found = read(first, f"/v1/events/{event}", {"Forewarn-After": written})
        assert found.status == 200
        first.process.send_signal(signal.SIGKILL)
        second.wait_for("this process holds the lease clock, term 2")
        assert [each.id for each in second.api.events()] == [event]
        assert second.api.schedule(request).events[0].id != event
