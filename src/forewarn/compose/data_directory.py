"""Data directory of a service: opens its store, and prevents the emulator from using production data."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from forewarn.api import local_service
from forewarn.compose.initial_fleet import StartupReporter
from forewarn.compose.platforms import WORK_DIRECTORY
from forewarn.core.base_error import BaseError
from forewarn.files import check_links, read_file, write_file
from forewarn.settings.paths import user_data_directory
from forewarn.settings.schema import EMULATOR, PRODUCTION, Preset, Settings
from forewarn.settings.types import RoleName, StoreName
from forewarn.store.memory import MemoryStore
from forewarn.store.migration import MIGRATION, MigrationUnfinished, decode_state
from forewarn.store.port import Lease, Store, StoreInUse
from forewarn.store.sqlite.store import SqliteStore

PRESET_FILE = "preset"
"""The file in the data directory that names the preset of the service that used it last."""


SOCKET_DIRECTORY = "sockets"
"""The socket directory, within the data directory, which only one service uses at a time."""

REPORT_DIRECTORY = "reports"
"""The directory of the reports that were added to an emulator."""

SERVICE_NAMES = (
    PRESET_FILE,
    local_service.SERVICE_FILE,
    local_service.TOKEN_FILE,
    WORK_DIRECTORY,
    SOCKET_DIRECTORY,
    REPORT_DIRECTORY,
)
"""Everything in a data directory besides the files of the store, which checks those itself."""


class EmulatorNotAllowed(BaseError):
    """The emulator was started on the data directory of a service for real VMs."""

    template = (
        "{directory} is the data directory of a service for real VMs, and the emulator would only simulate their "
        "maintenance: run `forewarn serve` there, or choose another --data. To use it in the emulator anyway, remove "
        f"{{directory}}/{PRESET_FILE} first"
    )
    directory: Path


def claim_directory(directory: Path, preset: Preset, reporter: StartupReporter) -> None:
    """Write the preset into the data directory; a directory without one can be claimed by any preset.

    Only the owner of the directory's lock may call this.
    """
    preset_file = directory / PRESET_FILE
    before = read_file(preset_file).decode().strip() if preset_file.exists() else ""
    if before == preset.name:
        return
    if before == PRODUCTION.name and preset is EMULATOR:
        raise EmulatorNotAllowed(directory)
    if before:
        reporter.report(
            f"The data in {directory} is from the {before}: its VMs and events are treated as real ones from now on."
        )
    write_file(preset_file, f"{preset.name}\n".encode())


class DataDirectoryInUse(BaseError):
    """Another service uses the same data directory."""

    template = (
        "a service already runs on {directory}{address} (process {process}): "
        "use that one, stop it, or choose another --data"
    )
    directory: Path
    service: local_service.LocalService | None
    pid: int | None

    @property
    def address(self) -> str:
        """The URL of the other service."""
        return "" if self.service is None else f" at {self.service.operator_url}"

    @property
    def process(self) -> str:
        """The process id of the other service."""
        return str(self.pid or "unknown")


class InvalidDataDirectory(BaseError):
    """The path of the data directory is a file."""

    template = "{path} is a file, not a directory: choose another --data"
    path: Path


class OpenedStore(NamedTuple):
    """The data directory of a service, and its store."""

    directory: Path
    store: Store
    lease: Lease | None = None
    """The lease of the process that has the duties; None if the store has one process."""


@asynccontextmanager
async def open_store(settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[OpenedStore]:
    """Yield the data directory and the store. An ephemeral service has a directory too, so that clients find it."""
    if settings.ephemeral:
        import shutil  # it loads archive modules, which a service with a data directory does not need

        root = local_service.ephemeral_root(environ)
        directory = local_service.create_ephemeral_directory(root)
        try:
            yield OpenedStore(directory, MemoryStore())
        finally:
            shutil.rmtree(directory)
        return
    directory = (settings.data or user_data_directory(environ)).absolute()
    if directory.is_file():
        raise InvalidDataDirectory(directory)
    check_links(directory, SERVICE_NAMES)
    async with AsyncExitStack() as stack:
        try:
            store, lease = await stack.enter_async_context(_run_store(settings, directory))
        except StoreInUse as error:
            raise DataDirectoryInUse(directory, local_service.read_service(directory), error.pid) from error
        await _check_complete(settings, directory, store)
        yield OpenedStore(directory, store, lease)


async def _check_complete(settings: Settings, directory: Path, store: Store) -> None:
    """Refuse a store into which `forewarn migrate` has copied only a part of a fleet."""
    if (record := await store.load(MIGRATION)) is not None:
        name = f"cell {settings.nats.cell}" if settings.store is StoreName.NATS else str(directory)
        raise MigrationUnfinished(name, decode_state(record.value).source)


@asynccontextmanager
async def _run_store(settings: Settings, directory: Path) -> AsyncIterator[tuple[Store, Lease | None]]:
    if settings.store is StoreName.NATS:
        from forewarn.compose.cell import run_cell  # it needs the extra [cluster]

        async with run_cell(settings.nats, directory, is_shared=settings.role is RoleName.CONTROL) as cell:
            yield cell
        return
    store = await SqliteStore.open(directory)
    try:
        yield store, None
    finally:
        await store.aclose()
