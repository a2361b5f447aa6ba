"""Clusters for benchmarks: three NATS servers on this machine, with a cell, or with control nodes and hosts as well."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from itertools import islice

import msgspec

from bench.fleets import FILL_AT_ONCE, Shape, encode, make_scope
from bench.modes import MODES
from bench.workspace import Workspace
from forewarn.core.inventory import create_scope
from forewarn.settings.nats import NatsSettings
from forewarn.store.nats.store import NatsStore
from forewarn.store.port import RecordKey, RecordKind
from tests.support.cluster import ClusterNode, ClusterProcesses, run_cluster
from tests.support.nats_accounts import API_PREFIX
from tests.support.nats_servers import run_nats

SERVERS = 3
CELL = "bench"
NO_MINIMUM = """
[policy]
enforce_notice = false
announce = "always"
[guest]
requests_per_second = "none"
[simulated]
reboot = "1s"
"""
"""Settings of services, so that measurements need not wait 15 minutes."""


@contextmanager
def run_processes(
    workspace: Workspace, fleet: str, *, mode: str, controls: int = 2, hosts: tuple[str, ...] = ("hv-0", "hv-1")
) -> Iterator[ClusterProcesses]:
    """Run servers, control nodes and hosts with a fleet."""
    directory = workspace.empty_directory()
    with run_cluster(
        directory,
        servers=SERVERS,
        controls=controls,
        hosts=hosts,
        fleet=fleet,
        more=NO_MINIMUM,
        jetstream_config=MODES[mode],
    ) as cluster:
        yield cluster


@asynccontextmanager
async def run_cell(workspace: Workspace, *, mode: str) -> AsyncIterator[NatsSettings]:
    """Run servers with an empty cell."""
    with run_nats(workspace.empty_directory(), servers=SERVERS, jetstream_config=MODES[mode]) as servers:
        yield await servers.create_cell(CELL)


@asynccontextmanager
async def open_store(workspace: Workspace, settings: NatsSettings) -> AsyncIterator[NatsStore]:
    """Open a store with an index of its own."""
    store = await NatsStore.open(settings, workspace.empty_directory())
    try:
        yield store
    finally:
        await store.aclose()


async def fill_cell(store: NatsStore, shape: Shape) -> None:
    """Save a fleet."""
    now = datetime.now(UTC)
    changes = (create_scope(make_scope(shape, number, now=now), by="bench", now=now) for number in range(shape.scopes))
    while some := list(islice(changes, FILL_AT_ONCE)):
        await asyncio.gather(
            *(
                store.save(
                    RecordKey(RecordKind.SCOPE, change.scope.id), encode(change.scope), change.entries, expected=None
                )
                for change in some
                if change.scope is not None
            )
        )


def settings_of(cluster: ClusterProcesses, node: ClusterNode) -> NatsSettings:
    """Return the settings with which a node reaches the cell."""
    is_host = node.role == "host"
    return msgspec.structs.replace(
        cluster.nats.settings("main"),
        user=node.name if is_host else "control",
        password_file=node.directory / "password",
        api_prefix=API_PREFIX if is_host else "$JS.API",
    )
