"""HAProxy handler: drains servers before the event and sets them ready after it, over the runtime socket."""

import asyncio
import logging
import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from forewarn.agent.handlers.base import CallResult, Done, Failed, HandlerBase, HandlerContext, Retry
from forewarn.agent.handlers.saved_state import SavedStateFile
from forewarn.agent.settings import HaproxySettings
from forewarn.core.base_error import BaseError
from forewarn.core.duration import format_duration

log = logging.getLogger("forewarn.agent")

LARGEST_RESPONSE = 4 * 1024 * 1024
POLL_INTERVAL = 0.25
"""How often, in seconds, to ask HAProxy whether all sessions have ended."""

MAINTENANCE, DRAIN = 0x01, 0x08
"""Bits of a server's administrative state in `show servers state`: maintenance or drain forced by an operator."""

INVALID_STATE = "unchanged"
"""An invalid server state, to test permissions: HAProxy answers "Permission denied" unless the socket is `admin`."""

DENIED = "Permission denied"


class HaproxyError(BaseError):
    """HAProxy rejected a command; the message is HAProxy's."""

    template = "{problem}"
    problem: str


class HaproxyHandler(HandlerBase[HaproxySettings]):
    """Takes servers out of rotation, and puts back those that were in it."""

    def __init__(self, settings: HaproxySettings, directory: Path) -> None:
        super().__init__(settings)
        self._saved_state = SavedStateFile(directory, settings.name)

    async def prepare(self, context: HandlerContext) -> CallResult:
        """Drain the servers that are in rotation, and wait for the end of their sessions, at most `wait`."""
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
        """Set the drained servers ready again."""
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
        """Check that every server exists and that the socket allows changing its state."""
        try:
            for server in self.settings.servers:
                await self._administrative_state(server)
                if (await self._command(f"set server {server} state {INVALID_STATE}")).startswith(DENIED):
                    return [f"{self.settings.socket}: HAProxy denies changing servers; the socket needs `level admin`"]
        except OSError as error:
            return [self._unreachable_text(error)]
        except HaproxyError as error:
            return [str(error)]
        return []

    async def _wait_for_sessions(self) -> None:
        """Wait for the last session to end, at most `wait`: some sessions never end."""
        try:
            async with asyncio.timeout(self.settings.wait / timedelta(seconds=1)):
                while await self._count_sessions():  # noqa: ASYNC110  # HAProxy can only be polled
                    await asyncio.sleep(POLL_INTERVAL)
        except TimeoutError:
            took = format_duration(self.settings.wait)
            log.warning("%s: sessions still open after %s: %s", self.name, took, ", ".join(self.settings.servers))

    async def _count_sessions(self) -> int:
        """Return the number of current and queued sessions on all servers."""
        import csv  # late: an idle agent does not need it

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
        """Change the state of a server. HAProxy answers with an empty line, or with the reason for a refusal."""
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
        return f"cannot reach HAProxy at {self.settings.socket}: {error.strerror or error}"


async def _open_unix(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if sys.platform == "win32":
        raise OSError("this system has no Unix sockets")
    return await asyncio.open_unix_connection(str(path))


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    """Read until HAProxy closes the connection, which it does after one command."""
    response = b""
    while len(response) < LARGEST_RESPONSE and (more := await reader.read(LARGEST_RESPONSE)):
        response += more
    return response


def _states(response: str) -> Iterable[dict[str, str]]:
    """Parse the output of `show servers state`: a version, the column names after a #, then one line per server."""
    names: list[str] = []
    for line in response.splitlines():
        if line.startswith("# "):
            names = line.removeprefix("# ").split()
        elif names and line.strip():
            yield dict(zip(names, line.split(), strict=False))
