"""A data directory with a fleet, tokens and holds, and what a test reads of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from forewarn.clock import SystemClock
from forewarn.core.policy import EMULATOR
from forewarn.core.scope import Hold, Scope, ScopeKind
from forewarn.core.vm import Roster
from forewarn.fleet.service import Fleet
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.sqlite.store import SqliteStore
from tests.core.builders import a_vm


@asynccontextmanager
async def open_fleet(directory: Path, *, has_duties: bool = False) -> AsyncIterator[Fleet]:
    """Open the fleet of a data directory, as a service would."""
    store = await SqliteStore.open(directory)
    clock = SystemClock()
    try:
        async with Fleet.run(
            store=store, platform=SimulatedPlatform(clock), clock=clock, policy=EMULATOR, has_duties=has_duties
        ) as fleet:
            yield fleet
    finally:
        await store.aclose()


async def create_data(directory: Path, *scopes: str) -> None:
    """Create a data directory with scopes of one VM each."""
    async with open_fleet(directory) as fleet:
        for name in scopes:
            await fleet.inventory.add_scope(new_scope(name), by="test")


def new_scope(name: str) -> Scope:
    """Return a scope of one VM that is not created yet."""
    now = SystemClock().now()
    return Scope(
        id=name, kind=ScopeKind.AVAILABILITY_SET, epoch="e1", changed_at=now, roster=Roster((a_vm(f"{name}-0"),))
    )


class DataState(NamedTuple):
    """What a data directory contains."""

    scopes: dict[str, Scope]
    hold: Hold | None
    valid_tokens: set[str]


async def read_data(directory: Path) -> DataState:
    """Open the data directory, and return what it contains."""
    async with open_fleet(directory) as fleet:
        scopes = {view.id: view.scope for view in fleet.replica.views() if view.scope is not None}
        now = SystemClock().now()
        valid = {token.name for token in fleet.tokens.all() if token.is_valid(now=now)}
        return DataState(scopes, fleet.holds.current, valid)
