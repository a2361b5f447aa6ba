"""Members of a cell: announced while they run, and excluded by a migration."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from forewarn import __version__
from forewarn.settings.nats import NatsSettings
from forewarn.store.nats import migration
from forewarn.store.nats.connection import NatsConnection
from forewarn.store.nats.member import HostReport, MemberRole, Observations, read_members
from forewarn.store.nats.message import FORMAT
from forewarn.store.nats.migration import CellAccess
from forewarn.store.nats.store import NatsStore
from forewarn.store.nats.stream import CellStream
from forewarn.store.port import CellInUse
from tests.support.nats_servers import NatsCluster

pytestmark = pytest.mark.process


@asynccontextmanager
async def open_stream(settings: NatsSettings) -> AsyncIterator[CellStream]:
    connection = await NatsConnection.open(settings)
    try:
        yield CellStream(connection, settings.cell)
    finally:
        await connection.aclose()


async def test_member_is_announced_while_it_runs(nats_server: NatsCluster, tmp_path: Path) -> None:
    settings = await nats_server.create_cell()
    async with open_stream(settings) as stream:
        store = await NatsStore.open(settings, tmp_path)
        announcer = await store.announce("m1", MemberRole.CONTROL)
        (found,) = await read_members(stream)
        assert (found.report.member, found.report.role) == ("m1", MemberRole.CONTROL)
        assert (found.report.version, found.report.format) == (__version__, FORMAT)
        store.observe_members(lambda: Observations(0.25, {"hv-0": HostReport(holder="process 1", heard_ago=1.5)}))
        await announcer.start(patience=0)
        (again,) = await read_members(stream)
        assert (again.report.clock_offset, again.report.hosts["hv-0"].heard_ago) == (0.25, 1.5)
        assert again.seen_at >= found.seen_at
        await store.aclose()
        assert await read_members(stream) == []


async def test_service_and_migration_exclude_each_other(
    nats_server: NatsCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration does not begin while any control node runs, even one that holds no lease, and none starts later."""
    monkeypatch.setattr(migration, "MEMBER_SECONDS", -3.0)  # it waits for no other process to end
    settings = await nats_server.create_cell()
    store = await NatsStore.open(settings, tmp_path / "a")
    await store.announce("m1", MemberRole.CONTROL)
    access = await CellAccess.open(settings, "m2")
    with pytest.raises(CellInUse, match="process"):
        await access.claim()
    await store.aclose()
    await access.claim()
    other = await NatsStore.open(settings, tmp_path / "b")
    with pytest.raises(CellInUse, match="a migration"):
        await other.announce("m1", MemberRole.CONTROL)
    await access.aclose()
    await other.announce("m1", MemberRole.CONTROL)
    await other.aclose()
