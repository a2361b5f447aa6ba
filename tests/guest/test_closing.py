"""The end: what was asked is answered, then everything is closed."""

import asyncio
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from forewarn.core.event import EventType
from forewarn.core.policy import PRODUCTION
from forewarn.guest.connection_state import ConnectionState
from tests.fleet.stage import ask, until
from tests.guest.house import EVENTS, GET, UNLIMITED, approval, request, serving
from tests.guest.test_approving import SlowStore
from tests.guest.test_wait import CURRENT, held


async def test_held_requests_are_304_and_closed() -> None:
    """PROTOCOL §9."""
    async with serving() as house:
        peers = [await house.connect(name) for name in ("web/web-0", "web/web-1")]
        for peer in peers:
            peer.send(held())
        await until(lambda: house.counters.long_polls == 2)
        await house.server.aclose()
        for peer in peers:
            answer = await peer.answer()
            assert (answer.status, answer.headers["connection"], answer.headers["etag"]) == (304, "close", CURRENT)
            assert await peer.is_closed()


async def test_request_that_would_be_held_only_now_is_304_and_closed() -> None:
    """It has waited for its scope to be enabled; nobody waits for it any longer."""
    async with serving(policy=PRODUCTION, enable_delay=timedelta(hours=1)) as house:
        peer = await house.connect()
        peer.send(held())
        await until(lambda: house.phases() == [ConnectionState.RESPONDING])
        closing = asyncio.create_task(house.server.aclose())
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (304, "close")
        await closing


async def test_idle_and_half_sent_requests_are_closed() -> None:
    """There is nothing to finish."""
    async with serving() as house:
        idle, half = await house.connect(), await house.connect()
        await idle.ask()
        half.send(GET[:20])
        await until(lambda: ConnectionState.HEAD in house.phases())
        await house.server.aclose()
        assert await idle.is_closed()
        assert await half.is_closed()


async def test_approval_under_way_is_finished() -> None:
    """Its 200 says that it is the last; what was pipelined behind it is not answered."""
    store = SlowStore()
    async with serving(store=store) as house:
        ((_, event),) = await house.fleet.schedule(ask(EventType.REBOOT, "web/web-0"))
        peer = await house.connect()
        await peer.ask()
        store.may_save.clear()
        peer.send(request("POST", body=approval(event)) + GET)
        await until(lambda: house.phases() == [ConnectionState.RESPONDING])
        closing = asyncio.create_task(house.server.aclose())
        await asyncio.sleep(0)
        store.may_save.set()
        await closing
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await peer.is_closed()


async def test_nobody_is_let_in_any_more(tmp_path: Path) -> None:
    """On any listener."""
    async with serving() as house:
        await house.connect()
        port = await house.server.listen_by_address("default", "127.0.0.1", 0)
        await house.server.listen_on_unix_socket("web/web-0", tmp_path / "s")
        await house.server.aclose()
        for known in (port, house.ports["web/web-0"]):
            with pytest.raises(OSError, match=r"[Cc]onnect"):
                await asyncio.open_connection("127.0.0.1", known)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_unix_connection(str(tmp_path / "s"))


async def test_whoever_takes_too_long_is_cut_off() -> None:
    """An answer that never comes does not keep the service from ending."""
    store = SlowStore()
    limits = msgspec.structs.replace(UNLIMITED, shutdown_timeout=timedelta(seconds=0.1))
    async with serving(store=store, limits=limits) as house:
        peer = await house.connect()
        await peer.ask()
        ((_, event),) = await house.fleet.schedule(ask(EventType.REBOOT, "web/web-0"))
        store.may_save.clear()
        peer.send(request("POST", body=approval(event)))
        await until(lambda: house.phases() == [ConnectionState.RESPONDING])
        await house.server.aclose()
        assert house.counters.connections == 0
        store.may_save.set()


async def test_closing_twice_and_without_ever_listening_is_harmless() -> None:
    """Whoever cleans up need not know how far things were."""
    async with serving() as house:
        await house.server.aclose()
        await house.server.aclose()


async def test_stale_socket_file_is_taken_over(tmp_path: Path) -> None:
    """What a crash left behind does not keep the next start from listening."""
    path = tmp_path / "guest.sock"
    async with serving() as house:
        await house.server.listen_on_unix_socket("web/web-0", path)
        stale = path.rename(tmp_path / "stale.sock")
    async with serving() as house:
        await house.server.listen_on_unix_socket("web/web-0", stale)
        assert (await (await house.connect_unix(str(stale))).get(target=EVENTS)).status == 200
