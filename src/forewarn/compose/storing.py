"""Where a service keeps its data, as its settings say."""

import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from forewarn.api import local
from forewarn.settings import Settings, user_data_directory
from forewarn.store.memory import MemoryStore
from forewarn.store.port import Store, StoreInUse
from forewarn.store.sqlite import SqliteStore


class AlreadyRuns(Exception):
    """Another service runs on the same data."""

    def __init__(self, directory: Path, service: local.Service | None, pid: int | None) -> None:
        self.directory, self.service, self.pid = directory, service, pid
        where = f" at {service.operator_url}" if service is not None else ""
        super().__init__(
            f"a service runs on {directory} already{where} (process {pid or 'unknown'}): "
            "use that one, end it, or choose another --data"
        )


class NotADirectory(Exception):
    """What was given as data directory is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} is a file, not a directory: choose another --data")


@asynccontextmanager
async def opened_store(settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[tuple[Path, Store]]:
    """Give the data directory and the store. A service that keeps nothing has a directory too, for who looks for it."""
    if settings.ephemeral:
        root = local.ephemeral_root(environ)
        directory = local.make_ephemeral(root)
        try:
            yield directory, MemoryStore()
        finally:
            shutil.rmtree(directory)
        return
    directory = (settings.data or user_data_directory(environ)).absolute()
    if directory.is_file():
        raise NotADirectory(directory)
    try:
        store = await SqliteStore.open(directory)
    except StoreInUse as error:
        raise AlreadyRuns(directory, local.read_service(directory), error.pid) from error
    try:
        yield directory, store
    finally:
        await store.aclose()
