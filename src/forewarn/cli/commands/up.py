"""`forewarn up`: start the emulator, the whole service in one process."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from forewarn.cli.extras import require_server
from forewarn.cli.options.common import Config, OutputOption, option, setting_option, settings_from_flags, with_options
from forewarn.cli.output import Output
from forewarn.settings import EMULATOR, Settings, find_settings_file, load_settings

OPTIONS = (
    option("ctx", typer.Context),
    setting_option("data", "Keep the fleet in this directory.", "DIR"),
    setting_option("ephemeral", "Keep nothing: everything is gone when the service ends."),
    setting_option("fleet", "Fill an empty data directory from this fleet file.", "FILE"),
    setting_option("listen", "Where the VMs' own ports begin; port 0: wherever some are free.", "HOST:PORT|none"),
    setting_option("operator", "Where operators are served.", "HOST:PORT"),
    setting_option(
        "listen_link_local", "Serve 169.254.169.254:80 on these interfaces, as root.", "INTERFACE[=NETWORK],…"
    ),
    setting_option("network", "The network of interfaces for which none is said.", "NAME"),
    setting_option("manual_time", "Time stands still until `forewarn clock advance`."),
    setting_option("speed", "Divide notices and durations by this.", "NUMBER"),
    option("config", Config),
    option("output", OutputOption, Output.TABLE),
)


def _up(ctx: typer.Context, config: str | None, output: Output, **_: Any) -> None:
    """Start the emulator: the whole service in one process, until Ctrl-C.

    Without --fleet it begins with a demonstration fleet. A second start on the same data goes on where it was.
    """
    file = find_settings_file(config, os.environ, Path.cwd())
    resolved = load_settings(EMULATOR, flags=settings_from_flags(ctx), environ=os.environ, file=file)
    require_server(_load_server)(resolved.settings, output)


up = with_options(_up, OPTIONS)


def _load_server() -> Callable[[Settings, Output], None]:
    from forewarn.cli.process.up_main import run

    return run
