"""The haproxy handler, against a real HAProxy."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from forewarn.agent.handlers.base import Done, Failed, Retry
from forewarn.agent.handlers.haproxy import HaproxyHandler
from forewarn.agent.settings import Address, HaproxySettings
from tests.agent.handlers.handler_contexts import PREPARE, RECOVER
from tests.support import haproxy as lab
from tests.support.haproxy import Haproxy, run_haproxy
from tests.support.processes import free_ports

pytestmark = pytest.mark.process

GUARD = 60
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def web_port() -> Iterator[int]:
    """A port of a listener that never answers: enough for HAProxy's health checks."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def balancer(tmp_path: Path, web_port: int) -> Iterator[Haproxy]:
    (port,) = free_ports(1)
    with run_haproxy(tmp_path, port, {"web_0": web_port, "web_1": web_port}) as balancer:
        yield balancer


Make = Callable[..., HaproxyHandler]


@pytest.fixture
def make(balancer: Haproxy, tmp_path: Path) -> Make:
    """Create a handler, like a newly started agent."""

    def make(
        *servers: str, wait: timedelta = timedelta(seconds=GUARD), place: Path | Address | None = None
    ) -> HaproxyHandler:
        settings = HaproxySettings(name="drain", socket=place or balancer.socket, servers=servers, wait=wait)
        return HaproxyHandler(settings, tmp_path / "state")

    return make


async def test_server_is_drained_and_set_ready_again(make: Make, balancer: Haproxy) -> None:
    handler = make("web/web_0")
    assert await handler.prepare(PREPARE) == Done()
    assert (balancer.statuses("web_0"), balancer.statuses("web_1")) == (("DRAIN",), ("UP",))
    assert await handler.recover(RECOVER) == Done()
    assert balancer.statuses("web_0", "web_1") == ("UP", "UP")


async def test_both_calls_can_be_repeated(make: Make, balancer: Haproxy) -> None:
    for _ in range(2):
        assert await make("web/web_0").prepare(PREPARE) == Done()
        assert balancer.statuses("web_0") == ("DRAIN",)
    for _ in range(2):
        assert await make("web/web_0").recover(RECOVER) == Done()
        assert balancer.statuses("web_0") == ("UP",)


async def test_server_in_maintenance_stays_in_maintenance(make: Make, balancer: Haproxy) -> None:
    balancer.run_command("set server web/web_1 state maint")
    handler = make("web/web_0", "web/web_1")
    assert await handler.prepare(PREPARE) == Done()
    assert balancer.statuses("web_0", "web_1") == ("DRAIN", "MAINT")
    assert await handler.recover(RECOVER) == Done()
    assert balancer.statuses("web_0", "web_1") == ("UP", "MAINT")


