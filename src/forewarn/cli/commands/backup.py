"""`forewarn backup`: copy the data of a service into one verified file, while it runs."""

from pathlib import Path

import click

from forewarn.cli.extras import require_server
from forewarn.cli.options.common import FILE_PATH, config_option, output_option
from forewarn.cli.options.connection import data_option, sqlite_directory
from forewarn.cli.output import Output


@click.command()
@click.argument("file", type=FILE_PATH, metavar="FILE")
@click.option("--replace", is_flag=True, help="Replace FILE if it exists, once the new backup is complete.")
@data_option
@config_option
@output_option
def backup(file: Path, replace: bool, data: str | None, config: str | None, output: Output) -> None:
    """Back up the data of a service into FILE. The service keeps running and saving meanwhile.

    Run it on the service's machine, as its user. FILE is verified, and appears only when it is complete.

    Example: forewarn backup /backup/forewarn.db --replace
    """
    with require_server():
        from forewarn.cli.process.backup_main import run_backup
    run_backup(sqlite_directory(data, config), file.absolute(), replace, output)
