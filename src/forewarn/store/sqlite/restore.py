"""Replacing the database of a data directory: prepared beside it, then exchanged in steps that a crash cannot split.

The new files are prepared in `restore.new`. Renaming that to `restore.ready-TIME` decides: before it the old database
is valid, after it the new one. `finish_restore` does the rest; the next owner of the directory repeats it if a crash
interrupts it. The old files stay in `before-restore-TIME`.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from forewarn.files import move, sync_directory
from forewarn.store.sqlite.database import DATABASE_FILE
from forewarn.store.sqlite.directory import LOCK_FILE, wrap_os_errors

STAGING_DIRECTORY = "restore.new"
READY_PREFIX = "restore.ready-"
REPLACED_PREFIX = "before-restore-"

_LOG_FILE = f"{DATABASE_FILE}-wal"
_MEMORY_FILE = f"{DATABASE_FILE}-shm"


def create_staging(directory: Path) -> Path:
    """Create an empty directory for the new files. The caller must hold the lock of the data directory."""
    finish_restore(directory)
    staging = directory / STAGING_DIRECTORY
    with wrap_os_errors(staging):
        staging.mkdir(mode=0o700)
    return staging


def commit_restore(directory: Path, *, now: datetime) -> Path | None:
    """Exchange the database for the one in the staging directory; return the directory with the old files, if any."""
    staging = directory / STAGING_DIRECTORY
    with wrap_os_errors(directory):
        for name in (LOCK_FILE, _MEMORY_FILE):
            (staging / name).unlink(missing_ok=True)
        sync_directory(staging)
        stamp = _unused_stamp(directory, f"{now:%Y%m%dT%H%M%SZ}")
        move(staging, directory / f"{READY_PREFIX}{stamp}")
    finish_restore(directory)
    replaced = directory / f"{REPLACED_PREFIX}{stamp}"
    return replaced if replaced.exists() else None


def finish_restore(directory: Path) -> None:
    """Complete an interrupted restore that was decided, and remove one that was not.

    Only the owner of the directory's lock may call this, and must do so before it opens the database.
    """
    with wrap_os_errors(directory):
        for ready in sorted(directory.glob(f"{READY_PREFIX}*")):
            _exchange(directory, ready, directory / f"{REPLACED_PREFIX}{ready.name.removeprefix(READY_PREFIX)}")
        if (staging := directory / STAGING_DIRECTORY).exists():
            import shutil  # it loads archive modules, and an interrupted restore is rare

            shutil.rmtree(staging)


def _exchange(directory: Path, ready: Path, replaced: Path) -> None:
    """Move each old file away and the new one to its place. A file that is not in `ready` any more has its place."""
    for new in sorted(ready.iterdir(), key=lambda file: file.name == DATABASE_FILE):  # the database last
        # The log belongs to the old database: it must be gone before the new one has the name.
        is_database = new.name == DATABASE_FILE
        _move((DATABASE_FILE, _LOG_FILE) if is_database else (new.name,), directory, replaced)
        if is_database:
            (directory / _MEMORY_FILE).unlink(missing_ok=True)
        sync_directory(directory)
        move(new, directory / new.name)
    ready.rmdir()
    sync_directory(directory)


def _move(names: Sequence[str], source: Path, target: Path) -> None:
    for name in names:
        if (source / name).exists():
            target.mkdir(mode=0o700, exist_ok=True)
            move(source / name, target / name)


def _unused_stamp(directory: Path, stamp: str) -> str:
    """Return the time, with a number if another restore in the same second has used it."""
    taken = {path.name.removeprefix(REPLACED_PREFIX) for path in directory.glob(f"{REPLACED_PREFIX}*")}
    return next(name for n in range(1, len(taken) + 2) if (name := stamp if n == 1 else f"{stamp}-{n}") not in taken)
