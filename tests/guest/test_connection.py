"""Connections: timeouts of each state, peers that do not read, and internal errors."""

import asyncio
import logging
import re
import socket
from collections.abc import Awaitable
from contextlib import suppress

import msgspec
import pytest

from forewarn.core.event import EventType
from forewarn.fleet.replica import ScopeView
from forewarn.guest.connection_state import ConnectionState
from tests.core.sample_scopes import schedule_request, scope, vm
from tests.fleet.fleets import until
from tests.guest.running_endpoint import (
    EVENTS,
    GET,
    UNLIMITED,
    Peer,
    RunningEndpoint,
    approval,
    is_well,
    request,
    run_endpoint,
)

READ_AT_ONCE = 256 * 1024
"""How much an event loop reads from a socket at once."""


SMALL = msgspec.structs.replace(UNLIMITED, unread_bytes=4096, pipelined_bytes=4096)


async def seen(endpoint: RunningEndpoint, phase: ConnectionState) -> None:
    """Wait until the only connection is in that state."""
    await until(lambda: endpoint.connection_states() == [phase])


async def test_incomplete_headers_are_408() -> None:
    """Slowloris: the bytes arrive slowly. The timeout counts from the first byte."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        await peer.request()
        endpoint.tick_seconds(100)
        peer.send(b"GET")
        await seen(endpoint, ConnectionState.HEAD)
        for byte in b" /metad":
            endpoint.tick_seconds(1)
            peer.send(bytes([byte]))
        endpoint.tick_seconds(3)
        await seen(endpoint, ConnectionState.HEAD)
        endpoint.tick_seconds(1)
        answer = await peer.read_response()
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert await peer.is_closed()
        assert endpoint.counters.timed_out == 1


async def test_header_timeout_restarts_with_each_request() -> None:
    """A peer that always pipelines the start of the next request is not slow."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        for _ in range(10):
            peer.send(GET[:10])
            await seen(endpoint, ConnectionState.HEAD)
            endpoint.tick_seconds(6)
            peer.send(GET[10:] + GET[:10])
            assert (await peer.read_response()).status == 200
            endpoint.tick_seconds(6)
            peer.send(GET[10:])
            assert (await peer.read_response()).status == 200


async def test_incomplete_body_is_408() -> None:
    """With a Content-Length or chunked."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        peer.send(request("POST", EVENTS, ("Content-Length", "10")) + b"123")
        await seen(endpoint, ConnectionState.BODY)
        endpoint.tick_seconds(10)
        await seen(endpoint, ConnectionState.BODY)
        endpoint.tick_seconds(1)
        assert (await peer.read_response()).status == 408
        assert await peer.is_closed()


async def test_idle_connections_are_closed_without_a_response() -> None:
    """With or without an earlier request; each request restarts the timeout."""
    async with run_endpoint() as endpoint:
        silent, talking = await endpoint.connect(), await endpoint.connect()
        await talking.request()
        endpoint.tick_seconds(100)
        await talking.request()
        endpoint.tick_seconds(21)
        assert await silent.is_closed()
        assert (await talking.request()).status == 200
        endpoint.tick_seconds(121)
        assert await talking.is_closed()
        assert endpoint.counters.timed_out == 0


async def test_refused_peer_that_keeps_sending_is_disconnected() -> None:
    """It had time to read the refusal."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        peer.send(b"nonsense\r\n")
        assert (await peer.read_response()).status == 400
        await seen(endpoint, ConnectionState.LINGERING)
        peer.send(b"more")
        endpoint.tick_seconds(3)
        await until(lambda: endpoint.counters.connections == 0)


async def connect_without_reading(endpoint: RunningEndpoint) -> socket.socket:
    """Connect a peer that does not read, with small socket buffers."""
    await (await endpoint.connect()).close()
    await until(lambda: endpoint.counters.connections == 0)
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    peer.setblocking(False)
    await asyncio.get_running_loop().sock_connect(peer, ("127.0.0.1", endpoint.ports["web/web-0"]))
    await until(lambda: endpoint.counters.connections == 1)
    (connection,) = endpoint.connections()
    connection._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return peer


async def flood(peer: socket.socket, endpoint: RunningEndpoint) -> int:
    """Send requests without reading until the server stops reading; return the number of requests sent."""
    sent = 0
    (connection,) = endpoint.connections()
    while connection._transport.is_reading():
        with suppress(BlockingIOError):
            sent += peer.send((GET * 100)[sent % len(GET) :])
        await asyncio.sleep(0)
    return sent // len(GET)


