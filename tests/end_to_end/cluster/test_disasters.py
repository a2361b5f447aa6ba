"""A cluster whose servers have a full disk or an older stream, and one that is upgraded while it runs."""

import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import groupby
from pathlib import Path

import pytest

from forewarn.api import v1
from forewarn.api.errors import ApiError
from forewarn.core.event import EventType
from tests.end_to_end.cluster.lab import Lab
from tests.end_to_end.cluster.processes import HERE, RunningCluster, ServiceNode, run_cluster
from tests.support.disks import fill_disk, mount_disk
from tests.support.processes import GUARD, wait_until
from tests.support.serve_process import EVENTS, get, isolated_environment

pytestmark = pytest.mark.long

DISK_SIZE = "64m"
FULL_SECONDS = 6.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mount_disk(tmp_path / "disk", DISK_SIZE):
        yield tmp_path / "disk"


def test_full_disk_of_the_servers_loses_nothing(tmp_path: Path, disk: Path) -> None:
    """Guests are answered meanwhile, and no change is acknowledged that was not saved."""
    with run_cluster(tmp_path, nats_directory=disk / "nats") as cluster:
        lab = Lab(cluster)

        def fill(lab: Lab, _: random.Random) -> None:
            ballast = fill_disk(disk)
            time.sleep(FULL_SECONDS)  # the fault itself
            url = lab.guest_url("web/web-0")
            assert get(url, EVENTS)[0] == 200
            ballast.unlink()
            for server in cluster.nats.servers:  # JetStream stays off until a restart
                server.kill()
            for server in cluster.nats.servers:
                cluster.nats.start(server)

        assert lab.run("full", fill) == []


def stop_servers(cluster: RunningCluster) -> None:
    for server in cluster.nats.servers:
        server.stop()


def start_servers(cluster: RunningCluster) -> None:
    for server in cluster.nats.servers:
        cluster.nats.start(server)


def schedule(cluster: RunningCluster, key: str) -> str:
    """Schedule an event on any control node that answers."""
    request = v1.ScheduleEvents(type=EventType.REBOOT, vms=("web/web-0",), notice="30m", reason=key)
    found: list[str] = []

    def is_scheduled() -> bool:
        for node in cluster.controls:
            try:
                found.append(node.api.schedule(request, key=key).created[0].id)
            except ApiError:
                continue
            return True
        return False

    wait_until(is_scheduled, f"{key} is scheduled")
    return found[0]


def read_events(url: str) -> list[str]:
    return [event["EventId"] for event in json.loads(get(url, EVENTS)[2])["Events"]]


def split_tag(tag: str) -> tuple[str, int]:
    """Return the epoch and the incarnation of a response."""
    epoch, incarnation, _ = tag.strip('"').split(".")
    return epoch, int(incarnation)


def test_stream_restored_from_an_older_backup_is_what_counts(tmp_path: Path) -> None:
    """What came after the backup is gone everywhere, in a new epoch, and work goes on when a person has released it."""
    with ExitStack() as stack:
        cluster = stack.enter_context(run_cluster(tmp_path))
        lab = Lab(cluster)
        url = lab.guest_url("web/web-0")
        kept = schedule(cluster, "kept")
        stop_servers(cluster)
        for server in cluster.nats.servers:
            shutil.copytree(server.data, tmp_path / "backup" / server.name)
        start_servers(cluster)
        lost = schedule(cluster, "lost")
        wait_until(lambda: read_events(url) == [kept, lost], "the guest sees both events")
        seen = get(url, EVENTS)[1]["etag"]
        tags: list[tuple[str, int]] = []
        is_over = threading.Event()

        def poll() -> None:
            while not is_over.wait(0.01):
                with suppress(OSError):
                    status, headers, _ = get(url, EVENTS)
                    if status == 200:
                        tags.append(split_tag(headers["etag"]))

        polling = threading.Thread(target=poll)
        polling.start()
        stack.callback(polling.join)
        stack.callback(is_over.set)
        stop_servers(cluster)
        for server in cluster.nats.servers:
            shutil.rmtree(server.data)
            shutil.copytree(tmp_path / "backup" / server.name, server.data)
        start_servers(cluster)

        def is_restored() -> bool:
            for node in cluster.services:
                node.revive()  # a supervisor does this
            try:
                return all(
                    [event.id for event in node.api.events()] == [kept] for node in cluster.controls
                ) and read_events(url) == [kept]
            except (ApiError, OSError):
                return False

        wait_until(is_restored, "all nodes have the content of the backup")
        is_over.set()
        polling.join()
        assert any("beginning new epochs" in node.log for node in cluster.controls)
        old = split_tag(seen)
        epochs = [epoch for epoch, _ in groupby(tag[0] for tag in tags)]
        assert epochs[0] == old[0]
        assert len(epochs) == len(set(epochs)), "no epoch comes back"
        assert [tag for tag in tags if tag[0] == old[0] and tag[1] < old[1]] == [], "no incarnation goes back"
        assert epochs[-1] != old[0]
        assert split_tag(get(url, EVENTS)[1]["etag"])[1] > old[1]
        api = cluster.controls[0].api
        assert [hold.created_by for hold in api.holds().holds] == ["restore"]
        api.release(v1.ReleaseHold(reason="checked"))
        again = schedule(cluster, "again")
        wait_until(lambda: read_events(url) == [kept, again], "the guest sees the new event")


def run_upgrade(node: ServiceNode) -> bool:
    """Run `forewarn cluster upgrade` with the version of a node; return whether the cell is up to date."""
    done = subprocess.run(
        [sys.executable, HERE / "faulty_main.py", "cluster", "upgrade", "--config", "forewarn.toml"],
        cwd=node.directory,
        env=isolated_environment(node.directory),
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )
    return done.returncode == 0


def test_rolling_upgrade_to_another_format_loses_nothing(tmp_path: Path) -> None:
    """The format changes when every process knows it, and a process of the old version saves nothing afterwards."""
    with run_cluster(tmp_path, is_faulty=True) as cluster:
        lab = Lab(cluster)

        def upgrade(lab: Lab, _: random.Random) -> None:
            for node in cluster.services:
                (node.directory / "format").write_text("2")
                assert not run_upgrade(node)  # the others are too old
                node.restart(signal.SIGTERM)
                node.wait_until_ready()
                lab.work(5)
            wait_until(lambda: run_upgrade(cluster.controls[0]), "all processes know the format")
            lab.work()

        assert lab.run("upgrade", upgrade) == []
        old = cluster.controls[1]
        old.end(signal.SIGTERM)
        (old.directory / "format").unlink()
        old.start()
        old.wait_until_ended()
        assert "this Forewarn reads up to 1" in old.log.splitlines()[-1]
