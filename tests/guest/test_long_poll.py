"""Long polls (PROTOCOL §9)."""

import asyncio
from datetime import timedelta

import pytest

from forewarn.core.event import EventType
from forewarn.core.policy import PRODUCTION
from forewarn.guest.limits import Limits
from forewarn.guest.long_poll import WAKE_BATCH
from forewarn.guest.server_state import RECORD_LONG_POLLS_EVERY
from tests.core.sample_scopes import schedule_request, scope, vm
from tests.fleet.fleets import until
from tests.guest.running_endpoint import EVENTS, GET, Peer, RunningEndpoint, request, run_endpoint

CURRENT = '"e1.1.2020-07-01"'


def long_poll_request(seconds: int = 60, etag: str = CURRENT) -> bytes:
    return request("GET", f"{EVENTS}&wait={seconds}", ("If-None-Match", etag))


async def start_long_poll(endpoint: RunningEndpoint, vm_: str = "web/web-0", seconds: int = 60) -> Peer:
    """Connect and start a long poll."""
    peer = await endpoint.connect(vm_)
    before = endpoint.counters.long_polls
    peer.send(long_poll_request(seconds))
    await until(lambda: endpoint.counters.long_polls == before + 1)
    return peer


async def test_long_poll_ends_when_the_document_changes() -> None:
    """All VMs of the scope, and no others, get a 200 with the new document."""
    async with run_endpoint(scope("a", vm("a0"), vm("a1")), scope("b", vm("b0"))) as endpoint:
        peers = [await start_long_poll(endpoint, name) for name in ("a/a0", "a/a1", "b/b0")]
        await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "a/a0"))
        for peer in peers[:2]:
            answer = await peer.read_response()
            assert (answer.status, answer.headers["etag"]) == (200, '"e1.2.2020-07-01"')
            assert answer.document["Events"][0]["Resources"] == ["a0"]
        assert endpoint.counters.long_polls == 1
        assert endpoint.server._state.long_polls._polls.keys() == {find_peer(endpoint, "b0")}


