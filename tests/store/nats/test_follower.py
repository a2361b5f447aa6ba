"""The follower: it receives every message in order, and starts again after each loss."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from nats.aio.msg import Msg

from forewarn.core.backoff import backoff
from forewarn.store.nats import follower as follower_module
from forewarn.store.nats.connection import NatsConnection, ServerUnavailable
from forewarn.store.nats.follower import Follower, FollowLost, FollowStart
from forewarn.store.nats.message import StoredMessage
from forewarn.store.nats.stream import CellStream, StreamState
from forewarn.store.port import StoreCorrupt
from tests.support.nats_servers import GUARD_SECONDS, NatsCluster

pytestmark = pytest.mark.process


class Recorder:
    """Records what it gets, and waits for it."""

    def __init__(self) -> None:
        self.starts = 0
        self.data: list[bytes] = []
        self.last = 0
        self.idles = 0
        self.error: Exception | None = None
        self._changed = asyncio.Event()

    async def on_start(self, state: StreamState) -> FollowStart:
        self.starts += 1
        self._changed.set()
        return FollowStart(self.last + 1)

    async def on_message(self, message: StoredMessage, pending: int) -> None:
        if self.error is not None:
            raise self.error
        assert message.sequence > self.last
        self.last = message.sequence
        self.data.append(message.data)
        self._changed.set()

    async def on_idle(self) -> None:
        self.idles += 1
        self._changed.set()

    async def until(self, *, starts: int = 0, count: int = 0) -> None:
        async with asyncio.timeout(GUARD_SECONDS):
            while self.starts < starts or len(self.data) < count:
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
async def stream(nats_server: NatsCluster) -> AsyncIterator[CellStream]:
    settings = await nats_server.create_cell()
    connection = await NatsConnection.open(settings)
    yield CellStream(connection, settings.cell)
    await connection.aclose()


async def publish(stream: CellStream, *texts: str) -> None:
    for text in texts:
        await stream.connection.request(stream.subjects.journal, text.encode())


async def end(task: asyncio.Task[None]) -> None:
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=0.1)


async def test_follower_continues_when_its_consumer_is_gone(stream: CellStream) -> None:
    recorder = Recorder()
    following = asyncio.create_task(Follower(stream, [stream.subjects.journal], "test", recorder).run())
    await publish(stream, "1", "2")
    await recorder.until(count=2)
    names = (await stream.connection.call(f"CONSUMER.NAMES.{stream.name}"))["consumers"]
    assert len(names) == 1
    await stream.connection.call(f"CONSUMER.DELETE.{stream.name}.{names[0]}")
    await publish(stream, "3", "4")
    await recorder.until(starts=2, count=4)
    assert recorder.data == [b"1", b"2", b"3", b"4"]
    await end(following)
    async with asyncio.timeout(GUARD_SECONDS):  # the server removes it a moment later
        while (await stream.connection.call(f"CONSUMER.NAMES.{stream.name}"))["consumers"]:  # noqa: ASYNC110 - only the server knows
            await asyncio.sleep(0.05)


async def test_error_of_the_handler_ends_the_follower(stream: CellStream) -> None:
    recorder = Recorder()
    recorder.error = StoreCorrupt("J", "test")
    following = asyncio.create_task(Follower(stream, [stream.subjects.journal], "test", recorder).run())
    await publish(stream, "1")
    with pytest.raises(StoreCorrupt):
        async with asyncio.timeout(GUARD_SECONDS):
            await following


async def test_slow_handler_holds_the_stream_back_and_loses_nothing(
    stream: CellStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than the client's buffer and the window of the server take: 40 MB."""
    monkeypatch.setattr(follower_module, "SILENCE_SECONDS", GUARD_SECONDS)  # a busy machine may be silent for a while
    for number in range(80):
        await stream.connection.request(stream.subjects.journal, str(number).encode().ljust(512 * 1024))
    recorder = Recorder()
    following = asyncio.create_task(Follower(stream, [stream.subjects.journal], "test", recorder).run())
    await recorder.until(count=80)
    assert [int(data) for data in recorder.data] == list(range(80))
    assert recorder.starts == 1
    await end(following)


async def test_pauses_grow_from_one_failed_start_to_the_next(
    stream: CellStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after messages were received, as in an outage of the servers."""
    pauses: list[float] = []

    def record_pauses(first: float, maximum: float) -> Iterator[float]:
        for pause in backoff(first, maximum):
            pauses.append(pause)
            yield 0.0

    class Outage(Recorder):
        async def on_start(self, state: StreamState) -> FollowStart:
            if self.starts > 3:
                raise StoreCorrupt("J", "test")
            start = await super().on_start(state)
            if self.starts > 1:
                raise ServerUnavailable("test")
            return start

    monkeypatch.setattr(follower_module, "backoff", record_pauses)
    outage = Outage()
    outage.error = FollowLost("test")
    following = asyncio.create_task(Follower(stream, [stream.subjects.journal], "test", outage).run())
    await publish(stream, "1")
    with pytest.raises(StoreCorrupt):
        async with asyncio.timeout(GUARD_SECONDS):
            await following
    assert pauses == [0.05, 0.1, 0.2, 0.4]


@pytest.mark.parametrize(("more", "idles"), [({}, 1), ({"Nats-Consumer-Stalled": "$JS.FC.test"}, 0)])
async def test_consumer_that_waits_for_flow_control_is_not_idle(
    stream: CellStream, more: dict[str, str], idles: int
) -> None:
    """It has more messages: a snapshot that ended here would be incomplete."""
    recorder = Recorder()
    follower = Follower(stream, [stream.subjects.journal], "test", recorder)
    headers = {"Status": "100", "Description": "Idle Heartbeat", "Nats-Last-Consumer": "0", **more}
    follower._lost = asyncio.get_running_loop().create_future()
    await follower._on_message(Msg(stream.connection._client, subject="inbox", data=b"", headers=headers))
    assert (recorder.idles, follower._lost.done()) == (idles, False)
