"""`forewarn cluster …`: create, show and check the cell of the cluster store."""

import os
from collections.abc import Callable
from pathlib import Path

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.extras import require_cluster
from forewarn.cli.options.common import CommandGroup, config_option, output_option
from forewarn.cli.output import Output
from forewarn.settings.load import find_settings_file, load_settings
from forewarn.settings.nats import NatsSettings
from forewarn.settings.schema import PRODUCTION, Settings
from forewarn.settings.types import StoreName

app = CommandGroup()

Run = Callable[[NatsSettings, Output], None]


@app.command("init")
@config_option
@output_option
def init(config: str | None, output: Output) -> None:
    """Create the cell that the settings name, and its first admin token.

    The NATS servers must be running. The token is written into the data directory. A cell that exists is left as it is.

    Example: forewarn cluster init --config /etc/forewarn/forewarn.toml
    """

    def load() -> Callable[[Settings, Output], None]:
        from forewarn.cli.process.cluster_main import run_init

        return run_init

    require_cluster(load)(_read_all_settings(config), output)


@app.command("status")
@config_option
@output_option
def status(config: str | None, output: Output) -> None:
    """Show the servers of the cell, its size, and which service uses it.

    Example: forewarn cluster status -o json
    """

    def load() -> Run:
        from forewarn.cli.process.cluster_main import run_status

        return run_status

    require_cluster(load)(_read_settings(config), output)


@app.command("check")
@config_option
@output_option
def check(config: str | None, output: Output) -> None:
    """Check that the cell can be used and all servers are current.

    It compares the settings of the cell and makes a test write. With the settings of a host, it tries instead what
    the host's user must not be able to do. Problems end with exit code 1.

    Example: forewarn cluster check --config /etc/forewarn/forewarn.toml
    """

    def load() -> Callable[[NatsSettings, Output, str | None], None]:
        from forewarn.cli.process.cluster_main import run_check

        return run_check

    settings = _read_all_settings(config)
    require_cluster(load)(settings.nats, output, settings.host)


def _read_settings(config: str | None) -> NatsSettings:
    return _read_all_settings(config).nats


def _read_all_settings(config: str | None) -> Settings:
    file = find_settings_file(config, os.environ, Path.cwd())
    settings = load_settings(PRODUCTION, flags={}, environ=os.environ, file=file).settings
    if settings.store is not StoreName.NATS:
        raise CliError(
            ExitCode.USAGE, f'--config: its store is {settings.store.value}; set store = "nats" and nats.servers'
        )
    return settings
