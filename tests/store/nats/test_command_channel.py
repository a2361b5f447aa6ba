"""The command channel on a real NATS server: every control node hears a command, and one answers it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from forewarn.settings.nats import NatsSettings
from forewarn.store.nats.command_channel import CommandSender, CommandServer, inbox_of
from forewarn.store.nats.connection import NatsConnection, ServerUnavailable
from forewarn.store.nats.message import CellSubjects
from forewarn.store.nats.stream import CellStream
from forewarn.store.port import RecordKey, RecordKind
from tests.support.nats_servers import GUARD_SECONDS, NatsCluster

pytestmark = pytest.mark.process


class Recorder:
    """Records what a control node hears and answers."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, bytes]] = []
        self.answered: list[tuple[str, str, bytes]] = []

    def hear(self, host: str, name: str, body: bytes) -> None:
        self.heard.append((host, name, body))

    async def answer(self, host: str, name: str, body: bytes) -> bytes:
        self.answered.append((host, name, body))
        if body == b"fail":
            raise RuntimeError("a bug")
        return b"answer to " + body


@pytest.fixture
async def settings(nats_server: NatsCluster) -> NatsSettings:
    return await nats_server.create_cell()


@pytest.fixture
async def connection(settings: NatsSettings) -> AsyncIterator[NatsConnection]:
    opened = await NatsConnection.open(settings)
    yield opened
    await opened.aclose()


@pytest.fixture
async def host(settings: NatsSettings) -> AsyncIterator[NatsConnection]:
    opened = await NatsConnection.open(settings, inbox=inbox_of("hv=2E0"))
    yield opened
    await opened.aclose()


async def until_heard(*recorders: Recorder) -> None:
    async with asyncio.timeout(GUARD_SECONDS):
        while not all(recorder.heard for recorder in recorders):  # noqa: ASYNC110 - the server delivers it
            await asyncio.sleep(0.01)


async def test_all_control_nodes_hear_a_command_and_one_answers(
    settings: NatsSettings, connection: NatsConnection, host: NatsConnection
) -> None:
    recorders = [Recorder(), Recorder()]
    servers = [CommandServer(connection, settings.cell, recorder) for recorder in recorders]
    for server in servers:
        await server.start()
    sender = CommandSender(host, settings.cell, "hv.0")
    assert await sender.request("approve", b"1") == b"answer to 1"
    await until_heard(*recorders)
    command = ("hv.0", "approve", b"1")
    assert [recorder.heard for recorder in recorders] == [[command], [command]]
    assert [recorder.answered for recorder in recorders if recorder.answered] == [[command]]
    for server in servers:
        await server.stop()
    with pytest.raises(ServerUnavailable):
        await sender.request("approve", b"2")


async def test_answer_is_never_written_to_another_subject(
    settings: NatsSettings, connection: NatsConnection, host: NatsConnection
) -> None:
    """A host could otherwise write records with the permissions of the control node."""
    recorder, stream = Recorder(), CellStream(connection, settings.cell)
    server = CommandServer(connection, settings.cell, recorder)
    await server.start()
    key = RecordKey(RecordKind.SCOPE, "web")
    subjects = CellSubjects(settings.cell)
    for reply in (subjects.of(key), ""):
        await host.publish(subjects.command("hv.0", "approve"), b"evil", reply=reply)
    assert await CommandSender(host, settings.cell, "hv.0").request("approve", b"1") == b"answer to 1"
    assert recorder.answered == recorder.heard == [("hv.0", "approve", b"1")]
    assert await stream.read_last(subjects.of(key)) is None
    await server.stop()


async def test_error_of_one_command_does_not_affect_the_next(
    settings: NatsSettings, connection: NatsConnection, host: NatsConnection, caplog: pytest.LogCaptureFixture
) -> None:
    server = CommandServer(connection, settings.cell, Recorder())
    await server.start()
    await host.publish(CellSubjects(settings.cell).command("hv.0", "approve"), b"fail", reply=host.new_inbox())
    assert await CommandSender(host, settings.cell, "hv.0").request("approve", b"1") == b"answer to 1"
    await server.stop()
    assert "could not handle the command approve of host hv.0" in caplog.text


async def test_host_hears_of_new_vms(settings: NatsSettings, connection: NatsConnection, host: NatsConnection) -> None:
    placed = asyncio.Event()
    await CommandSender(host, settings.cell, "hv.0").on_placed(placed.set)
    await host.flush()
    server = CommandServer(connection, settings.cell, Recorder())
    server.notify_placed("hv.1")
    server.notify_placed("hv.0")
    async with asyncio.timeout(GUARD_SECONDS):
        await placed.wait()
