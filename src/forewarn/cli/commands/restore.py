"""`forewarn restore`: replace the data of a stopped service by a backup."""

from pathlib import Path

import click

from forewarn.cli.extras import require_server
from forewarn.cli.options.common import FILE_PATH, config_option, output_option
from forewarn.cli.options.connection import data_option, sqlite_directory
from forewarn.cli.output import Output


@click.command()
@click.argument("file", type=FILE_PATH, metavar="FILE")
@data_option
@config_option
@output_option
def restore(file: Path, data: str | None, config: str | None, output: Output) -> None:
    """Replace the data of a stopped service by the backup in FILE. The old data is kept beside it.

    Afterwards all planned maintenance is held until `forewarn release`, and guests see a new epoch.

    Example: forewarn restore /backup/forewarn.db
    """
    with require_server():
        from forewarn.cli.process.backup_main import run_restore
    run_restore(sqlite_directory(data, config), file.absolute(), output)
