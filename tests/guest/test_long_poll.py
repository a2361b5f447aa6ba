"""Held requests (PROTOCOL §9)."""

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
    """Connect and let a request be held."""
    peer = await endpoint.connect(vm_)
    before = endpoint.counters.long_polls
    peer.send(long_poll_request(seconds))
    await until(lambda: endpoint.counters.long_polls == before + 1)
    return peer


async def test_answer_comes_when_the_document_changes() -> None:
    """As a 200 with the new document, to every VM of the scope and to no other."""
    async with run_endpoint(scope("a", vm("a0"), vm("a1")), scope("b", vm("b0"))) as endpoint:
        peers = [await start_long_poll(endpoint, name) for name in ("a/a0", "a/a1", "b/b0")]
        await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "a/a0"))
        for peer in peers[:2]:
            answer = await peer.read_response()
            assert (answer.status, answer.headers["etag"]) == (200, '"e1.2.2020-07-01"')
            assert answer.document["Events"][0]["Resources"] == ["a0"]
        assert endpoint.counters.long_polls == 1
        assert endpoint.server._state.long_polls._polls.keys() == {find_peer(endpoint, "b0")}


async def test_whoever_has_any_document_is_answered_when_there_is_another() -> None:
    """`*` is the document as it was when the request came."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        peer.send(long_poll_request(etag="*"))
        await until(lambda: endpoint.counters.long_polls == 1)
        await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        assert (await peer.read_response()).status == 200


def find_peer(endpoint: RunningEndpoint, name: str) -> object:
    peers = [connection._session.peer for connection in endpoint.connections()]
    return next(visitor for visitor in peers if visitor.counter.key[1] == name)


async def test_answer_is_304_when_the_time_is_over() -> None:
    """Real time: one second is the shortest there is."""
    async with run_endpoint() as endpoint:
        peer = await start_long_poll(endpoint, seconds=1)
        answer = await peer.read_response()
        assert (answer.status, answer.headers["etag"], answer.headers["forewarn-wait"]) == (304, CURRENT, "60")
        assert endpoint.counters.long_polls == 0
        assert (await peer.request()).status == 200


@pytest.mark.parametrize("headers", [(), (("If-None-Match", '"other"'),)], ids=["no ETag", "another ETag"])
async def test_answer_comes_at_once_to_whoever_does_not_have_the_document(headers: tuple[tuple[str, str], ...]) -> None:
    """There is something new to say already."""
    async with run_endpoint() as endpoint:
        answer = await (await endpoint.connect()).get(*headers, target=f"{EVENTS}&wait=60")
        assert (answer.status, answer.headers["etag"]) == (200, CURRENT)


@pytest.mark.parametrize("wait", ["0", "61", "-1", "1.5", "", "x", "5&wait=5"])
async def test_wait_that_is_no_number_from_1_to_60_is_400(wait: str) -> None:
    """Even without an ETag."""
    async with run_endpoint() as endpoint:
        assert (await (await endpoint.connect()).get(target=f"{EVENTS}&wait={wait}")).status == 400


async def test_fifth_held_request_of_a_vm_is_304_at_once() -> None:
    """Four are held per VM, over all its connections; another VM has four of its own."""
    async with run_endpoint() as endpoint:
        peers = [await start_long_poll(endpoint) for _ in range(4)]
        fifth = await endpoint.connect()
        assert (await fifth.request(long_poll_request())).status == 304
        await start_long_poll(endpoint, "web/web-1")
        await peers[0].close()
        await until(lambda: endpoint.counters.long_polls == 4)
        fifth.send(long_poll_request())
        await until(lambda: endpoint.counters.long_polls == 5)


async def test_peer_that_goes_away_gives_its_slot_back() -> None:
    """Whether it closes or aborts."""
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


async def test_half_closed_peer_is_told_that_nothing_has_changed() -> None:
    """It may have gone away altogether, and must not keep a slot; if it has not, 304 is a right answer."""
    async with run_endpoint() as endpoint:
        peer = await start_long_poll(endpoint)
        peer.writer.write_eof()
        assert (await peer.read_response()).status == 304
        assert await peer.is_closed()


async def test_requests_behind_a_held_one_are_answered_after_it_in_order() -> None:
    """However many there are, only so much is read."""
    limits = Limits(requests_per_second=None, pipelined_bytes=4096)
    async with run_endpoint(limits=limits) as endpoint:
        peer = await endpoint.connect()
        count = 3000
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


async def test_held_request_is_never_idle() -> None:
    """No time-out of the connection ends it early."""
    async with run_endpoint() as endpoint:
        peer = await start_long_poll(endpoint)
        endpoint.tick_seconds(1000)
        assert endpoint.counters.long_polls == 1
        await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        assert (await peer.read_response()).status == 200


async def test_held_request_counts_once_for_the_rate() -> None:
    """Not again when it is answered."""
    async with run_endpoint(limits=Limits(requests_per_second=2)) as endpoint:
        peer = await start_long_poll(endpoint)
        await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        assert (await peer.read_response()).status == 200
        assert (await peer.request()).status == 200
        assert (await peer.request()).status == 429


async def test_held_request_counts_continuously_for_enablement() -> None:
    """A VM that only ever waits is there: its scope is not switched off."""
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


async def test_vm_that_leaves_while_held_is_refused_and_learns_nothing() -> None:
    """Who it was is gone; what its scope does now is no longer its business."""
    async with run_endpoint() as endpoint:
        peer = await start_long_poll(endpoint, "web/web-1")
        await endpoint.change_roster("web", [vm("web-0")])
        await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        assert (await peer.read_response()).status == 403
        assert endpoint.counters.long_polls == 0


async def test_hundreds_of_held_requests_are_answered_in_turns() -> None:
    """A change wakes them in batches, and whoever made it is not kept waiting for them."""
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
