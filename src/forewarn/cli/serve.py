"""`forewarn serve`: the service for real VMs."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from forewarn.cli.extras import needing_server
from forewarn.cli.options import Config, given_settings, option, setting, with_options
from forewarn.settings import PRODUCTION, Settings, find_settings_file, load_settings

OPTIONS = (
    option("ctx", typer.Context),
    option("config", Config),
    setting("data", "Keep the fleet in this directory.", "DIR"),
    setting("fleet", "Fill an empty data directory from this fleet file.", "FILE"),
    setting("listen_link_local", "Serve 169.254.169.254:80 on these interfaces.", "INTERFACE[=NETWORK],…"),
    setting("network", "The network of interfaces for which none is said.", "NAME"),
    setting("operator", "Where operators are served.", "HOST:PORT"),
    setting("platform", "Who carries maintenance out; has to be said somewhere.", "command|simulated"),
)


def _serve(ctx: typer.Context, config: str | None, **_: Any) -> None:
    """Run the service for real VMs, until SIGTERM or Ctrl-C; SIGHUP has it read its settings again.

    Settings are in forewarn.toml; `forewarn config --for serve` shows those that hold. Logs go to stderr.
    """
    flags = given_settings(ctx)
    file = find_settings_file(config, os.environ, Path.cwd())

    def read() -> Settings:
        return load_settings(PRODUCTION, flags=flags, environ=os.environ, file=file).settings

    settings = read()
    needing_server(_server)(settings, read)


serve = with_options(_serve, OPTIONS)


def _server() -> Callable[[Settings, Callable[[], Settings]], None]:
    from forewarn.cli.serving import run

    return run
