"""Commands of hosts at a control node: they are answered only while the service runs."""

from pathlib import Path

import pytest

from forewarn.clock import SystemClock
from forewarn.compose.host_commands import serve_hosts
from forewarn.core.policy import EMULATOR
from forewarn.fleet.errors import SaveFailed
from forewarn.fleet.host.commands import Claim
from forewarn.fleet.host.control_client import ControlClient
from forewarn.fleet.replica import Replica
from forewarn.fleet.service import Fleet
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.nats.host_store import HostStore
from forewarn.store.nats.store import NatsStore
from tests.fleet.host.clusters import until
from tests.support.nats_servers import run_nats

pytestmark = pytest.mark.process


async def test_commands_are_answered_while_the_context_is_open(tmp_path: Path) -> None:
    with run_nats(tmp_path / "nats") as cluster:
        settings = await cluster.create_cell()
        store = await NatsStore.open(settings, tmp_path / "control")
        (tmp_path / "host").mkdir()
        records = await HostStore.open(settings, "hv-0", tmp_path / "host")
        client = ControlClient(records, "hv-0", Replica())
        claim = Claim(process=client.process, holder="a test")
        clock = SystemClock()
        async with Fleet.run(
            store=store, platform=SimulatedPlatform(clock), clock=clock, policy=EMULATOR, has_duties=False
        ) as fleet:
            await until(lambda: records.is_connected)
            async with serve_hosts(fleet, store):
                assert fleet.scopes.rule_context.hosts is not None
                response = await client.send(claim)
                assert response.term is not None
                assert response.term.term == 1
            with pytest.raises(SaveFailed):
                await client.send(claim)
        await records.aclose()
        await store.aclose()
