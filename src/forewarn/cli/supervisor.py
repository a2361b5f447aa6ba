"""Telling a service manager how the service is, in the way of sd_notify(3): datagrams to a socket that it names."""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta

PINGS = 3
"""How often the watchdog hears of us in the time that it gives us."""


class Supervisor:
    """Whoever started the service and wants to know. Without one, nothing is said."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        # A name that begins with @ is one of Linux' abstract sockets, whose first byte is none.
        self._address = environ.get("NOTIFY_SOCKET", "").replace("@", "\0", 1)
        is_for_us = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = environ.get("WATCHDOG_USEC", "") if is_for_us else ""
        self.patience = timedelta(microseconds=int(microseconds)) if microseconds.isdecimal() else None

    def tell(self, *facts: str) -> None:
        """Say something of the service, such as `READY=1`; a manager that does not listen is no reason to stop."""
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.sendto("\n".join(facts).encode(), self._address)

    def reloading(self) -> None:
        """Say that settings are being read again; `READY=1` follows."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    async def watch(self, is_well: Callable[[], bool]) -> None:
        """Tell the watchdog, if there is one, again and again that all is well; but only while it is."""
        if self.patience is None:
            return
        while True:
            if is_well():
                self.tell("WATCHDOG=1")
            await asyncio.sleep(self.patience.total_seconds() / PINGS)
