"""Nothing that a guest does, or does not do, takes more than its share."""

import asyncio
import re
import resource
import socket
from contextlib import suppress
from datetime import timedelta

import msgspec
import pytest

from forewarn.core.errors import Invalid
from forewarn.core.event import EventType
from forewarn.guest.connection_state import ConnectionState
from forewarn.guest.limits import SPARE_FILES, Limits, connection_limit
from forewarn.wire.error_responses import ErrorReason
from tests.core.sample_scopes import schedule_request, scope, vm
from tests.fleet.fleets import until
from tests.guest.running_endpoint import EVENTS, GET, UNLIMITED, RunningEndpoint, approval, request, run_endpoint

READ_AT_ONCE = 256 * 1024
"""What an event loop reads from a socket in one go."""

SMALL = msgspec.structs.replace(UNLIMITED, unread_bytes=4096, pipelined_bytes=4096)


# Size.


async def test_head_over_16_kib_is_431_then_closed() -> None:
    """Even while the peer is still sending."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        peer.send(GET + b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100_000)
        assert (await peer.read_response()).status == 200
        answer = await peer.read_response()
        assert (answer.status, answer.headers["connection"]) == (431, "close")
        assert await peer.is_closed()
        assert endpoint.counters.refusals[ErrorReason.HEADER_TOO_LARGE] == 1


async def test_body_over_64_kib_is_413_before_it_is_sent() -> None:
    """By what it says of its length; with `Expect` too, in place of `100 Continue`."""
    async with run_endpoint() as endpoint:
        for headers in ([], [("Expect", "100-continue")]):
            peer = await endpoint.connect()
            answer = await peer.request(request("POST", EVENTS, *headers, ("Content-Length", str(64 * 1024 + 1))))
            assert (answer.status, answer.headers["connection"]) == (413, "close")
            assert await peer.is_closed()


async def test_chunked_body_that_grows_over_64_kib_is_413_and_the_peer_gets_to_read_it() -> None:
    """It is still sending when it is refused: closing at once would destroy the answer on its way."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        peer.send(request("POST", EVENTS, ("Transfer-Encoding", "chunked")))
        for _ in range(1000):
            peer.send(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")
        answer = await peer.read_response()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert await peer.is_closed()


async def test_body_of_64_kib_is_read() -> None:
    """It fails for what it says, not for its size."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        answer = await peer.post(approval() + b" " * (64 * 1024 - len(approval())))
        assert answer.status == 200
        assert (await peer.request()).status == 200


# Connections.


async def test_one_connection_too_many_of_a_vm_is_503() -> None:
    """It is told so and closed; those that it has go on, and another VM is served."""
    async with run_endpoint(limits=msgspec.structs.replace(UNLIMITED, connections_per_vm=3)) as endpoint:
        peers = [await endpoint.connect("web/web-0") for _ in range(3)]
        surplus = await endpoint.connect("web/web-0")
        answer = await surplus.read_response()
        assert (answer.status, answer.headers["connection"]) == (503, "close")
        assert await surplus.is_closed()
        assert [(await peer.request()).status for peer in peers] == [200] * 3
        assert (await (await endpoint.connect("web/web-1")).request()).status == 200
        await peers[0].close()
        await until(lambda: endpoint.counters.connections == 3)
        assert (await (await endpoint.connect("web/web-0")).request()).status == 200
        assert endpoint.counters.refusals[ErrorReason.CONNECTIONS] == 1


async def test_one_connection_too_many_in_all_is_503() -> None:
    """Whoever it is."""
    async with run_endpoint(limits=msgspec.structs.replace(UNLIMITED, connections=2)) as endpoint:
        peers = [await endpoint.connect("web/web-0"), await endpoint.connect("web/web-1")]
        assert (await (await endpoint.connect("web/web-1")).read_response()).status == 503
        assert [(await peer.request()).status for peer in peers] == [200] * 2


def test_connections_are_bounded_by_the_open_files_that_the_process_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some are left for everything else."""
    unlimited = resource.RLIM_INFINITY
    for files, asked, expected in [(1024, 32_768, 876), (1024, 10, 10), (64, 10, 1), (unlimited, 32_768, 32_768)]:
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert connection_limit(asked, listening=20) == expected


async def test_listeners_leave_fewer_connections_for_guests(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is spared for the store is not taken by them."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (SPARE_FILES + 4, SPARE_FILES + 4))
    async with run_endpoint() as endpoint:
        peers = [await endpoint.connect("web/web-0"), await endpoint.connect("web/web-1")]
        assert [(await peer.request()).status for peer in peers] == [200] * 2
        assert (await (await endpoint.connect("web/web-0")).read_response()).status == 503
        endpoint.server.stop_listening("127.0.0.1", endpoint.ports["web/web-1"])
        await until(lambda: endpoint.counters.connections == 2)
        assert (await (await endpoint.connect("web/web-0")).request()).status == 200


# Time.


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


# Peers that do not read.


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


# The limits themselves.


@pytest.mark.parametrize("wrong", [{"header_bytes": 0}, {"requests_per_second": 0}, {"idle_timeout": timedelta(0)}])
def test_limits_of_nothing_are_refused(wrong: dict[str, object]) -> None:
    """They would serve nobody."""
    with pytest.raises(Invalid, match=next(iter(wrong))):
        Limits(**wrong)  # type: ignore[arg-type] # the point
