"""Paths of the settings file and of the data directory."""

import sys
from collections.abc import Mapping
from pathlib import Path

from forewarn.settings.load import service_options
from forewarn.settings.loader import iter_overrides, parse_value
from forewarn.settings.schema import VARIABLE_PREFIX, Settings

FILE_NAME = "forewarn.toml"


def find_settings_file(given: str | None, environ: Mapping[str, str], directory: Path) -> Path | None:
    """Return the file to read: the one that is named, else `forewarn.toml` in `directory` if it exists."""
    if named := given or environ.get(VARIABLE_PREFIX + "CONFIG"):
        return Path(named).expanduser()
    usual = directory / FILE_NAME
    return usual if usual.is_file() else None


def user_data_directory(environ: Mapping[str, str], *, system: str = sys.platform) -> Path:
    """Return where data of the user's own belongs on this system."""
    home = Path(environ.get("HOME") or Path.home())
    if system == "darwin":
        return home / "Library" / "Application Support" / "forewarn"
    if system == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "forewarn"
    given = Path(environ.get("XDG_DATA_HOME") or "")
    return (given if given.is_absolute() else home / ".local" / "share") / "forewarn"


def find_data_directory(given: str | None, environ: Mapping[str, str], file: Path | None) -> Path | None:
    """Return the data directory that is said anywhere, without looking at any other setting; None: nowhere."""
    flags = {} if given is None else {"data": given}
    options = service_options(flags, environ, file)
    found = [(value, source) for key, source, value in iter_overrides(Settings, options) if key == "data"]
    path = parse_value(Settings, "data", *found[-1]) if found else None
    return path if isinstance(path, Path) else None
