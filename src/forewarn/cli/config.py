"""`forewarn config`: the settings that hold, and where each came from."""

import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from forewarn.cli.options import Config, Shown
from forewarn.cli.output import Output, write_json
from forewarn.cli.tables import Column, write_table
from forewarn.settings import (
    KEYS,
    OWN_TIME,
    PRESETS,
    Preset,
    Resolved,
    resolve,
    settings_file,
    user_data_directory,
    values,
    variable,
    written,
)

For = Annotated[str, typer.Option("--for", metavar="|".join(PRESETS), help="The command whose settings are shown.")]


class Effective(msgspec.Struct, frozen=True, kw_only=True):
    """A setting, as programs are shown it."""

    key: str
    value: str | int | float | bool | list[str]
    origin: str
    variable: str
    takes: str


def config(for_: For = "up", config: Config = None, output: Shown = Output.TABLE) -> None:
    """Show the settings that hold here, and where each came from."""
    if for_ not in PRESETS:
        raise typer.BadParameter(f"{for_} is not among {' and '.join(PRESETS)}.", param_hint="--for")
    resolved = resolve(PRESETS[for_], flags={}, environ=os.environ, file=settings_file(config, os.environ, Path.cwd()))
    shown = _shown(_with_directory(resolved), PRESETS[for_])
    if output is Output.JSON:
        write_json(shown)
        return
    rows = ((each.key, _text(each.value), each.origin) for each in shown)
    write_table((Column("KEY"), Column("VALUE"), Column("FROM")), rows)


def _with_directory(resolved: Resolved) -> Resolved:
    """Say which directory is meant where none is said."""
    settings = resolved.settings
    if settings.ephemeral or settings.data is not None:
        return resolved
    return Resolved(msgspec.structs.replace(settings, data=user_data_directory(os.environ)), resolved.origins)


def _shown(resolved: Resolved, preset: Preset) -> list[Effective]:
    """Return all settings but those that the preset does not allow."""
    return [
        Effective(
            key=key,
            value=written(value),
            origin=str(resolved.origins[key]),
            variable=variable(key),
            takes=KEYS[key].allowed,
        )
        for key, value in values(resolved.settings)
        if preset.own_time or key not in OWN_TIME
    ]


def _text(value: str | int | float | bool | list[str]) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(value) if isinstance(value, list) else f"{value:g}" if isinstance(value, float) else str(value)
