"""Migration of a fleet between a data directory and a cell of NATS. Needs the extra `[cluster]`."""

import hashlib
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from secrets import token_hex

import msgspec

from forewarn.compose.backup import DatabaseNotFound, StepProgress, check_owner
from forewarn.compose.data_directory import PRESET_FILE
from forewarn.core.base_error import BaseError
from forewarn.files import read_file, write_file
from forewarn.fleet import fleet_state
from forewarn.settings.nats import NatsSettings
from forewarn.settings.schema import EMULATOR, PRODUCTION
from forewarn.store.migration import (
    ContentDiffers,
    ContentSummary,
    KindSummary,
    MigrationCursor,
    MigrationPage,
    MigrationSource,
    MigrationState,
    MigrationTarget,
    SourceChanged,
    TargetUsed,
)
from forewarn.store.nats.connection import NatsError
from forewarn.store.nats.migration import CellAccess, NatsSource, NatsTarget
from forewarn.store.sqlite.database import DATABASE_FILE
from forewarn.store.sqlite.migration import SqliteSource, SqliteTarget


class ManualClockUsed(BaseError):
    """The fleet has a manual clock, which a cluster does not have."""

    template = (
        "{directory} has a manual clock, which was moved to {clock_at}: a cluster goes by real time, so its events "
        "would start at other times. Export the fleet with `forewarn fleet export` instead"
    )
    directory: str
    clock_at: str


class MigrationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a migration has copied, and compared."""

    source: str
    target: str
    resumed: bool
    """Whether it has continued an earlier one."""
    emulator: bool
    """Whether the source was used by the emulator."""
    kinds: tuple[KindSummary, ...]


async def migrate_to_cell(
    directory: Path, settings: NatsSettings, *, restart: bool, on_progress: StepProgress
) -> MigrationReport:
    """Copy the fleet of a data directory into a new cell. The directory is only read."""
    if not (directory / DATABASE_FILE).is_file():
        raise DatabaseNotFound(directory)
    async with AsyncExitStack() as stack:
        source = SqliteSource(directory)
        stack.callback(source.close)
        cell = await stack.enter_async_context(_open_cell(settings, directory))
        report = await _migrate(source, NatsTarget(cell, settings.replicas), restart, on_progress)
    preset = directory / PRESET_FILE
    is_emulator = preset.exists() and read_file(preset).decode().strip() == EMULATOR.name
    return msgspec.structs.replace(report, emulator=is_emulator)


async def migrate_to_directory(
    settings: NatsSettings, directory: Path, *, restart: bool, on_progress: StepProgress
) -> MigrationReport:
    """Copy the fleet of a cell into a new data directory. The cell is only read."""
    check_owner(directory)
    async with AsyncExitStack() as stack:
        target = SqliteTarget(directory)
        stack.callback(target.close)
        cell = await stack.enter_async_context(_open_cell(settings, directory))
        await cell.claim()
        write_file(directory / PRESET_FILE, f"{PRODUCTION.name}\n".encode())
        return await _migrate(NatsSource(cell), target, restart, on_progress)


@asynccontextmanager
async def _open_cell(settings: NatsSettings, directory: Path) -> AsyncIterator[CellAccess]:
    # Only one process at a time has the lock of the directory, so a claim in its name is one of an ended process.
    member = hashlib.sha256(f"{socket.gethostname()}:{directory}".encode()).hexdigest()[:24]
    cell = await CellAccess.open(settings, member)
    try:
        yield cell
    except NatsError as error:
        raise cell.stream.unavailable(error) from error
    finally:
        await cell.aclose()


async def _migrate(
    source: MigrationSource, target: MigrationTarget, restart: bool, on_progress: StepProgress
) -> MigrationReport:
    """Copy, compare, and only then release the target."""
    if restart:
        await target.clear()
    new = MigrationState(source=source.name, source_state=await source.read_state(), change=token_hex(12))
    total = await source.size()
    try:
        found = await target.begin(new, await source.extent())
    except TargetUsed:
        # The process may have been killed after its last step: then everything is there.
        content, differing = await _compare(source, target, total, on_progress)
        if differing:
            raise
        return MigrationReport(source=source.name, target=target.name, resumed=True, emulator=False, kinds=content)
    if found.source_state != new.source_state:
        raise SourceChanged(source.name, target.name)
    done = 0
    async with aclosing(source.pages(found.cursor)) as pages:
        async for page in pages:
            _check_clock(source, page)
            await target.write(page)
            done += len(page.rows) + len(page.records)
            on_progress("Migrating", min(done, total), total)
    content, differing = await _compare(source, target, total, on_progress)
    if await source.read_state() != new.source_state:
        raise SourceChanged(source.name, target.name)
    if differing:
        raise ContentDiffers(source.name, target.name, ", ".join(differing))
    await target.finish()
    return MigrationReport(
        source=source.name, target=target.name, resumed=found.change != new.change, emulator=False, kinds=content
    )


async def _compare(
    source: MigrationSource, target: MigrationTarget, total: int, on_progress: StepProgress
) -> tuple[tuple[KindSummary, ...], list[str]]:
    """Return what the source contains, and the kinds in which the target differs."""
    expected = await _summarize(source.pages(MigrationCursor()), total, "Reading the source", on_progress)
    actual = await _summarize(target.pages(), total, "Comparing the copy", on_progress)
    return expected, sorted({each.kind for each in {*expected} ^ {*actual}})


async def _summarize(
    pages: AsyncGenerator[MigrationPage, None], total: int, step: str, on_progress: StepProgress
) -> tuple[KindSummary, ...]:
    summary = ContentSummary()
    done = 0
    async with aclosing(pages):
        async for page in pages:
            summary.add(page)
            done += len(page.rows) + len(page.records)
            on_progress(step, min(done, total), total)
    return summary.kinds()


def _check_clock(source: MigrationSource, page: MigrationPage) -> None:
    for record in page.records:
        if record.key == fleet_state.FLEET_STATE:
            clock_at = fleet_state.decode(record.value).clock_at
            if clock_at is not None:
                raise ManualClockUsed(source.name, f"{clock_at:%Y-%m-%d %H:%M:%SZ}")
