"""`forewarn serve` on three NATS servers: crashes of the service and of servers lose nothing."""

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forewarn.api import v1
from forewarn.api.errors import RequestRefused
from forewarn.core.event import EventType
from tests.support.nats_servers import NatsCluster, run_nats
from tests.support.serve_process import (
    EVENTS,
    FLEET,
    SETTINGS,
    ServeProcess,
    get,
    guest_url,
    isolated_environment,
    run_serve,
)

pytestmark = pytest.mark.process

GUARD_SECONDS = 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NatsCluster]:
    with run_nats(tmp_path / "nats", servers=3) as cluster:
        asyncio.run(cluster.create_cell("main"))
        yield cluster


def settings_of(cluster: NatsCluster) -> str:
    servers = ", ".join(f'"{server.url}"' for server in cluster.servers)
    return f'store = "nats"\n{SETTINGS}\n[nats]\nservers = [{servers}]\n'


@contextmanager
def serve(cluster: NatsCluster, directory: Path) -> Iterator[ServeProcess]:
    directory.mkdir(exist_ok=True)
    with run_serve(directory, settings_of(cluster)) as service:
        yield service


def schedule(service: ServeProcess, vm: str, key: str) -> str:
    """Schedule an event; repeat the request with its key while the outcome is unknown or the cell has no leader."""
    deadline = time.monotonic() + GUARD_SECONDS
    while True:
        try:
            request = v1.ScheduleEvents(type=EventType.REBOOT, vms=(vm,), unannounced=True)
            return service.api.schedule(request, key=key).events[0].id
        except RequestRefused as error:
            if error.status != 503 or time.monotonic() > deadline:
                raise


def open_events(service: ServeProcess) -> dict[str, str]:
    return {event.id: event.status for event in service.api.events()}


def journal_of(service: ServeProcess) -> list[tuple[int, str]]:
    return [(entry.position, entry.action) for entry in service.api.journal()]


def test_killed_service_continues_with_everything(cluster: NatsCluster, tmp_path: Path) -> None:
    with serve(cluster, tmp_path / "one") as service:
        event = schedule(service, "web-0", "k1")
        seen = json.loads(get(guest_url(service, "web-0"), EVENTS)[2])
        assert [each["EventId"] for each in seen["Events"]] == [event]
        before = open_events(service), journal_of(service)
        service.stop(signal.SIGKILL)
    with serve(cluster, tmp_path / "one") as service:
        assert open_events(service) == before[0]
        assert journal_of(service)[: len(before[1])] == before[1]
        assert json.loads(get(guest_url(service, "web-0"), EVENTS)[2])["Events"] == seen["Events"]
        assert schedule(service, "web-0", "k1") == event  # the key is known
    # Another machine, with an empty data directory.
    with serve(cluster, tmp_path / "two") as service:
        assert open_events(service) == before[0]
        assert journal_of(service)[: len(before[1])] == before[1]


def test_changes_go_on_after_the_leader_was_killed(cluster: NatsCluster, tmp_path: Path) -> None:
    with serve(cluster, tmp_path / "one") as service:
        first = schedule(service, "web-0", "k1")
        leader = asyncio.run(cluster.leader_of(cluster.settings("main")))
        leader.kill()
        assert get(guest_url(service, "web-0"), EVENTS)[0] == 200  # without any majority
        second = schedule(service, "db", "k2")
        assert set(open_events(service)) == {first, second}
        cluster.start(leader)
        assert {entry.event for entry in service.api.journal() if entry.action == "scheduled"} == {first, second}


@pytest.mark.long
def test_second_service_on_the_same_cell_is_refused(cluster: NatsCluster, tmp_path: Path) -> None:
    """It waits until the lease of a service that was killed would have ended; `test_lease` has the same in short."""
    with serve(cluster, tmp_path / "one") as first:
        other = tmp_path / "two"
        other.mkdir()
        (other / "fleet.toml").write_text("")
        (other / "forewarn.toml").write_text(settings_of(cluster))
        second = ServeProcess(other, isolated_environment(other), ())
        assert second.wait_for_exit() == 3
        assert second.messages()[-1].startswith(f"cannot start: cell main is in use by process {first.process.pid} on ")


@pytest.mark.long
def test_suspended_service_stops_when_another_has_taken_over(cluster: NatsCluster, tmp_path: Path) -> None:
    directory = tmp_path / "one"
    directory.mkdir()
    (directory / "fleet.toml").write_text(FLEET)
    (directory / "forewarn.toml").write_text(settings_of(cluster))
    first = ServeProcess(directory, isolated_environment(directory), ()).ready()
    first.process.send_signal(signal.SIGSTOP)
    directory = tmp_path / "two"
    directory.mkdir()
    (directory / "fleet.toml").write_text(FLEET)
    # Its VMs have the ports of the first service, which is still there, so this one serves no guests.
    (directory / "forewarn.toml").write_text(settings_of(cluster).replace("listen = ", "# listen = "))
    second = ServeProcess(directory, isolated_environment(directory), ()).ready()
    assert [message for message in second.messages() if "waiting up to 15 s" in message]
    event = schedule(second, "web-0", "k1")
    first.process.send_signal(signal.SIGCONT)
    assert first.wait_for_exit() == 3
    assert "cannot go on: cell main is in use by process" in first.text
    assert list(open_events(second)) == [event]
    assert second.stop() == 0
