"""Initial fleet: fills an empty data directory from the fleet file, the demonstration fleet or a given loader."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from forewarn.api.fleet_file import DEMONSTRATION, CreationContext, demonstration_fleet, read_fleet
from forewarn.core.scope import Scope
from forewarn.fleet.importer import fill_fleet
from forewarn.fleet.last_seen import new_epoch
from forewarn.fleet.service import Fleet
from forewarn.settings.file_reader import read_toml_file
from forewarn.settings.schema import Settings

MAX_FLEET_FILE_BYTES = 64 * 1024 * 1024

CELL_PAUSE = 0.25
"""How often to look, in seconds, whether another process has imported the fleet file."""

FleetLoader = Callable[[CreationContext], tuple[Scope, ...]]
"""Loads a fleet that is not in a file."""

GIVEN_FLEET = "the fleet that was given"


class StartupReporter(Protocol):
    """Reports progress and problems of the start to the user."""

    def report(self, sentence: str) -> None:
        """Show a message to the user."""
        ...

    def fleet_file_ignored(self, source: Path) -> None:
        """Report that the fleet file is not read, because there is already a fleet."""
        ...

    def fill_progress(self, done: int, total: int) -> None:
        """Report how many scopes of the fleet file are saved."""
        ...


async def fill_if_empty(
    fleet: Fleet, settings: Settings, reporter: StartupReporter, loader: FleetLoader | None = None
) -> None:
    """Import the fleet file if there is no fleet yet, or continue an import that a crash interrupted.

    A `loader` replaces the fleet file.
    """
    source = settings.fleet
    if fleet.inventory.is_filled:
        if isinstance(source, Path):
            reporter.fleet_file_ignored(source)
        return
    context = CreationContext(fleet.clock.now(), new_epoch, settings.imports.vms)
    scopes = loader(context) if loader is not None else await asyncio.to_thread(_read_fleet, source, context)
    by = GIVEN_FLEET if loader is not None else str(source if isinstance(source, Path) else DEMONSTRATION)
    await fill_fleet(fleet, scopes, by=by, on_saved=lambda done: reporter.fill_progress(done, len(scopes)))


async def fill_cell(fleet: Fleet, settings: Settings, reporter: StartupReporter) -> None:
    """Import the fleet file into an empty cell: the process with the duties does it, and the others wait."""
    while not fleet.inventory.is_filled and not fleet.cluster.clock_lease.is_held:  # noqa: ASYNC110 - no event
        await asyncio.sleep(CELL_PAUSE)
    await fill_if_empty(fleet, settings, reporter)


def _read_fleet(source: Path | str | None, context: CreationContext) -> tuple[Scope, ...]:
    if source is None:
        return ()
    if not isinstance(source, Path):
        return demonstration_fleet(context)
    return read_fleet(read_toml_file(source, max_bytes=MAX_FLEET_FILE_BYTES), context)
