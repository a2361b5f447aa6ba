"""State of a cell: described, and checked for wrong settings, replicas and permissions."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from forewarn import __version__
from forewarn.compose.cell import init_cell, run_cell
from forewarn.compose.cell_status import check_cell, read_status
from forewarn.store.nats.connection import NatsConnection
from forewarn.store.nats.stream import CellStream
from forewarn.store.port import StoreMissing
from tests.store.contract import WEB, entries
from tests.support.nats_servers import NatsCluster, run_nats

pytestmark = pytest.mark.process


async def test_new_cell_is_described_and_has_no_problem(nats_server: NatsCluster, tmp_path: Path) -> None:
    settings = nats_server.settings("new")
    with pytest.raises(StoreMissing):
        await read_status(settings)
    assert await init_cell(settings)
    assert not await init_cell(settings)
    async with run_cell(settings, tmp_path) as (store, _):
        await store.save(WEB, b"value", entries(2), expected=None)
        status = await read_status(settings)
        assert (status.cell, status.stream, status.records, status.journal_messages) == ("new", "FOREWARN-new", 1, 1)
        assert [(each.role, each.host, each.version) for each in status.members] == [("single", None, __version__)]
        assert status.owner is not None
        assert [replica.is_leader for replica in status.replicas] == [True]
        report = await check_cell(settings)
        assert report.problems == ()
        assert len(report.warnings) == 2
    assert (await read_status(settings)).owner is None


async def test_check_finds_changed_settings_and_repeated_records(nats_server: NatsCluster) -> None:
    settings = await nats_server.create_cell()
    connection = await NatsConnection.open(settings)
    stream = CellStream(connection, settings.cell)
    await connection.call(f"STREAM.UPDATE.{stream.name}", stream.settings(1) | {"max_msgs": 5_000})
    for _ in range(2):
        await connection.request(stream.subjects.of(WEB), json.dumps({}).encode())
    await connection.aclose()
    problems = (await check_cell(settings)).problems
    assert len(problems) == 2
    assert "max_msgs = 5000" in problems[0]
    assert "1 records have more than one message, such as $KV." in problems[1]


async def test_check_finds_too_few_replicas(nats_server: NatsCluster) -> None:
    settings = await nats_server.create_cell()
    problems = (await check_cell(replace(settings, replicas=3))).problems
    assert problems == ("the stream has num_replicas = 1, but Forewarn needs 3",)


async def test_check_finds_a_user_that_may_not_write(tmp_path: Path) -> None:
    config = """
    accounts { APP { jetstream: enabled, users: [
        { user: control, password: a },
        { user: reader, password: b, permissions { publish: ["$JS.API.>", "_INBOX.>"] } },
        { user: half, password: b, permissions { publish { deny: ["J.>"] }, subscribe { deny: ["C.>"] } } },
    ] } }
    """
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    with run_nats(tmp_path / "nats", config=config) as cluster:
        control = replace(cluster.settings("main"), user="control", password_file=tmp_path / "a")
        reader = replace(control, user="reader", password_file=tmp_path / "b")
        assert await init_cell(control)
        assert (await check_cell(control)).problems == ()
        [problem] = (await check_cell(reader)).problems
        assert "check the permissions of this user" in problem
        before = (await read_status(control)).last_sequence
        [problem] = (await check_cell(replace(reader, user="half"))).problems
        assert "a control node cannot write the journal, receive commands of hosts:" in problem
        assert (await read_status(control)).last_sequence == before + 1, "only the test write"
