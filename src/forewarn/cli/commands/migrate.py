"""`forewarn migrate`: copy a fleet from a data directory into a cell of NATS, or back."""

import os
from pathlib import Path

import click

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.extras import require_cluster
from forewarn.cli.options.common import config_option, output_option
from forewarn.cli.output import Output
from forewarn.settings.load import find_settings_file
from forewarn.settings.loader import LoadOptions, load_struct, read_settings_file
from forewarn.settings.nats import SERVER_SCHEMES, NatsSettings
from forewarn.settings.schema import PRODUCTION
from forewarn.settings.types import variable_name

Place = Path | NatsSettings


@click.command()
@click.option("--from", "source", metavar="DIR|nats://…", required=True, help="The data directory or cell to copy.")
@click.option("--to", "target", metavar="nats://…|DIR", required=True, help="The new cell or data directory.")
@click.option("--cell", metavar="NAME", help="The name of the cell.  [default: nats.cell of the settings]")
@click.option("--restart", is_flag=True, help="Remove what an unfinished migration has copied, and start again.")
@config_option
@output_option
def migrate(source: str, target: str, cell: str | None, restart: bool, config: str | None, output: Output) -> None:
    """Copy a fleet from a data directory into a new cell of NATS, or from a cell into a new data directory.

    Stop the service first. The source is only read. A migration that was interrupted continues where it was stopped.
    Credentials and the number of replicas come from the section [nats] of the settings file.

    Example: forewarn migrate --from /var/lib/forewarn --to nats://10.0.0.1:4222,nats://10.0.0.2:4222
    """
    if _is_cell(source) == _is_cell(target):
        raise CliError(
            ExitCode.USAGE, "one of --from and --to must be a directory, and the other one a nats:// or tls:// address"
        )
    with require_cluster():
        from forewarn.cli.process.migrate_main import run_migrate
    run_migrate(_read_place("--from", source, cell, config), _read_place("--to", target, cell, config), restart, output)


def _is_cell(text: str) -> bool:
    return text.partition("://")[0] in SERVER_SCHEMES


def _read_place(flag: str, text: str, cell: str | None, config: str | None) -> Place:
    """Return the directory, or the section [nats] of the settings for these servers."""
    if not _is_cell(text):
        return Path(text).expanduser().absolute()
    file = find_settings_file(config, os.environ, Path.cwd())
    names = {"nats.servers": flag, "nats.cell": "--cell"}
    flags = {"nats.servers": text, **({} if cell is None else {"nats.cell": cell})}
    options = LoadOptions(
        file=None if file is None else read_settings_file(file),
        environ=os.environ,
        variable=variable_name,
        flags=flags,
        flag=lambda key: names.get(key, key),
    )
    return load_struct(PRODUCTION.settings, PRODUCTION.name, options).settings.nats
