"""Robustness: garbage, mutated requests, half-open connections and internal errors. The server keeps running."""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress

import msgspec
import pytest

from forewarn.core.event import EventType, State
from forewarn.guest.connection_state import ConnectionState
from forewarn.wire.error_responses import REASON_PHRASES
from tests.core.sample_scopes import schedule_request
from tests.fleet.fleets import until
from tests.guest.running_endpoint import (
    EVENTS,
    GET,
    UNLIMITED,
    approval,
    is_well,
    request,
    run_endpoint,
)
from tests.guest.test_handler_approval import SlowStore
from tests.guest.test_parser import EVERY


def mutated(chance: random.Random) -> bytes:
    """Return one or more valid requests with random damage."""
    samples = [GET, request("POST", body=approval()), *(raw for raw, _ in EVERY.values())]
    raw = bytearray(b"".join(chance.choice(samples) for _ in range(chance.randint(1, 4))))
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(raw))
        raw[at : at + chance.randint(0, 4)] = chance.randbytes(chance.randint(0, 4))
        if not raw:
            break
    return bytes(raw)


def garbage(chance: random.Random) -> bytes:
    return chance.randbytes(chance.randint(1, 2000))


@pytest.mark.parametrize("make", [garbage, mutated])
@pytest.mark.parametrize("seed", range(4))
async def test_garbage_never_breaks_the_server(make: Callable[[random.Random], bytes], seed: int) -> None:
    """Every response is HTTP with an expected status, never 500; the seed is in the test's name."""
    chance = random.Random(seed)
    async with run_endpoint() as endpoint:
        for _ in range(60):
            peer = await endpoint.connect()
            raw = make(chance)
            while raw and not peer.writer.is_closing():
                size = chance.randint(1, len(raw))
                peer.send(raw[:size])
                raw = raw[size:]
                await asyncio.sleep(0)
            if not peer.writer.is_closing():
                with suppress(OSError):
                    peer.writer.write_eof()
            answers = await peer.read_until_close()
            assert answers == b"" or answers.startswith(b"HTTP/1.1 ")
        assert endpoint.counters.responses[500] == endpoint.counters.failures == 0
        assert set(endpoint.counters.responses) == set(REASON_PHRASES)
        assert await is_well(endpoint)


async def test_half_open_connections_block_others_only_until_they_time_out(open_files: int) -> None:
    """More than a thousand connections of a malicious VM that send nothing, or incomplete headers."""
    most = min(1500, (open_files - 300) // 2)
    limits = msgspec.structs.replace(UNLIMITED, connections_per_vm=most)
    async with run_endpoint(limits=limits) as endpoint:
        await endpoint.connect()
        port = endpoint.ports["web/web-0"]
        peers = [await endpoint.connect_to(port) for _ in range(most + 100)]
        for peer in peers[: most - 10 : 2]:
            peer.send(b"GET /meta")
        await until(lambda: endpoint.counters.connections == most)
        await until(lambda: endpoint.connection_states().count(ConnectionState.HEAD) == len(peers[: most - 10 : 2]))
        assert await is_well(endpoint)
        endpoint.tick_seconds(11)
        await until(lambda: ConnectionState.HEAD not in endpoint.connection_states())
        endpoint.tick_seconds(3)
        await until(lambda: endpoint.counters.connections <= most // 2 + 10)
        endpoint.tick_seconds(121)
        await until(lambda: endpoint.counters.connections == 0)
        assert await is_well(endpoint)


async def test_requests_are_answered_if_the_fleet_stops_first() -> None:
    """An abandoned approval is 500, never 503: it may have had an effect, and here it has."""
    store = SlowStore()
    async with run_endpoint(store=store) as endpoint:
        ((_, event),) = await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        peer = await endpoint.connect()
        await peer.request()
        store.may_save.clear()
        peer.send(request("POST", body=approval(event)))
        await until(lambda: endpoint.connection_states() == [ConnectionState.RESPONDING])
        (connection,) = endpoint.connections()
        assert connection._pending is not None
        connection._pending.cancel()
        answer = await peer.read_response()
        assert (answer.status, answer.headers["connection"]) == (500, "close")
        assert b"no effect" not in answer.body
        assert endpoint.counters.failures == 1
        store.may_save.set()
        again = await endpoint.connect()
        await until(lambda: endpoint.fleet.replica.scope("web").events[0].state is State.STARTED)
        assert (await again.get(target=EVENTS)).document["Events"][0]["EventStatus"] == "Started"
