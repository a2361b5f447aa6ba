"""Host commands of a control node: hears and answers the hosts while the service runs. Needs the extra `[cluster]`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from forewarn.fleet.event_loop import tasks_until_exit
from forewarn.fleet.service import Fleet
from forewarn.store.nats.member import HostReport, Observations
from forewarn.store.nats.store import NatsStore


@asynccontextmanager
async def serve_hosts(fleet: Fleet, store: NatsStore) -> AsyncIterator[None]:
    """Answer the commands of hosts, and keep the rules informed about silent hosts."""
    server = store.create_command_server(fleet.cluster.host_commands)
    await server.start()
    fleet.cluster.hosts.on_placed = server.notify_placed
    store.observe_members(lambda: _observe(fleet))
    try:
        async with tasks_until_exit() as tasks:
            tasks.create_task(fleet.cluster.hosts.watch_silence(), name="watch for silent hosts")
            await asyncio.sleep(0)
            yield
    finally:
        fleet.cluster.hosts.on_placed = None
        await server.stop()


def _observe(fleet: Fleet) -> Observations:
    own = fleet.cluster.clock_offset
    return Observations(None if own is None else own.seconds, _report_hosts(fleet))


def _report_hosts(fleet: Fleet) -> dict[str, HostReport]:
    """Return what the holder of the clock lease knows about hosts; one control node is enough to announce it."""
    if not fleet.cluster.clock_lease.is_held:
        return {}
    reports: dict[str, HostReport] = {}
    for name in fleet.cluster.hosts.names():
        record = fleet.cluster.hosts.record(name)
        if record is not None and record.process:
            reports[name] = HostReport(
                holder=record.holder,
                version=record.version,
                format=record.format,
                heard_ago=fleet.cluster.hosts.heard_ago(name),
                clock_offset=fleet.cluster.hosts.clock_offsets.get(name),
            )
    return reports
