"""Where settings and data lie on a machine, as far as it takes no other setting to know."""

import sys
from collections.abc import Mapping
from pathlib import Path

from forewarn.settings.keys import VARIABLE_PREFIX
from forewarn.settings.resolving import all_said, parsed

FILE_NAME = "forewarn.toml"


def settings_file(given: str | None, environ: Mapping[str, str], here: Path) -> Path | None:
    """Return the file to read: the one that is named, else `forewarn.toml` in the directory `here` if there is one."""
    if named := given or environ.get(VARIABLE_PREFIX + "CONFIG"):
        return Path(named).expanduser()
    usual = here / FILE_NAME
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


def data_directory(given: str | None, environ: Mapping[str, str], file: Path | None) -> Path | None:
    """Return the data directory that is said anywhere, without looking at any other setting; None: nowhere."""
    flags = {} if given is None else {"data": given}
    said = [(value, place) for key, place, value in all_said(flags, environ, file) if key == "data"]
    path = parsed("data", *said[-1]) if said else None
    return path if isinstance(path, Path) else None
