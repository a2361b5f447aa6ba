"""The stream of a cell: created once, checked, and read from its leader."""

import json

import pytest

from forewarn.store.nats.connection import NatsConnection, ServerUnavailable
from forewarn.store.nats.message import FORMAT, CellSubjects
from forewarn.store.nats.stream import CELL_KEY, CellStream, InvalidServer, check_version, parse_headers
from forewarn.store.port import StoreMissing, StoreReverted, StoreTooNew
from tests.support.nats_servers import NatsCluster

pytestmark = pytest.mark.process


async def test_cell_is_created_once_and_keeps_its_id(nats_server: NatsCluster) -> None:
    settings = nats_server.settings("created")
    connection = await NatsConnection.open(settings)
    stream = CellStream(connection, settings.cell)
    with pytest.raises(StoreMissing, match="forewarn cluster init"):
        await stream.read_state()
    assert await stream.create(1, "first")
    assert not await stream.create(1, "second")
    state = await stream.read_state()
    assert (state.cell_id, state.last) == ("first", 1)
    config = state.details["config"]
    assert {key: config.get(key) for key in stream.settings(1)} == stream.settings(1)
    await connection.aclose()


async def test_interrupted_creation_is_completed(nats_server: NatsCluster) -> None:
    settings = nats_server.settings("half")
    connection = await NatsConnection.open(settings)
    stream = CellStream(connection, settings.cell)
    await connection.call(f"STREAM.CREATE.{stream.name}", stream.settings(1))
    with pytest.raises(StoreMissing):
        await stream.read_state()
    assert await stream.create(1, "id")
    assert (await stream.read_state()).cell_id == "id"
    await connection.aclose()


async def test_cell_of_a_newer_format_is_refused(nats_server: NatsCluster) -> None:
    settings = await nats_server.create_cell()
    connection = await NatsConnection.open(settings)
    stream = CellStream(connection, settings.cell)
    newer = json.dumps({"id": "x", "format": FORMAT + 1}).encode()
    await connection.request(CellSubjects(settings.cell).of(CELL_KEY), newer, {"Nats-Rollup": "sub"})
    with pytest.raises(StoreTooNew):
        await stream.read_state()
    await connection.aclose()


async def test_end_of_the_stream_and_of_a_subject_is_confirmed_by_a_write(nats_server: NatsCluster) -> None:
    settings = await nats_server.create_cell()
    connection = await NatsConnection.open(settings)
    stream = CellStream(connection, settings.cell)
    last = (await stream.read_state()).last
    with pytest.raises(StoreReverted, match=f"it ends at {last}, before {last + 7}"):
        await stream.check_end(last + 7)
    with pytest.raises(ServerUnavailable, match="does not lead"):
        await stream.check_end(last)
    cell = stream.subjects.of(CELL_KEY)
    assert await stream.is_at(cell, last)
    assert not await stream.is_at(cell, last + 1)
    await connection.aclose()


async def test_new_id_is_given_once(nats_server: NatsCluster) -> None:
    settings = await nats_server.create_cell()
    connection = await NatsConnection.open(settings)
    stream = CellStream(connection, settings.cell)
    first = (await stream.read_state()).cell_id
    await stream.renew_id(first)
    second = (await stream.read_state()).cell_id
    assert second != first
    await stream.renew_id(first)
    assert (await stream.read_state()).cell_id == second, "another process has renewed the cell"
    await connection.aclose()


def test_server_without_atomic_batches_is_refused() -> None:
    check_version((2, 12, 0))
    with pytest.raises(InvalidServer, match=r"2\.11\.9"):
        check_version((2, 11, 9))


def test_headers_of_a_stored_message_are_parsed() -> None:
    assert parse_headers(b"NATS/1.0\r\nA: 1\r\nB: x:y\r\n\r\n") == {"A": "1", "B": "x:y"}
    assert parse_headers(b"") == {}
