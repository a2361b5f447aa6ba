"""Ports of the VMs of a host are kept there, and known to the control nodes."""

from pathlib import Path

import pytest

from forewarn.fleet.host.ports import HostPorts
from tests.fleet.host.clusters import run_control, run_host, until, web
from tests.support.nats_servers import NatsCluster

pytestmark = pytest.mark.process


async def test_ports_are_kept_on_disk_and_shown_by_control(nats_server: NatsCluster, tmp_path: Path) -> None:
    settings = await nats_server.create_cell()
    async with run_control(settings, tmp_path / "c", web()) as control:
        web_0 = control.replica.scope("web").vm("web-0")
        async with run_host(settings, tmp_path / "h") as host:
            await host.ports.assign({"web/web-0": 20_001})
            await until(lambda: control.cluster.hosts.url("web", web_0) == "http://127.0.0.1:20001")
        assert HostPorts(tmp_path / "h").assigned == {"web/web-0": 20_001}
        async with run_host(settings, tmp_path / "other") as host:
            assert host.ports.assigned == {"web/web-0": 20_001}
