"""Requests of the VMs of a host enable their scopes."""

from pathlib import Path

import pytest

from tests.fleet.host.clusters import run_control, run_host, web
from tests.support.nats_servers import NatsCluster

pytestmark = pytest.mark.process


async def test_first_request_enables_the_scope_before_it_is_answered(nats_server: NatsCluster, tmp_path: Path) -> None:
    settings = await nats_server.create_cell()
    async with run_control(settings, tmp_path / "c", web()) as control, run_host(settings, tmp_path / "h") as host:
        view = host.replica.view("web")
        saving = host.last_seen.record_request(view)
        assert saving is not None
        await saving
        assert host.replica.scope("web").enabled
        assert control.replica.scope("web").enabled
        assert host.last_seen.record_request(view) is None
