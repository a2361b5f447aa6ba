"""Main program of the service under test: the service as `forewarn` composes it, guest endpoint on loopback.

VMs are identified by source address, as in production; only 169.254.169.254 is left out.

`python -m bench.service_main` writes `Ready`, then executes commands, one line of JSON each, until its input ends."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import msgspec
import uvloop

from bench.fleets import NETWORK
from bench.guest_client import HOST
from bench.loop_monitor import LoopMonitor
from bench.process import allow_open_files, send_to_parent
from forewarn.api.local_service import TOKEN_FILE
from forewarn.compose import RunningService, run_service
from forewarn.core.event import EventType
from forewarn.core.schedule import ScheduleRequest
from forewarn.fleet.event_loop import shorten_switch_interval, start_without_gc
from forewarn.fleet.events import new_request_id
from forewarn.guest.limits import Limits
from forewarn.guest.server import GuestServer
from forewarn.settings.schema import PRODUCTION, PolicySettings
from forewarn.settings.types import ListenAddress

SETTINGS = msgspec.structs.replace(
    PRODUCTION.settings, operator=ListenAddress(HOST, 0), policy=PolicySettings(enforce_notice=False)
)
"""The production preset, but without a minimum notice, so that measurements need not wait 15 minutes."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Data and limits of the service. None means the production value."""

    data: str
    port: int = 0
    requests_per_second: int | None = None
    connections_per_vm: int | None = None


class Ready(msgspec.Struct, frozen=True):
    """The service is ready: the port for guests, and the URL for operators."""

    port: int
    operator_url: str
    token_file: str


class GetCounters(msgspec.Struct, frozen=True, tag=True):
    """Request for the counters."""


class Counters(msgspec.Struct, frozen=True):
    """The counters of the endpoint."""

    responses: dict[int, int]
    long_polls: int


class ResetTurns(msgspec.Struct, frozen=True, tag=True):
    """Request to measure the turns of the event loop, and to forget those so far."""


class GetTurns(msgspec.Struct, frozen=True, tag=True):
    """Request for the turns of the event loop since the last reset."""


class Schedule(msgspec.Struct, frozen=True, tag=True):
    """Request to schedule a Freeze for these VMs."""

    vms: tuple[str, ...]
    not_before: datetime | None = None


Command = GetCounters | Schedule | ResetTurns | GetTurns


class CreatedEvents(msgspec.Struct, frozen=True):
    """Pairs of scope and event."""

    events: tuple[tuple[str, str], ...]


async def main() -> None:
    """Serve until the input ends."""
    shorten_switch_interval()
    lines = await _input()
    task = msgspec.json.decode(await lines.readline(), type=Task)
    async with _run_service(task) as (running, server, port):
        fleet = running.fleet
        monitor: LoopMonitor | None = None
        send_to_parent(Ready(port, running.operator_url, str(running.directory / TOKEN_FILE)))
        async for line in lines:
            order: Command = msgspec.json.decode(line, type=Command)
            match order:
                case GetCounters():
                    send_to_parent(_counters(server))
                case ResetTurns():
                    monitor = monitor or LoopMonitor()
                    monitor.reset()
                case GetTurns():
                    assert monitor is not None
                    send_to_parent(monitor.turns())
                case Schedule(vms, not_before):
                    ask = ScheduleRequest(
                        id=new_request_id(), type=EventType.FREEZE, vms=vms, by="bench", not_before=not_before
                    )
                    send_to_parent(CreatedEvents(await fleet.events.schedule(ask)))


@asynccontextmanager
async def _run_service(task: Task) -> AsyncIterator[tuple[RunningService, GuestServer, int]]:
    settings = msgspec.structs.replace(SETTINGS, data=Path(task.data))
    service = run_service(settings, PRODUCTION, environ=os.environ, reporter=_SilentReporter())
    async with start_without_gc(service) as running:
        server = GuestServer(running.fleet, limits=_limits(task))
        try:
            port = await server.listen_by_address(NETWORK, HOST, task.port)
            yield running, server, port
        finally:
            await server.aclose()


def _limits(task: Task) -> Limits:
    names = ("requests_per_second", "connections_per_vm")
    changed = {name: value for name in names if (value := getattr(task, name)) is not None}
    return msgspec.structs.replace(Limits(), **changed)


class _SilentReporter:
    """A reporter that drops all messages: the benchmark observes the service itself."""

    def report(self, sentence: str) -> None:
        """Drop the message."""

    def fleet_file_ignored(self, source: Path) -> None:
        """Drop the message."""

    def fill_progress(self, done: int, total: int) -> None:
        """Show nothing."""


def _counters(server: GuestServer) -> Counters:
    return Counters(responses=server.counters.responses, long_polls=server.counters.long_polls)


async def _input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


if __name__ == "__main__":
    allow_open_files(16_384)
    uvloop.run(main())
