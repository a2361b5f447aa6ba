"""The journal stream: every entry once and in order, also for slow readers."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta

import msgspec
import pytest

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import ConnectionClosed
from forewarn.core.access import Role
from forewarn.core.journal import Entry, EntryKind
from forewarn.operator.routes import event_stream
from forewarn.operator.state import MAX_STREAMS
from forewarn.store.port import JournalQuery, RecordKey, RecordKind, Retention
from tests.fleet.fleets import until
from tests.operator.running_api import GUARD, TEN, TOKEN, RunningApi, run_api

OTHER = RecordKey(RecordKind.FLEET, "other")


class Reader:
    """A client of the journal stream that reads only on demand."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self.head = b""

    async def block(self) -> dict[str, str]:
        """Return the fields of the next block; comments have an empty name."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(GUARD):
            while line := (await self._line()).rstrip("\n"):
                name, _, value = line.partition(": ")
                fields[name.rstrip(":")] = value
        return fields

    async def entry(self) -> v1.JournalEntry:
        """Return the next journal entry."""
        while "data" not in (block := await self.block()):
            pass
        entry = msgspec.json.decode(block["data"], type=v1.JournalEntry)
        assert block["id"] == str(entry.position)
        return entry

    async def rest(self) -> bytes:
        """Return everything until the stream ends."""
        async with asyncio.timeout(GUARD):
            return await self._reader.readuntil(b"\r\n0\r\n\r\n")

    async def _line(self) -> str:
        """Return the next line of the chunked body."""
        line = await self._reader.readuntil(b"\n")
        while line.endswith(b"\r\n"):  # sizes and ends of chunks
            line = await self._reader.readuntil(b"\n")
        return line.decode()


@asynccontextmanager
async def asking(service: RunningApi, query: str = "", token: str = TOKEN, **headers: str) -> AsyncIterator[Reader]:
    """Request the journal stream."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"GET /v1/watch{query} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{more}\r\n"
    writer.write(head.encode())
    stream = Reader(reader)
    try:
        async with asyncio.timeout(GUARD):
            stream.head = await reader.readuntil(b"\r\n\r\n")
        yield stream
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def following(service: RunningApi, query: str = "", token: str = TOKEN, **headers: str) -> AsyncIterator[Reader]:
    """Open the journal stream and read the preamble."""
    async with asking(service, query, token, **headers) as stream:
        assert stream.head.startswith(b"HTTP/1.1 200"), stream.head
        assert await stream.block() == {"retry": "1000", "": "Forewarn"}
        yield stream


async def hold(service: RunningApi, reason: str, scope: str | None = None) -> None:
    await service.fleet.holds.set(by="test", reason=reason, scope=scope)


async def last_position(service: RunningApi) -> int:
    return (await service.store.extent()).last


async def test_every_entry_is_streamed_as_it_is_written() -> None:
    async with run_api() as service, following(service) as stream:
        assert b"content-type: text/event-stream" in stream.head.lower()
        assert b"cache-control: no-store" in stream.head.lower()
        for number in range(3):
            await hold(service, f"reason {number}")
            entry = await stream.entry()
            (row,) = await service.store.journal(JournalQuery(after=entry.position - 1))
            assert (entry.action, entry.reason, entry.record_kind) == (EntryKind.HELD, f"reason {number}", "fleet")
            assert (row.entry.at, row.entry.by) == (entry.at, entry.actor)


@pytest.mark.parametrize("way", ["header", "query", "both"])
async def test_reconnect_resumes_at_the_last_position(way: str) -> None:
    async with run_api() as service:
        before = await last_position(service)
        for number in range(4):
            await hold(service, f"reason {number}")
        query = "" if way == "header" else f"?after={before + 1 if way == 'query' else 0}"
        headers = {} if way == "query" else {"Last_Event_ID": str(before + 1)}
        async with following(service, query, **headers) as stream:
            assert [(await stream.entry()).reason for _ in range(3)] == ["reason 1", "reason 2", "reason 3"]
            await hold(service, "reason 4")
            assert (await stream.entry()).reason == "reason 4"


async def test_stream_from_the_start_is_complete() -> None:
    async with run_api() as service:
        await service.fleet.time.advance(timedelta(minutes=1))
        everything = await service.store.journal(JournalQuery())
        async with following(service, "?after=0") as stream:
            positions = [(await stream.entry()).position for _ in everything]
    assert positions == [row.position for row in everything]


async def test_stream_of_one_scope() -> None:
    async with run_api() as service, following(service, "?scope=web") as stream:
        await hold(service, "everything")
        await hold(service, "the shop", "shop")
        await hold(service, "the web", "web")
        assert (await stream.entry()).reason == "the web"


async def test_stream_is_limited_to_the_tokens_scopes() -> None:
    async with run_api() as service:
        web = await service.token("web-only", Role.VIEWER, "w*")
        async with following(service, token=web) as stream:
            await hold(service, "everything")
            await hold(service, "the shop", "shop")
            await hold(service, "the web", "web")
            assert (await stream.entry()).reason == "the web"
        refused = await service.request("GET", "/v1/watch?scope=shop", token=web)
    assert (refused.status, refused.code) == (403, "scope-forbidden")