async def test_long_poll_with_star_ends_when_the_document_changes() -> None:
    """`*` stands for the document at the time of the request."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        peer.send(long_poll_request(etag="*"))
        await until(lambda: endpoint.counters.long_polls == 1)
        await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        assert (await peer.read_response()).status == 200


def find_peer(endpoint: RunningEndpoint, name: str) -> object:
    peers = [connection._session.peer for connection in endpoint.connections()]
    return next(visitor for visitor in peers if visitor.counter.key[1] == name)


async def test_long_poll_times_out_with_304() -> None:
    """In real time; one second is the shortest wait."""
    async with run_endpoint() as endpoint:
        peer = await start_long_poll(endpoint, seconds=1)
        answer = await peer.read_response()
        assert (answer.status, answer.headers["etag"], answer.headers["forewarn-wait"]) == (304, CURRENT, "60")
        assert endpoint.counters.long_polls == 0
        assert (await peer.request()).status == 200


@pytest.mark.parametrize("headers", [(), (("If-None-Match", '"other"'),)], ids=["no ETag", "another ETag"])
async def test_long_poll_without_the_current_etag_returns_immediately(headers: tuple[tuple[str, str], ...]) -> None:
    """The caller does not have the current document."""
    async with run_endpoint() as endpoint:
        answer = await (await endpoint.connect()).get(*headers, target=f"{EVENTS}&wait=60")
        assert (answer.status, answer.headers["etag"]) == (200, CURRENT)


@pytest.mark.parametrize("wait", ["0", "61", "-1", "1.5", "", "x", "5&wait=5"])
async def test_invalid_wait_is_400(wait: str) -> None:
    """Also without an ETag."""
    async with run_endpoint() as endpoint:
        assert (await (await endpoint.connect()).get(target=f"{EVENTS}&wait={wait}")).status == 400


async def test_fifth_long_poll_of_a_vm_is_304_immediately() -> None:
    """Each VM may have four long polls over all its connections."""
    async with run_endpoint() as endpoint:
        peers = [await start_long_poll(endpoint) for _ in range(4)]
        fifth = await endpoint.connect()
        assert (await fifth.request(long_poll_request())).status == 304
        await start_long_poll(endpoint, "web/web-1")
        await peers[0].close()
        await until(lambda: endpoint.counters.long_polls == 4)
        fifth.send(long_poll_request())
        await until(lambda: endpoint.counters.long_polls == 5)


async def test_disconnected_peer_frees_its_long_poll() -> None:
    """By closing or by a reset."""
    async with run_endpoint() as endpoint:
        for _ in range(3):
            peers = [await start_long_poll(endpoint) for _ in range(4)]
            for peer in peers[:2]:
                peer.writer.transport.abort()
            for peer in peers[2:]:
                await peer.close()
            await until(lambda: endpoint.counters.long_polls == 0)
        await until(lambda: endpoint.counters.connections == 0)
        view = endpoint.fleet.replica.view("web")
        assert not view._waiters


async def test_half_closed_peer_gets_304() -> None:
    """It may have disconnected and must not keep a long poll; if it has not, 304 is correct too."""
    async with run_endpoint() as endpoint:
        peer = await start_long_poll(endpoint)
        peer.writer.write_eof()
        assert (await peer.read_response()).status == 304
        assert await peer.is_closed()


async def test_requests_pipelined_behind_a_long_poll_are_answered_in_order() -> None:
    """Only a limited amount of them is read."""
    limits = Limits(requests_per_second=None, pipelined_bytes=4096)
    async with run_endpoint(limits=limits) as endpoint:
        peer = await endpoint.connect()
        count = 3000
        await until(lambda: endpoint.counters.connections == 1)
        peer.send(long_poll_request() + GET * count + request("GET", "/nowhere"))
        (connection,) = endpoint.connections()
        await until(lambda: not connection._transport.is_reading())
        assert endpoint.counters.responses[200] == 0
        assert len(connection._backlog) <= 4096 + 256 * 1024
        await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        answers = [await peer.read_response() for _ in range(count + 2)]
        assert [answer.status for answer in answers] == [*[200] * (count + 1), 404]
        assert {answer.document["DocumentIncarnation"] for answer in answers[:-1]} == {2}
        assert (await peer.request()).status == 200


async def test_long_poll_has_no_idle_timeout() -> None:
    """No timeout of the connection ends it early."""
    async with run_endpoint() as endpoint:
        peer = await start_long_poll(endpoint)
        endpoint.tick_seconds(1000)
        assert endpoint.counters.long_polls == 1
        await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        assert (await peer.read_response()).status == 200


async def test_long_poll_counts_once_for_the_rate_limit() -> None:
    """It is not counted again at its response."""
    async with run_endpoint(limits=Limits(requests_per_second=2)) as endpoint:
        peer = await start_long_poll(endpoint)
        await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        assert (await peer.read_response()).status == 200
        assert (await peer.request()).status == 200
        assert (await peer.request()).status == 429


async def test_long_poll_keeps_the_scope_enabled() -> None:
    """A VM that only uses long polls is active: its scope is not disabled."""
    async with run_endpoint(policy=PRODUCTION) as endpoint:
        peer = await endpoint.connect()
        await peer.request()
        peer.send(long_poll_request())
        await until(lambda: endpoint.counters.long_polls == 1)
        for _ in range(5):
            await endpoint.fleet.time.advance(timedelta(hours=23))
            endpoint.tick_seconds(RECORD_LONG_POLLS_EVERY)
        assert endpoint.fleet.replica.scope("web").enabled
        assert endpoint.counters.long_polls == 1


async def test_vm_removed_during_a_long_poll_is_403() -> None:
    """It must not see changes of its former scope."""
    async with run_endpoint() as endpoint:
        peer = await start_long_poll(endpoint, "web/web-1")
        await endpoint.change_roster("web", [vm("web-0")])
        await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        assert (await peer.read_response()).status == 403
        assert endpoint.counters.long_polls == 0


async def test_hundreds_of_long_polls_are_woken_in_batches() -> None:
    """So the command that changed the document is not delayed."""
    async with run_endpoint(scope("web", *(vm(f"v{n}", ip=f"127.0.5.{n}") for n in range(1, 101)))) as endpoint:
        port = await endpoint.server.listen_by_address("default", "127.0.0.1", 0)
        peers = [await endpoint.connect_to(port, f"127.0.5.{n}") for n in range(1, 101) for _ in range(3)]
        for peer in peers:
            peer.send(long_poll_request())
        await until(lambda: endpoint.counters.long_polls == len(peers) > WAKE_BATCH)
        seen_by_the_fleet: list[int] = []
        endpoint.fleet.replica.view("web").wait_for_change(
            lambda: seen_by_the_fleet.append(endpoint.counters.long_polls)
        )
        await endpoint.fleet.events.schedule(schedule_request(EventType.FREEZE, "web/v1"))
        assert seen_by_the_fleet == [len(peers)]
        answers = await asyncio.gather(*(peer.read_response() for peer in peers))
        assert {answer.headers["etag"] for answer in answers} == {'"e1.2.2020-07-01"'}
        assert endpoint.counters.long_polls == 0
