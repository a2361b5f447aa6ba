"""Backup of a data directory into one file, while its service runs or while it is stopped."""

import os
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path

from forewarn import __version__
from forewarn.api import local_service
from forewarn.compose.data_directory import PRESET_FILE
from forewarn.core.base_error import BaseError
from forewarn.files import check_links, read_file, replace_path
from forewarn.store.sqlite.backup import BackupSource, DatabaseContent, copy_database, finish_backup
from forewarn.store.sqlite.database import DATABASE_FILE, open_for_reading
from forewarn.store.sqlite.directory import wrap_os_errors
from forewarn.store.sqlite.store import STORE_FILES

StepProgress = Callable[[str, int, int], None]
"""Gets what is being done, how much of it is done, and how much there is; 0 of 1 if only the end can be seen."""


class DatabaseNotFound(BaseError):
    """The directory has no database."""

    template = "{directory} has no {name} (a service that was started with --ephemeral keeps nothing on disk)"
    directory: Path
    name: str = DATABASE_FILE


class BackupExists(BaseError):
    """The file of the backup already exists."""

    template = "{file} already exists: choose another file, or use --replace"
    file: Path


class WrongOwner(BaseError):
    """The data directory belongs to another user, who could not read files that this one creates in it."""

    template = "{directory} belongs to {owner}, who could not use files of another user: run this command as {owner}"
    directory: Path
    owner: str


def back_up(directory: Path, file: Path, *, replace: bool, now: datetime, on_progress: StepProgress) -> DatabaseContent:
    """Write a verified backup of the directory's database; return what it contains.

    The file appears when it is complete, readable only by its owner.
    """
    database = directory / DATABASE_FILE
    if not database.is_file():
        raise DatabaseNotFound(directory)
    if file.exists() and not replace:
        raise BackupExists(file)
    check_links(directory, (*STORE_FILES, PRESET_FILE))
    if local_service.read_service(directory) is None:
        check_owner(directory)  # SQLite may create its log there
    preset = directory / PRESET_FILE
    origin = BackupSource(
        made_at=now,
        version=__version__,
        preset=read_file(preset).decode().strip() if preset.exists() else "",
    )
    with wrap_os_errors(file), replace_path(file) as temporary:
        with closing(open_for_reading(database)) as original:
            copy_database(original, database, temporary, lambda done, total: on_progress("Copying", done, total))
        on_progress("Checking the copy", 0, 1)
        return finish_backup(temporary, origin)


def check_owner(directory: Path) -> None:
    """Refuse to create files in another user's directory, as root can."""
    if sys.platform == "win32" or not directory.exists() or (owner := directory.stat().st_uid) == os.geteuid():
        return
    import pwd

    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = f"user {owner}"
    raise WrongOwner(directory, name)
