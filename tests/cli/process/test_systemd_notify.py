"""Notifications to the service manager."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from forewarn.cli.process.systemd_notify import SystemdNotifier


@pytest.fixture
def manager(tmp_path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind(str(tmp_path / "notify"))
    listening.setblocking(False)
    return listening


def environ(manager: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": manager.getsockname()} | more


async def heard(manager: socket.socket) -> bytes:
    async with asyncio.timeout(60):
        return await asyncio.get_running_loop().sock_recv(manager, 4096)


async def test_watchdog_is_not_pinged_while_the_service_is_unhealthy(manager: socket.socket) -> None:
    asked: list[bool] = []
    with manager:
        supervisor = SystemdNotifier(environ(manager, WATCHDOG_USEC="3000"))

        def is_well() -> bool:
            asked.append(len(asked) >= 5)
            return asked[-1]

        watching = asyncio.create_task(supervisor.run_watchdog(is_well))
        assert await heard(manager) == b"WATCHDOG=1"
        watching.cancel()
        assert asked[:6] == [False] * 5 + [True]


@pytest.mark.parametrize(
    "more",
    [{}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}],
    ids=["none", "for another process", "not a number"],
)
async def test_watchdog_task_returns_without_a_watchdog(manager: socket.socket, more: dict[str, str]) -> None:
    with manager:
        async with asyncio.timeout(60):
            await SystemdNotifier(environ(manager, **more)).run_watchdog(lambda: True)
        with pytest.raises(BlockingIOError):
            manager.recv(1)


def test_missing_service_manager_is_ignored(tmp_path: Path) -> None:
    SystemdNotifier({}).notify("READY=1")
    SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "gone"), "WATCHDOG_PID": str(os.getpid())}).notify("READY=1")
