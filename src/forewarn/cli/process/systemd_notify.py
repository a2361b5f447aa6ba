"""sd_notify(3): report readiness, reload and watchdog pings to systemd."""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta

PINGS_PER_TIMEOUT = 3
"""Watchdog pings per timeout of systemd."""


class SystemdNotifier:
    """Sends notifications to the service manager, if there is one."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        # A leading @ stands for an abstract socket, whose name starts with a zero byte.
        self._address = environ.get("NOTIFY_SOCKET", "").replace("@", "\0", 1)
        is_for_us = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = environ.get("WATCHDOG_USEC", "") if is_for_us else ""
        self.watchdog_timeout = timedelta(microseconds=int(microseconds)) if microseconds.isdecimal() else None

    def notify(self, *assignments: str) -> None:
        """Send a notification, such as `READY=1`; errors are ignored."""
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.sendto("\n".join(assignments).encode(), self._address)

    def notify_reloading(self) -> None:
        """Notify that a reload has started; `READY=1` must follow."""
        self.notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    async def run_watchdog(self, is_healthy: Callable[[], bool]) -> None:
        """Ping the watchdog periodically while the service is healthy; return at once if there is no watchdog."""
        if self.watchdog_timeout is None:
            return
        while True:
            if is_healthy():
                self.notify("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_timeout.total_seconds() / PINGS_PER_TIMEOUT)
