"""Connections: time-outs of each state, peers that do not read, and errors of our own."""

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
"""What an event loop reads from a socket in one go."""


SMALL = msgspec.structs.replace(UNLIMITED, unread_bytes=4096, pipelined_bytes=4096)


async def seen(endpoint: RunningEndpoint, phase: ConnectionState) -> None:
    """Wait until the only connection is in that phase."""
    await until(lambda: endpoint.connection_states() == [phase])


async def test_head_that_does_not_come_to_its_end_is_408() -> None:
    """Slowloris: each byte comes, but the head takes too long. The time counts from its first byte."""
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


async def test_next_head_has_its_own_time() -> None:
    """A peer that always has the beginning of a request under way is not slow."""
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


async def test_body_that_does_not_come_to_its_end_is_408() -> None:
    """However it is sent."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        peer.send(request("POST", EVENTS, ("Content-Length", "10")) + b"123")
        await seen(endpoint, ConnectionState.BODY)
        endpoint.tick_seconds(10)
        await seen(endpoint, ConnectionState.BODY)
        endpoint.tick_seconds(1)
        assert (await peer.read_response()).status == 408
        assert await peer.is_closed()


async def test_idle_connections_are_closed_without_a_word() -> None:
    """Those that never asked, and those that have not asked for a while; asking makes it begin anew."""
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


async def test_refused_peer_that_goes_on_sending_is_cut_off() -> None:
    """It had the time to read why."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        peer.send(b"nonsense\r\n")
        assert (await peer.read_response()).status == 400
        await seen(endpoint, ConnectionState.LINGERING)
        peer.send(b"more")
        endpoint.tick_seconds(3)
        await until(lambda: endpoint.counters.connections == 0)


async def connect_without_reading(endpoint: RunningEndpoint) -> socket.socket:
    """Connect a peer that does not read, with small buffers on the way."""
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
    """Ask and ask without reading, until the server does not listen any more; return how many requests were sent."""
    sent = 0
    (connection,) = endpoint.connections()
    while connection._transport.is_reading():
        with suppress(BlockingIOError):
            sent += peer.send((GET * 100)[sent % len(GET) :])
        await asyncio.sleep(0)
    return sent // len(GET)


async def test_peer_that_does_not_read_is_not_served_further_and_then_cut_off() -> None:
    """Its requests stay in the kernel's buffers, and what we keep for it stays bounded."""
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


async def test_last_answer_that_is_not_read_does_not_keep_the_connection_for_ever() -> None:
    """`Connection: close` and then silence."""
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


async def test_error_of_our_own_is_500_logged_and_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At once, later, or on the fast way; the answers before it are given, and others go on."""
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
        assert [record.message for record in caplog.records] == ["a request failed"] * 2
        assert "the test's own" in caplog.text
        assert endpoint.counters.failures == 2
        assert (await other.request()).status == 200


async def fails(peer: Peer, raw: bytes, *, before: int = 0) -> None:
    """Expect answers before it, a 500, and the end."""
    peer.send(raw)
    assert [(await peer.read_response()).status for _ in range(before)] == [200] * before
    answer = await peer.read_response()
    assert (answer.status, answer.headers["connection"]) == (500, "close")
    assert "logged" in answer.document["error"]
    assert await peer.is_closed()


async def test_error_within_an_approval_is_500(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What happens later is guarded like what happens at once."""

    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    async with run_endpoint() as endpoint:
        monkeypatch.setattr(endpoint.fleet.events, "approve", broken)
        peer = await endpoint.connect()
        with caplog.at_level(logging.ERROR):
            await fails(peer, request("POST", body=approval()))
        assert endpoint.counters.failures == 1
        assert await is_well(endpoint)


async def test_resets_in_every_phase_leave_nothing_behind() -> None:
    """No connection, no slot, no tally, no task."""
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
