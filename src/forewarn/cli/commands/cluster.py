"""`forewarn cluster …`: create, show, check, configure, upgrade and renew the cell of the cluster store."""

import os
import sys
from pathlib import Path

import click

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.extras import require_cluster
from forewarn.cli.options.common import CommandGroup, config_option, output_option, reason_option
from forewarn.cli.output import Output
from forewarn.settings.load import find_settings_file, load_settings
from forewarn.settings.loader import Precedence, SettingSource, parse_value
from forewarn.settings.nats import NatsSettings
from forewarn.settings.schema import KEYS, PRODUCTION, Settings
from forewarn.settings.types import StoreName

app = CommandGroup()


@app.command("init")
@config_option
@output_option
def init(config: str | None, output: Output) -> None:
    """Create the cell of the settings, its first token and policy.

    The NATS servers must be running. The token is written into the data directory, and the policy is taken from the
    settings. A cell that exists is left as it is.

    Example: forewarn cluster init --config /etc/forewarn/forewarn.toml
    """
    with require_cluster():
        from forewarn.cli.process.cluster_main import run_init
    run_init(_read_all_settings(config), output)


@app.command("status")
@config_option
@output_option
def status(config: str | None, output: Output) -> None:
    """Show the servers of the cell, its size, its processes and leases.

    CLOCK is how far the clock of a process is ahead of the servers.

    Example: forewarn cluster status -o json
    """
    with require_cluster():
        from forewarn.cli.process.cluster_main import run_status
    run_status(_read_settings(config), output)


@app.command("check")
@config_option
@output_option
def check(config: str | None, output: Output) -> None:
    """Check that the cell can be used and all servers are current.

    It compares the settings of the cell and makes a test write. With the settings of a host, it tries instead what
    the host's user must not be able to do. Problems end with exit code 1.

    Example: forewarn cluster check --config /etc/forewarn/forewarn.toml
    """
    settings = _read_all_settings(config)
    with require_cluster():
        from forewarn.cli.process.cluster_main import run_check
    run_check(settings.nats, output, settings.host)


@app.command("config")
@click.argument("values", nargs=-1, metavar="[KEY=VALUE]...")
@reason_option
@config_option
@output_option
def configure(values: tuple[str, ...], reason: str, config: str | None, output: Output) -> None:
    """Show the policy of the cell, or change values of it.

    The policy is a record of the cell, which all control nodes apply at once and without a restart. The keys are those
    of `policy` in the settings, without `policy.`; `policy` in the settings of a control node has no effect.

    Example: forewarn cluster config idle_after=2d user_operations=20 --reason "long weekend"
    """
    settings = _read_all_settings(config)
    with require_cluster():
        from forewarn.cli.process.cluster_main import run_config
    run_config(settings, dict(map(_parse_value, values)), reason, output)


@app.command("upgrade")
@config_option
@output_option
def upgrade(config: str | None, output: Output) -> None:
    """Upgrade the cell after all processes have a new version.

    It corrects the settings of the stream, adds what a cell of an older version lacks, and lets all processes save
    records in the newest format. Before that, it checks that all control nodes and hosts know this format.

    Example: forewarn cluster upgrade --config /etc/forewarn/forewarn.toml
    """
    with require_cluster():
        from forewarn.cli.process.cluster_main import run_upgrade
    run_upgrade(_read_all_settings(config), output)


@app.command("renew")
@click.option("--yes", "-y", is_flag=True, help="Renew without asking.")
@config_option
@output_option
def renew(yes: bool, config: str | None, output: Output) -> None:
    """Begin new epochs after NATS has restored the stream.

    Guests may have seen documents that a restored stream does not know, and VMs may have been maintained since. As
    after `forewarn restore`, the fleet is held, and work that had not ended is unknown. A control node that has read
    more than the stream has does this by itself when it starts.

    Example: forewarn cluster renew --config /etc/forewarn/forewarn.toml --yes
    """
    with require_cluster():
        from forewarn.cli.process.cluster_main import run_renew
    settings = _read_settings(config)
    if not yes:
        what = f"The fleet of cell {settings.cell} is held, and unfinished work becomes unknown."
        if not sys.stdin.isatty():
            raise CliError(ExitCode.USAGE, f"{what} To confirm, add --yes")
        if not click.confirm(f"{what} Go ahead?", err=True):
            raise CliError(ExitCode.FAILED, "aborted; nothing was changed")
    run_renew(settings, output)


def _parse_value(text: str) -> tuple[str, object]:
    """Parse KEY=VALUE, where the key is one of the policy."""
    key, separator, value = text.partition("=")
    if not separator or f"policy.{key}" not in KEYS:
        allowed = ", ".join(each.removeprefix("policy.") for each in KEYS if each.startswith("policy."))
        raise CliError(ExitCode.USAGE, f"{text!r} is not KEY=VALUE with one of the keys {allowed}")
    return key, parse_value(Settings, f"policy.{key}", value, SettingSource(Precedence.FLAG, key))


def _read_settings(config: str | None) -> NatsSettings:
    return _read_all_settings(config).nats


def _read_all_settings(config: str | None) -> Settings:
    file = find_settings_file(config, os.environ, Path.cwd())
    loaded = load_settings(PRODUCTION, flags={}, environ=os.environ, file=file)
    settings = loaded.settings
    if settings.store is not StoreName.NATS:
        source = loaded.sources["store"]
        origin = file or "default settings" if source.precedence is Precedence.PRESET else source.place
        raise CliError(
            ExitCode.USAGE,
            f"{origin}: the store is {settings.store.value}; "
            'set store = "nats" and nats.servers in the file of --config',
        )
    return settings
