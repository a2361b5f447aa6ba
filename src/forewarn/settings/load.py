"""Find the settings file and the data directory, and load the service's settings."""

from collections.abc import Mapping
from pathlib import Path

from forewarn.settings.errors import SettingsConflict
from forewarn.settings.loader import (
    LoadedSettings,
    LoadOptions,
    Precedence,
    SettingSource,
    build_settings,
    find_value,
    load_struct,
    read_settings_file,
)
from forewarn.settings.schema import Preset, Settings
from forewarn.settings.types import VARIABLE_PREFIX, StoreName, flag_name, variable_name
from forewarn.settings.validation import validate

FILE_NAME = "forewarn.toml"


def load_settings(
    preset: Preset, *, flags: Mapping[str, object], environ: Mapping[str, str], file: Path | None = None
) -> LoadedSettings[Settings]:
    """Load the value of every setting. `flags` has the given flags by key; without `file`, no file is read."""
    loaded = load_struct(preset.settings, preset.name, service_options(flags, environ, file))
    loaded = LoadedSettings(_resolve_data_conflict(loaded.settings, loaded.sources), loaded.sources)
    unset = frozenset(key for key, source in loaded.sources.items() if source.precedence is Precedence.PRESET)
    validate(preset, loaded.settings, loaded.places, unset)
    return loaded


def service_options(flags: Mapping[str, object], environ: Mapping[str, str], file: Path | None) -> LoadOptions:
    """Return the sources of the service's settings."""
    return LoadOptions(
        file=None if file is None else read_settings_file(file),
        environ=environ,
        variable=variable_name,
        flags=flags,
        flag=flag_name,
    )


def _resolve_data_conflict(settings: Settings, sources: Mapping[str, SettingSource]) -> Settings:
    """Resolve `data` against `ephemeral`: the source with higher precedence wins; both at one level is an error."""
    if not settings.ephemeral or settings.data is None:
        return settings
    data, ephemeral = sources["data"], sources["ephemeral"]
    if data.precedence == ephemeral.precedence:
        raise SettingsConflict(f"{data.place} and {ephemeral.place}: data and ephemeral are mutually exclusive")
    if data.precedence > ephemeral.precedence:
        return build_settings(settings, {"ephemeral": False})
    return build_settings(settings, {"data": None})


def find_settings_file(given: str | None, environ: Mapping[str, str], directory: Path) -> Path | None:
    """Return the file to read: the given one, else `forewarn.toml` in `directory` if it exists."""
    if named := given or environ.get(VARIABLE_PREFIX + "CONFIG"):
        return Path(named).expanduser()
    usual = directory / FILE_NAME
    return usual if usual.is_file() else None


def find_data_directory(given: str | None, environ: Mapping[str, str], file: Path | None) -> Path | None:
    """Return the data directory that a flag, a variable or the file sets; None if none of them does."""
    value = _find_value("data", given, environ, file)
    return value if isinstance(value, Path) else None


def find_store(environ: Mapping[str, str], file: Path | None) -> StoreName:
    """Return the store that a variable or the file sets, else the default."""
    value = _find_value("store", None, environ, file)
    return value if isinstance(value, StoreName) else StoreName.SQLITE


def _find_value(key: str, given: str | None, environ: Mapping[str, str], file: Path | None) -> object:
    """Return one setting, None if nothing sets it. Clients need no other setting, so errors in others do not matter."""
    flags = {} if given is None else {key: given}
    return find_value(Settings, key, service_options(flags, environ, None), file)
