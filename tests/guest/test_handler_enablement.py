"""The first request enables Scheduled Events for its scope (PROTOCOL §6)."""

import asyncio
from datetime import timedelta

import pytest

from forewarn.core.errors import NotAnnounced
from forewarn.core.event import EventType
from forewarn.core.policy import PRODUCTION
from forewarn.guest.connection_state import ConnectionState
from tests.core.sample_scopes import schedule_request, scope, vm
from tests.fleet.fleets import FailingStore, until
from tests.guest.running_endpoint import GET, approval, request, run_endpoint

LONG = timedelta(hours=1)
DELAY = 3.0
"""Seconds of real time in which even a busy machine reads two requests."""

PATH = "/metadata/scheduledevents?api-version="


async def test_first_response_follows_after_the_scope_is_enabled() -> None:
    """It shows the events that waited for that."""
    async with run_endpoint(policy=PRODUCTION) as endpoint:
        await endpoint.fleet.events.schedule(
            schedule_request(EventType.REBOOT, "web/web-0", notice=LONG, unannounced=True)
        )
        answer = await (await endpoint.connect()).request()
        assert endpoint.fleet.replica.scope("web").enabled
        assert len(answer.document["Events"]) == 1


@pytest.mark.parametrize(
    "raw",
    [
        request("GET", "/metadata/versions"),
        request("GET", "/metadata/instance?api-version=2021-02-01"),
        request(metadata=False),
        request("POST", body=b"[]"),
        request("PUT", body=b""),
    ],
    ids=["versions", "instance", "no header", "bad body", "bad method"],
)
async def test_only_valid_requests_for_events_enable(raw: bytes) -> None:
    """Other requests do not count as activity of the VM."""
    async with run_endpoint(policy=PRODUCTION) as endpoint:
        await (await endpoint.connect()).request(raw)
        assert not endpoint.fleet.replica.scope("web").enabled


async def test_approval_enables_too() -> None:
    """Any valid request to scheduledevents enables the scope."""
    async with run_endpoint(policy=PRODUCTION) as endpoint:
        assert (await (await endpoint.connect()).post(approval())).status == 200
        assert endpoint.fleet.replica.scope("web").enabled


async def test_guest_gets_a_response_even_if_enabling_cannot_be_saved() -> None:
    """Reading is always possible; the next request tries again to save."""
    store = FailingStore()
    async with run_endpoint(policy=PRODUCTION, store=store) as endpoint:
        peer = await endpoint.connect()
        store.full = True
        assert (await peer.request()).status == 200
        assert not endpoint.fleet.replica.scope("web").enabled
        store.full = False
        assert (await peer.request()).status == 200
        assert endpoint.fleet.replica.scope("web").enabled


async def test_every_request_is_recorded_with_a_manual_clock() -> None:
    """Also between two ticks of the endpoint, and for cached requests."""
    async with run_endpoint(policy=PRODUCTION) as endpoint:
        peer = await endpoint.connect()
        for _ in range(4):
            assert (await peer.request()).status == 200
            await endpoint.fleet.time.advance(timedelta(hours=23))
        assert endpoint.fleet.replica.scope("web").enabled
        await endpoint.fleet.time.advance(timedelta(hours=2))
        assert not endpoint.fleet.replica.scope("web").enabled
        first, second = await peer.request(), await peer.request()
        assert first.headers["etag"] == second.headers["etag"] != '"e1.1.2020-07-01"'
        assert endpoint.fleet.replica.scope("web").enabled


async def test_first_responses_of_a_scope_are_delayed() -> None:
    """All requests are delayed until the time is up, and none afterwards; every scope has its own delay."""
    async with run_endpoint(
        scope("a", vm("a0"), vm("a1")), scope("b", vm("b0")), policy=PRODUCTION, enable_delay=timedelta(seconds=DELAY)
    ) as endpoint:
        first, second = await endpoint.connect("a/a0"), await endpoint.connect("a/a1")
        began = asyncio.get_running_loop().time()
        first.send(GET)
        await until(lambda: endpoint.fleet.replica.scope("a").enabled)
        second.send(request("POST", body=approval()))
        await until(lambda: endpoint.connection_states() == [ConnectionState.RESPONDING] * 2)
        assert [(await peer.read_response()).status for peer in (first, second)] == [200, 200]
        assert asyncio.get_running_loop().time() - began >= DELAY
        assert endpoint.server._state.enable_delay._enabling == {}
        endpoint.server._state.enable_delay._delay = LONG.total_seconds()
        assert (await first.request()).status == 200


async def test_delay_ends_with_the_server() -> None:
    """The shutdown does not wait for the delay."""
    async with run_endpoint(policy=PRODUCTION, enable_delay=LONG) as endpoint:
        peer = await endpoint.connect()
        peer.send(GET)
        await until(lambda: endpoint.connection_states() == [ConnectionState.RESPONDING])
        closing = asyncio.create_task(endpoint.server.aclose())
        answer = await peer.read_response()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        await closing


async def test_peer_that_resets_during_the_delay_is_removed() -> None:
    """Its connection is dropped. (A peer that closes may have half-closed the connection, and is answered.)"""
    async with run_endpoint(policy=PRODUCTION, enable_delay=LONG) as endpoint:
        peer = await endpoint.connect()
        peer.send(GET)
        await until(lambda: endpoint.connection_states() == [ConnectionState.RESPONDING])
        peer.reset()
        await until(lambda: endpoint.counters.connections == 0)


async def test_version_of_the_pollers_tells_whether_they_will_hear_of_an_event() -> None:
    """Only the newest version counts, because one VM that sees the event is enough."""
    terminate = schedule_request(EventType.TERMINATE, "web/web-0")
    async with run_endpoint(policy=PRODUCTION) as endpoint:
        guest = await endpoint.connect()
        view = endpoint.fleet.replica.view("web")
        await guest.get(target=f"{PATH}2017-08-01")
        with pytest.raises(NotAnnounced, match="poll with api-version 2017-08-01, which has no Terminate"):
            await endpoint.fleet.events.schedule(terminate)
        await guest.get(target=f"{PATH}2020-07-01")
        await guest.get(target=f"{PATH}2017-03-01")
        assert view.poll_version == "2020-07-01"
        assert await endpoint.fleet.events.schedule(terminate)


async def test_last_poll_is_recorded_per_vm_also_for_cached_requests() -> None:
    async with run_endpoint() as endpoint:
        guest = await endpoint.connect()
        view = endpoint.fleet.replica.view("web")
        assert view.polled_at == {}
        await guest.get()
        first = dict(view.polled_at)
        assert first == {"web-0": endpoint.fleet.clock.now()}
        await endpoint.fleet.time.advance(timedelta(minutes=1), who="test")
        await guest.get()
        assert view.polled_at == {"web-0": first["web-0"] + timedelta(minutes=1)}
