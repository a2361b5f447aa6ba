"""The first request switches Scheduled Events on for its scope (PROTOCOL §6)."""

import asyncio
from datetime import timedelta

import pytest

from forewarn.core.event import EventType
from forewarn.core.policy import PRODUCTION
from forewarn.guest.connection_state import ConnectionState
from tests.fleet.stage import FailingStore, ask, scope, until, vm
from tests.guest.house import GET, approval, request, serving

LONG = timedelta(hours=1)


async def test_first_answer_comes_after_the_scope_is_enabled() -> None:
    """And shows what waited for that."""
    async with serving(policy=PRODUCTION) as house:
        await house.fleet.schedule(ask(EventType.REBOOT, "web/web-0", notice=LONG))
        answer = await (await house.connect()).ask()
        assert house.fleet.replica.scope("web").enabled
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
    """Nothing else counts as a sign of life."""
    async with serving(policy=PRODUCTION) as house:
        await (await house.connect()).ask(raw)
        assert not house.fleet.replica.scope("web").enabled


async def test_approval_enables_too() -> None:
    """Any valid request to scheduledevents does."""
    async with serving(policy=PRODUCTION) as house:
        assert (await (await house.connect()).post(approval())).status == 200
        assert house.fleet.replica.scope("web").enabled


async def test_guest_is_answered_even_if_that_cannot_be_saved() -> None:
    """To read is always possible; the next request tries again."""
    store = FailingStore()
    async with serving(policy=PRODUCTION, store=store) as house:
        peer = await house.connect()
        store.full = True
        assert (await peer.ask()).status == 200
        assert not house.fleet.replica.scope("web").enabled
        store.full = False
        assert (await peer.ask()).status == 200
        assert house.fleet.replica.scope("web").enabled


async def test_every_request_counts_when_the_clock_is_moved_by_hand() -> None:
    """Even between two beats of the endpoint's heart, and on the fast way."""
    async with serving(policy=PRODUCTION) as house:
        peer = await house.connect()
        for _ in range(4):
            assert (await peer.ask()).status == 200
            await house.fleet.advance(timedelta(hours=23))
        assert house.fleet.replica.scope("web").enabled
        await house.fleet.advance(timedelta(hours=2))
        assert not house.fleet.replica.scope("web").enabled
        first, second = await peer.ask(), await peer.ask()
        assert first.headers["etag"] == second.headers["etag"] != '"e1.1.2020-07-01"'
        assert house.fleet.replica.scope("web").enabled


async def test_first_answers_of_a_scope_are_delayed() -> None:
    """All of them until the time is over; then none any more, and other scopes have their own time."""
    async with serving(
        scope("a", vm("a0"), vm("a1")), scope("b", vm("b0")), policy=PRODUCTION, enable_delay=timedelta(seconds=0.5)
    ) as house:
        first, second = await house.connect("a/a0"), await house.connect("a/a1")
        began = asyncio.get_running_loop().time()
        first.send(GET)
        await until(lambda: house.fleet.replica.scope("a").enabled)
        second.send(request("POST", body=approval()))
        await until(lambda: house.phases() == [ConnectionState.RESPONDING] * 2)
        assert [(await peer.answer()).status for peer in (first, second)] == [200, 200]
        assert asyncio.get_running_loop().time() - began >= 0.5
        assert house.server._state.enable_delay._enabling == {}
        house.server._state.enable_delay._delay = LONG.total_seconds()
        assert (await first.ask()).status == 200


async def test_delay_ends_with_the_server() -> None:
    """Nobody has to wait for it then."""
    async with serving(policy=PRODUCTION, enable_delay=LONG) as house:
        peer = await house.connect()
        peer.send(GET)
        await until(lambda: house.phases() == [ConnectionState.RESPONDING])
        closing = asyncio.create_task(house.server.aclose())
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        await closing


async def test_peer_that_resets_during_the_delay_is_forgotten() -> None:
    """Its connection does not stay. (One that closes may have closed its own side only, and is answered.)"""
    async with serving(policy=PRODUCTION, enable_delay=LONG) as house:
        peer = await house.connect()
        peer.send(GET)
        await until(lambda: house.phases() == [ConnectionState.RESPONDING])
        peer.reset()
        await until(lambda: house.counters.connections == 0)
