"""The time of real NATS servers."""

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from forewarn.core.clock_offset import find_origin, measure_offset
from forewarn.store.nats import server_time
from forewarn.store.nats.connection import NatsConnection
from forewarn.store.nats.server_time import ServerTime
from forewarn.store.nats.stream import CellStream
from tests.support.nats_servers import GUARD_SECONDS, NatsCluster, run_nats

DENIED = """
accounts { A { jetstream: enabled, users: [
  { user: u, password: p, permissions: { publish: { deny: "$SYS.>" } } }
] } }
"""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy machine connect in time."""
    monkeypatch.setattr(server_time, "CONNECT_SECONDS", GUARD_SECONDS)


async def test_each_server_tells_its_time(nats_cluster: NatsCluster) -> None:
    settings = await nats_cluster.create_cell()
    origin = None
    async with asyncio.timeout(GUARD_SECONDS):
        while origin is None:  # slow responses are not usable
            responses = await ServerTime(settings).read_times()
            assert len(responses) == len(settings.servers)
            origin = find_origin(responses)
    offset = measure_offset(datetime.now(UTC), time.monotonic(), origin)
    assert abs(offset.total_seconds()) < 1  # the servers have the clock of this machine


async def test_server_that_does_not_answer_is_left_out(
    nats_cluster: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = await nats_cluster.create_cell()
    monkeypatch.setattr(server_time, "CONNECT_SECONDS", 5)  # the one that is gone takes all of it
    gone = msgspec.structs.replace(settings, servers=("nats://127.0.0.1:1", *settings.servers))
    assert len(await ServerTime(gone).read_times()) == len(settings.servers)
    monkeypatch.setattr(server_time, "CONNECT_SECONDS", 0.1)
    none = msgspec.structs.replace(settings, servers=("nats://127.0.0.1:1",))
    assert await ServerTime(none).read_times() == []


async def test_user_that_may_not_ask_a_server_gets_the_time_of_the_leader(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("p")
    with run_nats(tmp_path / "nats", config=DENIED) as cluster:
        settings = msgspec.structs.replace(cluster.settings("main"), user="u", password_file=password)
        connection = await NatsConnection.open(settings)
        try:
            await CellStream(connection, "main").create(1, "id")
        finally:
            await connection.aclose()
        (response,) = await ServerTime(settings).read_times()
        assert response.is_usable
