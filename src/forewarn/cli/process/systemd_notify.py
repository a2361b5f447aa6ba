"""sd_notify(3): report readiness, reload and watchdog pings to systemd."""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta

PINGS_PER_TIMEOUT = 3
"""How often the watchdog hears of us in the time that it gives us."""


class SystemdNotifier:
    """Whoever started the service and wants to know. Without one, nothing is said."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        # A name that begins with @ is one of Linux' abstract sockets, whose first byte is none.
        self._address = environ.get("NOTIFY_SOCKET", "").replace("@", "\0", 1)
        is_for_us = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = environ.get("WATCHDOG_USEC", "") if is_for_us else ""
        self.watchdog_timeout = timedelta(microseconds=int(microseconds)) if microseconds.isdecimal() else None

    def notify(self, *assignments: str) -> None:
        """Say something of the service, such as `READY=1`; a manager that does not listen is no reason to stop."""
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.sendto("\n".join(assignments).encode(), self._address)

    def notify_reloading(self) -> None:
        """Say that settings are being read again; `READY=1` follows."""
        self.notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    async def run_watchdog(self, is_healthy: Callable[[], bool]) -> None:
        """Tell the watchdog, if there is one, again and again that all is well; but only while it is."""
        if self.watchdog_timeout is None:
            return
        while True:
            if is_healthy():
                self.notify("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_timeout.total_seconds() / PINGS_PER_TIMEOUT)
