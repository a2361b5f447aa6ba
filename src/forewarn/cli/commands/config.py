"""`forewarn config`: the effective settings and the source of each."""

import os
from pathlib import Path

import click
import msgspec

from forewarn.cli.options.common import config_option, output_option
from forewarn.cli.output import Output, write_json
from forewarn.cli.views.tables import Column, write_table
from forewarn.settings.load import find_settings_file, load_settings
from forewarn.settings.loader import LoadedSettings, iter_values
from forewarn.settings.paths import user_data_directory
from forewarn.settings.schema import (
    KEYS,
    PRESETS,
    SIMULATED_TIME_KEYS,
    UNPROTECTED_KEYS,
    Preset,
    Settings,
)
from forewarn.settings.types import format_value, variable_name


class EffectiveSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting in JSON output."""

    key: str
    value: str | int | float | bool | list[str]
    origin: str
    variable: str
    allowed: str


@click.command()
@click.option(
    "--for",
    "preset",
    type=click.Choice(list(PRESETS)),
    metavar="|".join(PRESETS),
    default="up",
    show_default=True,
    help="The command whose settings are shown.",
)
@config_option
@output_option
def config(preset: str, config: str | None, output: Output) -> None:
    """Show the effective settings and where each comes from."""
    resolved = load_settings(
        PRESETS[preset], flags={}, environ=os.environ, file=find_settings_file(config, os.environ, Path.cwd())
    )
    effective = _effective_settings(_with_directory(resolved), PRESETS[preset])
    if output is Output.JSON:
        write_json(effective)
        return
    rows = ((each.key, _value_text(each.value), each.origin) for each in effective)
    write_table((Column("KEY"), Column("VALUE"), Column("FROM")), rows)


def _with_directory(resolved: LoadedSettings[Settings]) -> LoadedSettings[Settings]:
    """Fill in the default data directory if none is set."""
    settings = resolved.settings
    if settings.ephemeral or settings.data is not None:
        return resolved
    return LoadedSettings(msgspec.structs.replace(settings, data=user_data_directory(os.environ)), resolved.sources)


def _effective_settings(resolved: LoadedSettings[Settings], preset: Preset) -> list[EffectiveSetting]:
    """Return all settings except those that the preset does not allow."""
    return [
        EffectiveSetting(
            key=key,
            value=format_value(value),
            origin=str(resolved.sources[key]),
            variable=variable_name(key),
            allowed=KEYS[key].allowed,
        )
        for key, value in iter_values(resolved.settings)
        if (preset.simulated_time or key not in SIMULATED_TIME_KEYS)
        and (preset.loopback_only or key not in UNPROTECTED_KEYS)
    ]


def _value_text(value: str | int | float | bool | list[str]) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(value) if isinstance(value, list) else f"{value:g}" if isinstance(value, float) else str(value)
