"""`forewarn up`: the whole service in one process, as an emulator."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from forewarn.cli.extras import needing_server
from forewarn.cli.options import Config, Shown, given_settings, option, setting, with_options
from forewarn.cli.output import Output
from forewarn.settings import EMULATOR, Settings, find_settings_file, load_settings

OPTIONS = (
    option("ctx", typer.Context),
    setting("data", "Keep the fleet in this directory.", "DIR"),
    setting("ephemeral", "Keep nothing: everything is gone when the service ends."),
    setting("fleet", "Fill an empty data directory from this fleet file.", "FILE"),
    setting("listen", "Where the VMs' own ports begin; port 0: wherever some are free.", "HOST:PORT|none"),
    setting("operator", "Where operators are served.", "HOST:PORT"),
    setting("listen_link_local", "Serve 169.254.169.254:80 on these interfaces, as root.", "INTERFACE[=NETWORK],…"),
    setting("network", "The network of interfaces for which none is said.", "NAME"),
    setting("manual_time", "Time stands still until `forewarn clock advance`."),
    setting("speed", "Divide notices and durations by this.", "NUMBER"),
    option("config", Config),
    option("output", Shown, Output.TABLE),
)


def _up(ctx: typer.Context, config: str | None, output: Output, **_: Any) -> None:
    """Start the emulator: the whole service in one process, until Ctrl-C.

    Without --fleet it begins with a demonstration fleet. A second start on the same data goes on where it was.
    """
    file = find_settings_file(config, os.environ, Path.cwd())
    resolved = load_settings(EMULATOR, flags=given_settings(ctx), environ=os.environ, file=file)
    needing_server(_server)(resolved.settings, output)


up = with_options(_up, OPTIONS)


def _server() -> Callable[[Settings, Output], None]:
    from forewarn.cli.starting import run

    return run
