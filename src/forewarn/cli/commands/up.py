"""`forewarn up`: start the emulator, the whole service in one process."""

import gc
import os
from pathlib import Path

import click
from click.core import ParameterSource

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.extras import require_server
from forewarn.cli.options.common import (
    FILE_PATH,
    config_option,
    given_settings,
    output_option,
    setting_option,
    shared_setting_option,
    usage_errors,
)
from forewarn.cli.output import Output
from forewarn.settings.errors import InvalidSettingsFile
from forewarn.settings.load import find_settings_file, load_settings
from forewarn.settings.rehearsal import Rehearsal, load_rehearsal
from forewarn.settings.schema import EMULATOR, Settings


@click.command()
@shared_setting_option("data")
@setting_option("ephemeral", "Keep all data in memory; nothing is saved.")
@shared_setting_option("fleet")
@setting_option("listen", "The first of the VMs' ports; port 0: any free ports.", "HOST[:PORT]|none")
@setting_option("listen_shared", "One port for all VMs, named in the path: /vm/NAME/metadata/…", "HOST[:PORT]|none")
@setting_option("allow_remote", "Let other machines reach the ports; the emulator protects nothing.")
@shared_setting_option("operator")
@setting_option("listen_link_local", "Serve 169.254.169.254:80 on these interfaces, as root.", "INTERFACE[=NETWORK],…")
@shared_setting_option("network")
@setting_option("manual_time", "Use a manual clock; `forewarn clock advance` moves it.")
@setting_option("speed", "Divide notices and durations by this.", "NUMBER")
@click.option(
    "--like",
    type=FILE_PATH,
    metavar="FILE",
    help="Rehearse with the policy of this file of `forewarn serve`; nothing real is called.",
)
@click.option("--closed-gate", metavar="NAME", multiple=True, help="With --like: a gate that is closed; repeatable.")
@config_option
@output_option
def up(config: str | None, output: Output, like: Path | None, closed_gate: tuple[str, ...], **flags: object) -> None:
    """Start the emulator: the whole service in one process, until Ctrl-C.

    Without --fleet, start with a demonstration fleet. A restart on the same data continues where it stopped.
    """
    if like is not None:
        if click.get_current_context().get_parameter_source("config") is ParameterSource.COMMANDLINE:
            raise CliError(ExitCode.USAGE, "--like and --config are mutually exclusive: --like is the settings file")
        with usage_errors("--like", InvalidSettingsFile):
            settings, rehearsal = load_rehearsal(like, flags=given_settings(flags), closed_gates=closed_gate)
        _run(settings, output, like, rehearsal)
        return
    if closed_gate:
        raise CliError(ExitCode.USAGE, "--closed-gate needs --like: other gates are really checked")
    file = find_settings_file(config, os.environ, Path.cwd())
    resolved = load_settings(EMULATOR, flags=given_settings(flags), environ=os.environ, file=file)
    _run(resolved.settings, output, file, None)


def _run(settings: Settings, output: Output, file: Path | None, rehearsal: Rehearsal | None) -> None:
    gc.disable()  # importing two hundred modules creates no garbage, and frozen, they are not scanned afterwards
    try:
        with require_server():
            from forewarn.cli.process.up_main import run
            from forewarn.fleet.event_loop import freeze_gc

            freeze_gc()
    finally:
        gc.enable()
    run(settings, output, file, rehearsal)
