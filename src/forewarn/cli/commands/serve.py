"""`forewarn serve`: run the service in production."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from forewarn.cli.extras import require_server
from forewarn.cli.options.common import Config, option, setting_option, settings_from_flags, with_options
from forewarn.settings import PRODUCTION, Settings, find_settings_file, load_settings

OPTIONS = (
    option("ctx", typer.Context),
    option("config", Config),
    setting_option("data", "Keep the fleet in this directory.", "DIR"),
    setting_option("fleet", "Fill an empty data directory from this fleet file.", "FILE"),
    setting_option("listen_link_local", "Serve 169.254.169.254:80 on these interfaces.", "INTERFACE[=NETWORK],…"),
    setting_option("network", "The network of interfaces for which none is said.", "NAME"),
    setting_option("operator", "Where operators are served.", "HOST:PORT"),
    setting_option("platform", "Who carries maintenance out; has to be said somewhere.", "command|simulated"),
)


def _serve(ctx: typer.Context, config: str | None, **_: Any) -> None:
    """Run the service for real VMs, until SIGTERM or Ctrl-C; SIGHUP has it read its settings again.

    Settings are in forewarn.toml; `forewarn config --for serve` shows those that hold. Logs go to stderr.
    """
    flags = settings_from_flags(ctx)
    file = find_settings_file(config, os.environ, Path.cwd())

    def read() -> Settings:
        return load_settings(PRODUCTION, flags=flags, environ=os.environ, file=file).settings

    settings = read()
    require_server(_load_server)(settings, read)


serve = with_options(_serve, OPTIONS)


def _load_server() -> Callable[[Settings, Callable[[], Settings]], None]:
    from forewarn.cli.process.serve_main import run

    return run
