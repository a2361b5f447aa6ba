"""Load settings from flags, environment, `forewarn.toml` and preset, and record the source of each value."""

import tomllib
from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from forewarn.settings.errors import InvalidSetting, InvalidSettingsFile, SettingNotFound, SettingsConflict
from forewarn.settings.gates import InvalidGate
from forewarn.settings.schema import KEYS, Preset, Settings, flag_name, iter_values, variable_name
from forewarn.settings.types import DEMONSTRATION, NONE, resolve_path
from forewarn.settings.validation import validate


class Precedence(IntEnum):
    """Where a value can come from; the higher one wins."""

    PRESET = 0
    FILE = 1
    ENVIRONMENT = 2
    FLAG = 3


class SettingSource(NamedTuple):
    """Where a value came from: a flag, a variable, a file or a preset, by name."""

    precedence: Precedence
    name: str

    def __str__(self) -> str:
        return f"{self.name} preset" if self.precedence is Precedence.PRESET else self.name


class LoadedSettings(msgspec.Struct, frozen=True):
    """The settings that hold, and the origin of each by its key."""

    settings: Settings
    sources: dict[str, SettingSource]


def load_settings(
    preset: Preset, *, flags: Mapping[str, object], environ: Mapping[str, str], file: Path | None = None
) -> LoadedSettings:
    """Find the value of every setting. `flags` has those that were given, by key; without `file`, none is read."""
    found_values = {
        key: (preset_value, SettingSource(Precedence.PRESET, preset.name))
        for key, preset_value in iter_values(preset.settings)
    }
    for key, source, value in iter_overrides(flags, environ, file):
        found_values[key] = (parse_value(key, value, source), source)
    sources = {key: origin for key, (_, origin) in found_values.items()}
    found = {key: value for key, (value, _) in found_values.items()}
    _resolve_data_conflict(found, sources)
    settings = _build_settings(preset.settings, found)
    unset = frozenset(key for key, origin in sources.items() if origin.precedence is Precedence.PRESET)
    validate(preset, settings, {key: origin.name for key, origin in sources.items()}, unset)
    return LoadedSettings(settings, sources)


def iter_overrides(
    flags: Mapping[str, object], environ: Mapping[str, str], file: Path | None
) -> Iterator[tuple[str, SettingSource, object]]:
    """Give what is said anywhere, the weakest first."""
    if file is not None:
        for key, value in _read_file(file):
            yield key, SettingSource(Precedence.FILE, str(file)), value
    for key in KEYS:
        if value := environ.get(variable_name(key)):
            yield key, SettingSource(Precedence.ENVIRONMENT, variable_name(key)), value
    for key, value_given in flags.items():
        yield key, SettingSource(Precedence.FLAG, flag_name(key)), value_given


def parse_value(key: str, value: object, source: SettingSource) -> object:
    """Read a value as its key takes it."""
    setting_type = KEYS[key]
    try:
        return setting_type.parse(value)
    except InvalidGate as wrong:
        raise InvalidSetting(source.name, f"{key}.{wrong.key}", wrong.value, wrong.allowed) from None
    except (TypeError, ValueError, KeyError):
        raise InvalidSetting(source.name, key, value, setting_type.allowed) from None


def _read_file(file: Path) -> Iterator[tuple[str, object]]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettingsFile(file, error.strerror or str(error)) from error
    except ValueError as error:
        raise InvalidSettingsFile(file, f"this is not TOML: {error}") from error
    for key, value in _iter_file_keys(content, file):
        # What a file names lies beside it, wherever the program was started.
        is_location = KEYS[key].is_path and isinstance(value, str) and value not in ("", NONE, DEMONSTRATION)
        yield key, resolve_path(file.parent, str(value)) if is_location else value


def _iter_file_keys(content: Mapping[str, object], file: Path, section: str = "") -> Iterator[tuple[str, object]]:
    for name, value in content.items():
        key = section + name
        if isinstance(value, dict) and any(known.startswith(f"{key}.") for known in KEYS):
            yield from _iter_file_keys(value, file, f"{key}.")
        elif key in KEYS:
            yield key, value
        else:
            raise SettingNotFound(str(file), key, _keys_in(section))


def _keys_in(section: str) -> tuple[str, ...]:
    inside = (key.removeprefix(section) for key in KEYS if key.startswith(section))
    return tuple(dict.fromkeys(key.split(".")[0] for key in inside))


def _build_settings(base: Settings, found: Mapping[str, object]) -> Settings:
    top = {key: value for key, value in found.items() if "." not in key}
    for section in {key.split(".")[0] for key in found if "." in key}:
        fields = {key.split(".")[1]: value for key, value in found.items() if key.startswith(f"{section}.")}
        top[section] = msgspec.structs.replace(getattr(base, section), **fields)
    return msgspec.structs.replace(base, **top)


def _resolve_data_conflict(found: dict[str, object], sources: dict[str, SettingSource]) -> None:
    """A data directory and none at all exclude each other; whichever was said closer to the user wins."""
    if not found["ephemeral"] or found["data"] is None:
        return
    data, ephemeral = sources["data"], sources["ephemeral"]
    if data.precedence == ephemeral.precedence:
        raise SettingsConflict(
            f"{data.name} and {ephemeral.name}: a data directory, or none (ephemeral)? Say one of them"
        )
    if data.precedence > ephemeral.precedence:
        found["ephemeral"] = False
    else:
        found["data"] = None