async def test_heartbeat_has_the_examined_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "HEARTBEAT", 0.05)
    async with run_api() as service, following(service, "?scope=web") as stream:
        assert await stream.block() == {"": "nothing new"}
        await hold(service, "the shop", "shop")
        position = await last_position(service)
        while (block := await stream.block()) == {"": "nothing new"}:
            pass
        assert block == {"id": str(position), "": "nothing new"}


async def test_revoked_token_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "HEARTBEAT", 0.05)
    async with run_api() as service:
        token, secret = await service.fleet.tokens.create("visitor", Role.VIEWER, by="test")
        async with following(service, token=secret) as stream:
            await service.fleet.tokens.revoke(token.id, by="test")
            rest = await stream.rest()
    assert b"token-revoked" not in rest


async def test_pruned_position_is_answered_with_410() -> None:
    async with run_api() as service:
        while await service.store.prune(Retention(rows=1), now=TEN):
            pass
        reply = await service.request("GET", "/v1/watch?after=0")
        pruned = (await service.store.extent()).pruned
        assert (reply.status, reply.code, reply.json["error"]["details"]["pruned_to"]) == (
            410,
            "journal-pruned",
            str(pruned),
        )
        async with following(service, f"?after={pruned}") as stream:
            assert (await stream.entry()).position == pruned + 1


@pytest.mark.parametrize(
    ("query", "headers", "status", "code"),
    [
        ("?after=1000000", {}, 404, "position-not-found"),
        ("", {"Last_Event_ID": "1000000"}, 404, "position-not-found"),
        ("?after=-1", {}, 400, "invalid-request"),
        ("?after=99999999999999999999", {}, 400, "invalid-request"),
        ("", {"Last_Event_ID": "x"}, 400, "invalid-request"),
        ("?since=1", {}, 400, "invalid-request"),
    ],
)
async def test_invalid_position_is_refused(query: str, headers: dict[str, str], status: int, code: str) -> None:
    async with run_api() as service:
        reply = await service.request("GET", f"/v1/watch{query}", **headers)
    assert (reply.status, reply.code) == (status, code)


async def test_number_of_streams_is_limited_and_slots_are_released() -> None:
    async with run_api() as service, AsyncExitStack() as others:
        async with AsyncExitStack() as one:
            streams = [await others.enter_async_context(following(service)) for _ in range(MAX_STREAMS - 1)]
            streams.append(await one.enter_async_context(following(service)))
            refused = await service.request("GET", "/v1/watch")
            assert (refused.status, refused.code) == (503, "too-many-streams")
            assert (await service.request("GET", "/v1/clock")).status == 200
            await hold(service, "for all")
            assert {(await stream.entry()).reason for stream in streams} == {"for all"}
        for _ in attempts():
            async with asking(service) as again:
                if again.head.startswith(b"HTTP/1.1 200"):
                    break


def attempts() -> Iterator[int]:
    """Yield attempts until it is clear that something never happens; each is a request to the service."""
    yield from range(1000)
    raise AssertionError("it never happened")


async def test_slow_reader_uses_one_buffer_and_misses_nothing() -> None:
    number = 12_000
    lines = tuple(Entry(n=n, at=TEN, kind=EntryKind.VM_CHANGED, by="test", why="x" * 400) for n in range(1, number + 1))
    async with run_api() as service, following(service) as slow:
        async with following(service) as quick:
            await service.store.save(OTHER, b"{}", lines, expected=None)
            taken = [(await quick.entry()).position for _ in lines]
        last = await last_position(service)
        # The fast reader has read several MB; the slow one had little buffer, and still gets everything.
        positions = [(await slow.entry()).position for _ in lines]
    assert taken == positions == list(range(last - number + 1, last + 1))


async def test_shutdown_ends_streams() -> None:
    async with asyncio.timeout(GUARD), AsyncExitStack() as streams:
        async with run_api() as service:
            followers = [await streams.enter_async_context(following(service)) for _ in range(20)]
        ends = [await follower.rest() for follower in followers]
    assert set(ends) == {b"\r\n0\r\n\r\n"}


async def test_client_raises_when_the_stream_ends() -> None:
    async with run_api() as service:
        after = await last_position(service)
        await hold(service, "now")
        loop = asyncio.get_running_loop()

        def follow(seen: list[str | None]) -> None:
            for entry in ApiClient(service.url, TOKEN).watch(after=after):
                seen.append(None if entry is None else entry.reason)
                if entry is not None:
                    loop.call_soon_threadsafe(service.fleet.journal.close)

        seen: list[str | None] = []
        with pytest.raises(ConnectionClosed):
            await asyncio.to_thread(follow, seen)
    assert seen == [None, "now"]


async def test_blocked_reader_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "SEND_TIMEOUT", 0.2)
    lines = tuple(Entry(n=n, at=TEN, kind=EntryKind.VM_CHANGED, by="test", why="x" * 400) for n in range(1, 40_001))
    async with run_api() as service, following(service):
        assert service.fleet.journal.open == 1
        await service.store.save(OTHER, b"{}", lines, expected=None)
        await until(lambda: service.fleet.journal.open == 0)
        assert (await service.request("GET", "/v1/clock")).status == 200