@asynccontextmanager
async def slow_server(asked: asyncio.Event, release: asyncio.Event) -> AsyncIterator[int]:
    """A web server that answers when it is released."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await reader.readline():
                asked.set()
                await release.wait()
                writer.write(ANSWER)
                await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("is_patient", [True, False], ids=["until it ends", "at most wait"])
async def test_prepare_waits_for_open_requests(
    tmp_path: Path, is_patient: bool, caplog: pytest.LogCaptureFixture
) -> None:
    asked, release = asyncio.Event(), asyncio.Event()
    (port,) = free_ports(1)
    async with asyncio.timeout(GUARD), slow_server(asked, release) as slow:
        with run_haproxy(tmp_path, port, {"web_0": slow}) as balancer:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: web\r\n\r\n")
            await asked.wait()
            wait = timedelta(seconds=GUARD) if is_patient else timedelta(seconds=0.1)
            settings = HaproxySettings(name="drain", socket=balancer.socket, servers=("web/web_0",), wait=wait)
            draining = asyncio.create_task(HaproxyHandler(settings, tmp_path / "state").prepare(PREPARE))
            if is_patient:
                while balancer.statuses("web_0") != ("DRAIN",):  # noqa: ASYNC110  # HAProxy can only be polled
                    await asyncio.sleep(0.01)
                assert not draining.done()
                release.set()
            assert await draining == Done()
            assert ("sessions still open after 0.1s" in caplog.text) is not is_patient
            release.set()
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.close()


async def test_unknown_server_fails(make: Make, balancer: Haproxy) -> None:
    handler = make("web/web_0", "web/web_9")
    assert await handler.prepare(PREPARE) == Failed("HAProxy has no server web/web_9")
    assert balancer.statuses("web_0") == ("UP",), "nothing is changed if one server is unknown"
    assert await handler.check() == ["HAProxy has no server web/web_9"]


async def test_unknown_backend_fails(make: Make) -> None:
    assert await make("www/web_0").prepare(PREPARE) == Failed("HAProxy has no server www/web_0")


async def test_socket_without_admin_level_is_reported(
    tmp_path: Path, web_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab, "CONFIGURATION", lab.CONFIGURATION.replace("level admin", "level operator"))
    (port,) = free_ports(1)
    with run_haproxy(tmp_path, port, {"web_0": web_port}) as balancer:
        settings = HaproxySettings(name="drain", socket=balancer.socket, servers=("web/web_0",))
        handler = HaproxyHandler(settings, tmp_path / "state")
        problem = f"{balancer.socket}: HAProxy denies changing servers; the socket needs `level admin`"
        assert await handler.check() == [problem]
        refused = Failed("HAProxy refuses `set server web/web_0 state drain`: Permission denied")
        assert await handler.prepare(PREPARE) == refused
        assert balancer.statuses("web_0") == ("UP",)


async def test_remote_haproxy_is_reached_over_tcp(
    tmp_path: Path, web_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, runtime = free_ports(2)
    more = f"level admin\n    stats socket ipv4@127.0.0.1:{runtime} level admin"
    monkeypatch.setattr(lab, "CONFIGURATION", lab.CONFIGURATION.replace("level admin", more))
    with run_haproxy(tmp_path, port, {"web_0": web_port}) as balancer:
        settings = HaproxySettings(name="drain", socket=Address("127.0.0.1", runtime), servers=("web/web_0",))
        handler = HaproxyHandler(settings, tmp_path / "state")
        assert (await handler.check(), await handler.prepare(PREPARE)) == ([], Done())
        assert balancer.statuses("web_0") == ("DRAIN",)
        assert await handler.recover(RECOVER) == Done()
        assert balancer.statuses("web_0") == ("UP",)


async def test_unreachable_haproxy_is_retried(make: Make, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    nowhere = tmp_path / "nowhere.sock"
    why = f"cannot reach HAProxy at {nowhere}: No such file or directory"
    handler = make("web/web_0", place=nowhere)
    assert (await handler.recover(RECOVER), await handler.prepare(PREPARE)) == (Retry(why), Retry(why))
    assert await handler.check() == [why]
    ended = await make("web/web_0", place=Address("127.0.0.1", port)).prepare(PREPARE)
    assert isinstance(ended, Retry)
    assert f"127.0.0.1:{port}" in ended.reason


async def test_server_that_was_not_drained_is_not_set_ready(make: Make, balancer: Haproxy, tmp_path: Path) -> None:
    assert isinstance(await make("web/web_0", place=tmp_path / "nowhere.sock").prepare(PREPARE), Retry)
    balancer.run_command("set server web/web_0 state maint")
    assert await make("web/web_0").recover(RECOVER) == Done()
    assert balancer.statuses("web_0") == ("MAINT",)


async def test_check_changes_nothing(make: Make, balancer: Haproxy, tmp_path: Path) -> None:
    assert await make("web/web_0", "web/web_1").check() == []
    assert balancer.statuses("web_0", "web_1") == ("UP", "UP")
    assert not (tmp_path / "state").exists()
