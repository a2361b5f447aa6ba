"""Host commands of a control node: hears and answers the hosts while the service runs. Needs the extra `[cluster]`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from forewarn.fleet.event_loop import tasks_until_exit
from forewarn.fleet.service import Fleet
from forewarn.store.nats.store import NatsStore


@asynccontextmanager
async def serve_hosts(fleet: Fleet, store: NatsStore) -> AsyncIterator[None]:
    """Answer the commands of hosts, and keep the rules informed about silent hosts."""
    server = store.create_command_server(fleet.host_commands)
    await server.start()
    fleet.hosts.on_placed = server.notify_placed
    try:
        async with tasks_until_exit() as tasks:
            tasks.create_task(fleet.hosts.watch_silence(), name="watch for silent hosts")
            await asyncio.sleep(0)
            yield
    finally:
        fleet.hosts.on_placed = None
        await server.stop()
