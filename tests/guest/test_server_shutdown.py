"""Shutdown: pending requests are answered, then everything is closed."""

import asyncio
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from forewarn.core.event import EventType
from forewarn.core.policy import PRODUCTION
from forewarn.guest.connection_state import ConnectionState
from tests.core.sample_scopes import schedule_request
from tests.fleet.fleets import until
from tests.guest.running_endpoint import EVENTS, GET, UNLIMITED, approval, request, run_endpoint
from tests.guest.test_handler_approval import SlowStore
from tests.guest.test_long_poll import CURRENT, long_poll_request


async def test_shutdown_answers_long_polls_with_304_and_closes() -> None:
    """PROTOCOL §9."""
    async with run_endpoint() as endpoint:
        peers = [await endpoint.connect(name) for name in ("web/web-0", "web/web-1")]
        for peer in peers:
            peer.send(long_poll_request())
        await until(lambda: endpoint.counters.long_polls == 2)
        await endpoint.server.aclose()
        for peer in peers:
            answer = await peer.read_response()
            assert (answer.status, answer.headers["connection"], answer.headers["etag"]) == (304, "close", CURRENT)
            assert await peer.is_closed()


async def test_shutdown_answers_a_delayed_long_poll_with_304_and_closes() -> None:
    """It waited for its scope to be enabled; the shutdown ends that delay."""
    async with run_endpoint(policy=PRODUCTION, enable_delay=timedelta(hours=1)) as endpoint:
        peer = await endpoint.connect()
        peer.send(long_poll_request())
        await until(lambda: endpoint.connection_states() == [ConnectionState.RESPONDING])
        closing = asyncio.create_task(endpoint.server.aclose())
        answer = await peer.read_response()
        assert (answer.status, answer.headers["connection"]) == (304, "close")
        await closing


async def test_shutdown_closes_idle_and_incomplete_requests() -> None:
    """They have no complete request to answer."""
    async with run_endpoint() as endpoint:
        idle, half = await endpoint.connect(), await endpoint.connect()
        await idle.request()
        half.send(GET[:20])
        await until(lambda: ConnectionState.HEAD in endpoint.connection_states())
        await endpoint.server.aclose()
        assert await idle.is_closed()
        assert await half.is_closed()


async def test_shutdown_finishes_a_pending_approval() -> None:
    """Its 200 has `Connection: close`; requests pipelined behind it are not answered."""
    store = SlowStore()
    async with run_endpoint(store=store) as endpoint:
        ((_, event),) = await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        peer = await endpoint.connect()
        await peer.request()
        store.may_save.clear()
        peer.send(request("POST", body=approval(event)) + GET)
        await until(lambda: endpoint.connection_states() == [ConnectionState.RESPONDING])
        closing = asyncio.create_task(endpoint.server.aclose())
        await asyncio.sleep(0)
        store.may_save.set()
        await closing
        answer = await peer.read_response()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await peer.is_closed()


async def test_shutdown_refuses_new_connections(tmp_path: Path) -> None:
    """On all listeners."""
    async with run_endpoint() as endpoint:
        await endpoint.connect()
        port = await endpoint.server.listen_by_address("default", "127.0.0.1", 0)
        await endpoint.server.listen_on_unix_socket("web/web-0", tmp_path / "s")
        await endpoint.server.aclose()
        for known in (port, endpoint.ports["web/web-0"]):
            with pytest.raises(OSError, match=r"[Cc]onnect"):
                await asyncio.open_connection("127.0.0.1", known)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_unix_connection(str(tmp_path / "s"))


async def test_shutdown_aborts_slow_responses() -> None:
    """A response that never completes does not block the shutdown."""
    store = SlowStore()
    limits = msgspec.structs.replace(UNLIMITED, shutdown_timeout=timedelta(seconds=0.1))
    async with run_endpoint(store=store, limits=limits) as endpoint:
        peer = await endpoint.connect()
        await peer.request()
        ((_, event),) = await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        store.may_save.clear()
        peer.send(request("POST", body=approval(event)))
        await until(lambda: endpoint.connection_states() == [ConnectionState.RESPONDING])
        await endpoint.server.aclose()
        assert endpoint.counters.connections == 0
        store.may_save.set()


async def test_closing_twice_and_without_ever_listening_is_harmless() -> None:
    """Clean-up code need not know how far the start got."""
    async with run_endpoint() as endpoint:
        await endpoint.server.aclose()
        await endpoint.server.aclose()


async def test_stale_socket_file_is_replaced(tmp_path: Path) -> None:
    """A socket file left by a crash does not prevent the next start."""
    path = tmp_path / "guest.sock"
    async with run_endpoint() as endpoint:
        await endpoint.server.listen_on_unix_socket("web/web-0", path)
        stale = path.rename(tmp_path / "stale.sock")
    async with run_endpoint() as endpoint:
        await endpoint.server.listen_on_unix_socket("web/web-0", stale)
        assert (await (await endpoint.connect_unix(str(stale))).get(target=EVENTS)).status == 200
