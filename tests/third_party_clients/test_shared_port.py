"""One port for all VMs: clients that can only change their base URL act as the VM that it names."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from forewarn.client import ScheduledEvents
from forewarn.core.event import EventType
from forewarn.core.scope import ScopeKind
from tests.support.emulator import (
    GUARD,
    EmulatorProcess,
    Vm,
    forewarn_up,
    plain_environment,
    pool_of_scopes,
)
from tests.third_party_clients.curl import Curl
from tests.third_party_clients.test_dask import dask_on

pytestmark = pytest.mark.process

HEADERS = {"Metadata": "true"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatorProcess]:
    directory = tmp_path_factory.mktemp("service")
    fleet = directory / "fleet.toml"
    fleet.write_text(pool_of_scopes(), encoding="utf-8")
    shared = ("--listen", "none", "--listen-shared", "0.0.0.0:0", "--allow-remote")
    with forewarn_up(directory, "--fleet", str(fleet), *shared) as started:
        yield EmulatorProcess(started)


def test_all_vms_share_one_port(service: EmulatorProcess) -> None:
    (first, *_), (other, *_) = (service.scope_to_itself(ScopeKind.AVAILABILITY_SET) for _ in range(2))
    assert first.url.partition("/vm/")[0] == other.url.partition("/vm/")[0]
    assert first.url.endswith(f"/vm/{first.scope}/{first.name}"), "many scopes have a VM of this name"


def test_curl_reads_and_approves(service: EmulatorProcess, vm: Vm, tmp_path: Path) -> None:
    (event,) = service.schedule(EventType.REBOOT, vm)
    curl = Curl(tmp_path)
    seen = curl("-H", "Metadata:true", vm.events())
    assert [each["EventId"] for each in json.loads(seen.body)["Events"]] == [event]
    body = json.dumps({"StartRequests": [{"EventId": event}]})
    assert curl("-H", "Metadata:true", "-d", body, vm.events()).status == 200
    assert service.statuses(vm) == {event: "Started"}


def test_one_connection_serves_several_vms(service: EmulatorProcess) -> None:
    """A client with a pool reuses its connection for another VM, and must not get the former one's events."""
    (first, *_), (other, *_) = (service.scope_to_itself(ScopeKind.AVAILABILITY_SET) for _ in range(2))
    (event,) = service.schedule(EventType.REBOOT, first)
    with requests.Session() as session:
        session.trust_env = False
        seen = [
            [each["EventId"] for each in session.get(vm.events(), headers=HEADERS, timeout=GUARD).json()["Events"]]
            for vm in (first, other, first)
        ]
        name = session.get(
            f"{other.url}/metadata/instance/compute/name?api-version=2021-02-01&format=text",
            headers=HEADERS,
            timeout=GUARD,
        )
    assert (seen, name.text) == ([[event], [], [event]], other.name)


def test_program_of_2017_approves(service: EmulatorProcess, vm: Vm, programs: Path) -> None:
    (event,) = service.schedule(EventType.REBOOT, vm)
    command = [sys.executable, str(programs / "python_of_2017.py"), vm.events("2017-08-01"), vm.name]
    done = subprocess.run(command, env=plain_environment(), check=True, capture_output=True, text=True, timeout=GUARD)
    assert json.loads(done.stdout) == {"seen": 1, "mine": [event], "answers": [200]}


def test_our_client_approves(service: EmulatorProcess, vm: Vm) -> None:
    (event,) = service.schedule(EventType.REBOOT, vm)
    with ScheduledEvents(vm.url) as client:
        (seen,) = client.get().events
        assert (seen.id, client.name) == (event, vm.name)
        client.approve(seen)
    assert service.statuses(vm) == {event: "Started"}


async def test_dask_worker_sees_its_eviction(
    service: EmulatorProcess, scale_set: tuple[Vm, ...], tmp_path: Path
) -> None:
    async with dask_on(scale_set[0], tmp_path) as node:
        service.schedule(EventType.PREEMPT, scale_set[0], notice="1h")
        service.advance("3601s")
        assert (await node.ask()).name == "closed"