async def test_peer_that_does_not_read_is_not_served_and_then_disconnected() -> None:
    """Its requests stay in the kernel's buffers, and our memory for it is bounded."""
    async with run_endpoint(limits=SMALL) as endpoint:
        peer = await connect_without_reading(endpoint)
        with peer:
            await flood(peer, endpoint)
            await seen(endpoint, ConnectionState.UNREAD)
            (connection,) = endpoint.connections()
            answered = endpoint.counters.responses[200]
            assert connection._transport.get_write_buffer_size() <= 2 * SMALL.unread_bytes + 1024
            assert len(connection._backlog) <= SMALL.pipelined_bytes + READ_AT_ONCE
            endpoint.tick_seconds(30)
            await seen(endpoint, ConnectionState.UNREAD)
            assert endpoint.counters.responses[200] == answered
            endpoint.tick_seconds(1)
            await until(lambda: endpoint.counters.connections == 0)
            assert endpoint.counters.timed_out == 1


async def test_peer_that_reads_late_gets_everything() -> None:
    """In order and complete."""
    loop = asyncio.get_running_loop()
    async with run_endpoint(limits=SMALL) as endpoint:
        peer = await connect_without_reading(endpoint)
        with peer:
            asked = await flood(peer, endpoint)
            await seen(endpoint, ConnectionState.UNREAD)
            received = b""
            while received.count(b'"Events":[]}') < asked:
                received += await loop.sock_recv(peer, 65536)
            numbers = re.findall(rb"x-ms-request-id: [0-9a-f-]+-([0-9a-f]{12})\r\n", received)
            assert [int(number, 16) for number in numbers] == list(range(1, asked + 1))
            assert endpoint.counters.responses[200] == asked


async def test_unread_last_response_times_out() -> None:
    """A peer that sends `Connection: close` and then never reads."""
    many = ("web-0", *(f"web-{n:060d}" for n in range(900)))
    async with run_endpoint(scope("web", *(vm(name, host="hv") for name in many)), limits=SMALL) as endpoint:
        await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, *(f"web/{name}" for name in many)))
        peer = await connect_without_reading(endpoint)
        with peer:
            peer.send(request("GET", EVENTS, ("Connection", "close")))
            await seen(endpoint, ConnectionState.CLOSED)
            endpoint.tick_seconds(30)
            await seen(endpoint, ConnectionState.CLOSED)
            endpoint.tick_seconds(1)
            await until(lambda: endpoint.counters.connections == 0)
            assert endpoint.counters.timed_out == 1


async def test_internal_error_is_500_logged_and_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Immediately, later, or from the cache; earlier responses are sent, and other connections continue."""
    async with run_endpoint() as endpoint:
        peer, other = await endpoint.connect(), await endpoint.connect("web/web-1")
        for _ in range(2):
            await peer.request()
            await other.request()

        def broken(_: ScopeView) -> Awaitable[None] | None:
            raise ZeroDivisionError("the test's own")

        with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
            patch.setattr(endpoint.server._state, "record_request", broken)
            await fails(peer, GET)
            patch.setattr(endpoint.fleet.last_seen, "record_request", broken)
            peer = await endpoint.connect()
            peer.send(request("GET", "/metadata/versions"))
            await fails(peer, GET, before=1)
        assert [record.message for record in caplog.records] == ["internal error while serving a guest request"] * 2
        assert "the test's own" in caplog.text
        assert endpoint.counters.failures == 2
        assert (await other.request()).status == 200


async def fails(peer: Peer, raw: bytes, *, before: int = 0) -> None:
    """Expect `before` responses, then a 500 and the end of the connection."""
    peer.send(raw)
    assert [(await peer.read_response()).status for _ in range(before)] == [200] * before
    answer = await peer.read_response()
    assert (answer.status, answer.headers["connection"]) == (500, "close")
    assert "logged" in answer.document["error"]
    assert await peer.is_closed()


async def test_error_within_an_approval_is_500(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors in pending responses are handled like immediate ones."""

    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    async with run_endpoint() as endpoint:
        monkeypatch.setattr(endpoint.fleet.events, "approve", broken)
        peer = await endpoint.connect()
        with caplog.at_level(logging.ERROR):
            await fails(peer, request("POST", body=approval()))
        assert endpoint.counters.failures == 1
        assert await is_well(endpoint)


async def test_resets_in_every_state_leave_nothing_behind() -> None:
    """No connection, long poll, rate counter or task remains."""
    held = request("GET", f"{EVENTS}&wait=60", ("If-None-Match", '"e1.1.2020-07-01"'))
    requests = [b"", GET, GET[:30], request("POST", EVENTS, ("Content-Length", "9")), held, b"nonsense\r\n", GET * 300]
    async with run_endpoint() as endpoint:
        before = len(asyncio.all_tasks())
        for raw in requests * 5:
            peer = await endpoint.connect()
            peer.send(raw)
            await until(lambda: endpoint.counters.accepted == len(endpoint.peers))
            peer.reset()
        await until(lambda: endpoint.counters.connections == 0 and endpoint.counters.long_polls == 0)
        endpoint.tick_seconds(2)
        assert endpoint.server._state.rate_limiter._counters == {}
        await until(lambda: len(asyncio.all_tasks()) <= before)
        assert await is_well(endpoint)
