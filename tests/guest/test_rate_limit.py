"""The rate limit: requests per second of a VM, and refusals per second of an unknown caller."""

import pytest

from forewarn.guest.connection_state import ConnectionState
from forewarn.guest.limits import Limits
from forewarn.wire.error_responses import ErrorReason
from tests.fleet.fleets import until
from tests.guest.running_endpoint import EVENTS, GET, approval, request, run_endpoint


async def test_sixth_request_within_a_second_is_429() -> None:
    """PROTOCOL §5: a text body and Retry-After; the connection stays open."""
    async with run_endpoint(limits=Limits()) as endpoint:
        peer = await endpoint.connect()
        assert [(await peer.request()).status for _ in range(5)] == [200] * 5
        answer = await peer.request()
        assert (answer.status, answer.body, answer.headers["retry-after"]) == (429, b"Too Many Requests", "1")
        assert answer.headers["content-type"].startswith("text/plain")
        endpoint.tick_seconds(1)
        assert [(await peer.request()).status for _ in range(6)] == [*[200] * 5, 429]
        assert endpoint.counters.refusals[ErrorReason.RATE] == 2


async def test_rate_is_counted_per_vm_over_all_its_connections() -> None:
    """Reconnecting does not reset the counter, and VMs do not affect each other."""
    async with run_endpoint(limits=Limits()) as endpoint:
        for _ in range(5):
            peer = await endpoint.connect("web/web-0")
            assert (await peer.request()).status == 200
            await peer.close()
        await until(lambda: endpoint.counters.connections == 0)
        assert (await (await endpoint.connect("web/web-0")).request()).status == 429
        assert (await (await endpoint.connect("web/web-1")).request()).status == 200


async def test_every_request_counts_and_rate_limit_comes_before_routing() -> None:
    """PROTOCOL §5, the order of refusals. Pipelined requests count too."""
    async with run_endpoint(limits=Limits()) as endpoint:
        peer = await endpoint.connect()
        wrong = [request("GET", "/nowhere"), request("PUT"), request(metadata=False), request("POST", body=b"[]")]
        peer.send(b"".join(wrong) + GET + request("GET", "/nowhere") + request("POST", body=approval()))
        statuses = [(await peer.read_response()).status for _ in range(7)]
        assert statuses == [404, 405, 400, 400, 200, 429, 429]


@pytest.mark.parametrize("caller", ["a VM", "a stranger"])
async def test_caller_over_the_refusal_limit_is_not_read_until_the_next_second(caller: str) -> None:
    """Over all its connections, 50 requests are refused; the others wait, and other callers are not delayed."""
    async with run_endpoint(limits=Limits(pipelined_bytes=4096)) as endpoint:
        port = await endpoint.server.listen_by_address("default", "127.0.0.1", 0)
        endpoint.stop_ticks()
        source = "127.0.0.1" if caller == "a VM" else "127.0.0.99"
        first, second = await endpoint.connect_to(port, source), await endpoint.connect_to(port, source)
        count = 5000
        first.send(GET * count)
        await until(lambda: endpoint.connection_states().count(ConnectionState.THROTTLED) == 1)
        second.send(GET)
        await until(lambda: endpoint.connection_states() == [ConnectionState.THROTTLED] * 2)
        admitted, refused = (5, 429) if caller == "a VM" else (0, 403)
        statuses = [(await first.read_response()).status for _ in range(admitted + 50)]
        assert statuses == [*[200] * admitted, *[refused] * 50]
        assert not all(connection._transport.is_reading() for connection in endpoint.connections())
        assert (await (await endpoint.connect("web/web-1")).request()).status == 200
        endpoint.tick_seconds(1)
        assert (await first.read_response()).status == (200 if caller == "a VM" else refused)
        assert ConnectionState.THROTTLED in endpoint.connection_states()
        assert endpoint.counters.responses[refused] == 100


UNREADABLE = {
    "too large": (request("POST", EVENTS, ("Content-Length", "99999999")), 413),
    "unknown expectation": (request("POST", EVENTS, ("Expect", "a miracle"), ("Content-Length", "2")), 417),
    "no HTTP": (b"nonsense\r\n\r\n", 400),
}


@pytest.mark.parametrize(("raw", "status"), UNREADABLE.values(), ids=UNREADABLE)
async def test_identity_and_rate_limit_come_before_parse_errors(raw: bytes, status: int) -> None:
    """An unknown caller gets 403 and is counted as such; a VM over its rate limit gets 429."""
    limits = Limits(requests_per_second=2, refusals_per_second=3)
    async with run_endpoint(limits=limits) as endpoint:
        port = await endpoint.server.listen_by_address("default", "127.0.0.1", 0)
        endpoint.stop_ticks()

        async def refusals(source: str, times: int) -> list[int]:
            peers = [await endpoint.connect_to(port, source) for _ in range(times)]
            return [(await peer.request(raw)).status for peer in peers]

        assert await refusals("127.0.0.1", 4) == [status, status, 429, 429]
        assert await refusals("127.0.0.9", 3) == [403] * 3
        restrained = await endpoint.connect_to(port, "127.0.0.9")
        restrained.send(raw)
        await until(lambda: ConnectionState.THROTTLED in endpoint.connection_states())
        endpoint.tick_seconds(1)
        assert (await restrained.read_response()).status == 403


async def test_unknown_caller_with_a_large_body_is_403() -> None:
    async with run_endpoint() as endpoint:
        port = await endpoint.server.listen_by_address("default", "127.0.0.1", 0)
        raw = request("POST", EVENTS, ("Transfer-Encoding", "chunked")) + b"11000\r\n" + bytes(0x11000)
        assert (await (await endpoint.connect_to(port, "127.0.0.1")).request(raw)).status == 413
        assert (await (await endpoint.connect_to(port, "127.0.0.9")).request(raw)).status == 403
        counted = {reason: count for reason, count in endpoint.counters.refusals.items() if count}
        assert counted == {ErrorReason.TOO_LARGE: 1, ErrorReason.UNKNOWN_CALLER: 1}


async def test_rate_counters_of_disconnected_callers_are_dropped() -> None:
    """Disconnected callers use no memory."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        await peer.request()
        await peer.close()
        await until(lambda: endpoint.counters.connections == 0)
        assert len(endpoint.server._state.rate_limiter._counters) == 1
        endpoint.tick_seconds(2)
        assert endpoint.server._state.rate_limiter._counters == {}
