"""HAProxy handler: drains servers before the event and sets them ready after it, over the runtime socket."""

import asyncio
import csv
import logging
import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from forewarn.agent.handlers.base import CallResult, Done, Failed, HandlerBase, HandlerContext, Retry
from forewarn.agent.handlers.saved_state import SavedStateFile
from forewarn.agent.settings import HaproxySettings
from forewarn.core.duration import format_duration

log = logging.getLogger("forewarn.agent")

LARGEST_RESPONSE = 4 * 1024 * 1024
POLL_INTERVAL = 0.25
"""How often, in seconds, HAProxy is asked whether all sessions have ended."""

MAINTENANCE, DRAIN = 0x01, 0x08
"""Bits of a server's administrative state, as `show servers state` gives it: forced by somebody."""

INVALID_STATE = "unchanged"
"""No state of a server: whoever may change one is told so, whoever may not is told that instead."""

DENIED = "Permission denied"


class HaproxyError(Exception):
    """HAProxy took the command and will not do it; the message is its own."""


class HaproxyHandler(HandlerBase[HaproxySettings]):
    """Takes servers out of the rotation, and puts back those that were in it."""

    def __init__(self, settings: HaproxySettings, directory: Path) -> None:
        super().__init__(settings)
        self._saved_state = SavedStateFile(directory, settings.name)

    async def prepare(self, context: HandlerContext) -> CallResult:
        """Drain those that take part, and wait until their sessions have ended, but no longer than is set."""
        del context
        self._saved_state.begin()
        try:
            states = {server: await self._administrative_state(server) for server in self.settings.servers}
            serving = tuple(server for server in states if not states[server] & (MAINTENANCE | DRAIN))
            for server in self._saved_state.save_running(serving):
                await self._set_state(server, "drain")
            await self._wait_for_sessions()
        except OSError as error:
            return Retry(self._unreachable_text(error))
        except HaproxyError as error:
            return Failed(str(error))
        return Done()

    async def recover(self, context: HandlerContext) -> CallResult:
        """Put those back that were drained."""
        del context
        try:
            for server in self._saved_state.to_restore(self.settings.servers):
                await self._set_state(server, "ready")
        except OSError as error:
            return Retry(self._unreachable_text(error))
        except HaproxyError as error:
            return Failed(str(error))
        self._saved_state.mark_restored()
        return Done()

    async def check(self) -> list[str]:
        """Ask for the state of every server, and whether we may change it."""
        try:
            for server in self.settings.servers:
                await self._administrative_state(server)
                if (await self._command(f"set server {server} state {INVALID_STATE}")).startswith(DENIED):
                    return [f"HAProxy lets nobody change servers at {self.settings.socket}: it needs `level admin`"]
        except OSError as error:
            return [self._unreachable_text(error)]
        except HaproxyError as error:
            return [str(error)]
        return []

    async def _wait_for_sessions(self) -> None:
        """Wait for the last session. Some never end: after the time for it, the event is not kept waiting for them."""
        try:
            async with asyncio.timeout(self.settings.wait / timedelta(seconds=1)):
                while await self._count_sessions():  # noqa: ASYNC110  # HAProxy tells nobody of its own accord
                    await asyncio.sleep(POLL_INTERVAL)
        except TimeoutError:
            took = format_duration(self.settings.wait)
            log.warning("%s: there are still sessions after %s: %s", self.name, took, ", ".join(self.settings.servers))

    async def _count_sessions(self) -> int:
        """Return how many requests are under way or waiting on all servers."""
        response = await self._command("show stat -1 4 -1")
        rows = csv.DictReader(response.removeprefix("# ").splitlines())
        mine = (row for row in rows if f"{row.get('pxname')}/{row.get('svname')}" in self.settings.servers)
        return sum(int(row.get("scur") or 0) + int(row.get("qcur") or 0) for row in mine)

    async def _administrative_state(self, server: str) -> int:
        backend, _, name = server.partition("/")
        for row in _states(await self._command(f"show servers state {backend}")):
            if row.get("srv_name") == name:
                return int(row["srv_admin_state"])
        raise HaproxyError(f"HAProxy has no server {server}")

    async def _set_state(self, server: str, state: str) -> None:
        """Change the state of a server. HAProxy says nothing if it does that, and why if not."""
        command = f"set server {server} state {state}"
        if response := (await self._command(command)).strip():
            raise HaproxyError(f"HAProxy refuses `{command}`: {response.splitlines()[0]}")

    async def _command(self, command: str) -> str:
        address = self.settings.socket
        reader, writer = await (_open_unix(address) if isinstance(address, Path) else asyncio.open_connection(*address))
        try:
            writer.write(f"{command}\n".encode())
            await writer.drain()
            return (await _read_all(reader)).decode(errors="replace")
        finally:
            writer.close()

    def _unreachable_text(self, error: OSError) -> str:
        return f"HAProxy cannot be reached at {self.settings.socket}: {error.strerror or error}"


async def _open_unix(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if sys.platform == "win32":
        raise OSError("this system has no such sockets")
    return await asyncio.open_unix_connection(str(path))


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    """Read until HAProxy closes the connection, which it does after one command."""
    response = b""
    while len(response) < LARGEST_RESPONSE and (more := await reader.read(LARGEST_RESPONSE)):
        response += more
    return response


def _states(response: str) -> Iterable[dict[str, str]]:
    """Read what `show servers state` says: a version, the names of columns after a #, then a line for each server."""
    names: list[str] = []
    for line in response.splitlines():
        if line.startswith("# "):
            names = line.removeprefix("# ").split()
        elif names and line.strip():
            yield dict(zip(names, line.split(), strict=False))
