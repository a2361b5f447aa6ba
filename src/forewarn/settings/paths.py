"""The user's own directories: for data, and for files that can be lost."""

import sys
from collections.abc import Mapping
from pathlib import Path


def user_data_directory(environ: Mapping[str, str], *, system: str = sys.platform) -> Path:
    """Return the directory for the user's own data on this system."""
    home = Path(environ.get("HOME") or Path.home())
    if system == "darwin":
        return home / "Library" / "Application Support" / "forewarn"
    if system == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "forewarn"
    given = Path(environ.get("XDG_DATA_HOME") or "")
    return (given if given.is_absolute() else home / ".local" / "share") / "forewarn"


def user_cache_directory(environ: Mapping[str, str], *, system: str = sys.platform) -> Path:
    """Return the directory for files of the user that can be lost."""
    if system == "win32":
        return user_data_directory(environ, system=system) / "cache"
    home = Path(environ.get("HOME") or Path.home())
    if system == "darwin":
        return home / "Library" / "Caches" / "forewarn"
    given = Path(environ.get("XDG_CACHE_HOME") or "")
    return (given if given.is_absolute() else home / ".cache") / "forewarn"
