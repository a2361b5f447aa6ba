"""`forewarn up`: the whole service in one process, as an emulator."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from forewarn.cli.exits import Exit, Stop
from forewarn.cli.options import Config, Shown, option, setting, with_options
from forewarn.cli.output import Output
from forewarn.settings import EMULATOR, KEYS, Settings, resolve, settings_file

EXTRA = frozenset({"httptools", "litestar", "prometheus_client", "uvicorn", "uvloop"})
"""What the extra `[server]` brings."""

OPTIONS = (
    option("ctx", typer.Context),
    setting("data", "Keep the fleet in this directory.", "DIR"),
    setting("ephemeral", "Keep nothing: everything is gone when the service ends."),
    setting("fleet", "Fill an empty data directory from this fleet file.", "FILE"),
    setting("listen", "Where the VMs' own ports begin; port 0: wherever some are free.", "HOST:PORT|none"),
    setting("operator", "Where operators are served.", "HOST:PORT"),
    setting("listen_link_local", "Serve 169.254.169.254:80 on this interface, as root.", "INTERFACE"),
    setting("network", "The network of the VMs that call 169.254.169.254.", "NAME"),
    setting("manual_time", "Time stands still until `forewarn clock advance`."),
    setting("speed", "Divide notices and durations by this.", "NUMBER"),
    option("config", Config),
    option("output", Shown, Output.TABLE),
)


def _up(ctx: typer.Context, config: str | None, output: Output, **_: Any) -> None:
    """Start the emulator: the whole service in one process, until Ctrl-C.

    Without --fleet it begins with a demonstration fleet. A second start on the same data goes on where it was.
    """
    file = settings_file(config, os.environ, Path.cwd())
    resolved = resolve(EMULATOR, flags=_given(ctx), environ=os.environ, file=file)
    _server()(resolved.settings, output)


up = with_options(_up, OPTIONS)


def _given(ctx: typer.Context) -> dict[str, object]:
    """Return the settings that were typed as flags; those in the environment are found there."""
    sources = {name: ctx.get_parameter_source(name) for name in ctx.params if name in KEYS}
    return {name: ctx.params[name] for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def _server() -> Callable[[Settings, Output], None]:
    try:
        from forewarn.cli.starting import run
    except ModuleNotFoundError as error:
        if error.name in EXTRA:
            raise Stop(Exit.USAGE, f"the service needs {error.name}: pip install 'forewarn[server]'") from None
        raise
    return run
