"""Errors in settings.

SettingsError
├── InvalidSettingsFile  the file cannot be read, or is not TOML
├── SettingNotFound      a key that does not exist
├── InvalidSetting       a value that is not allowed
├── MissingSetting       a required value is not set
└── SettingsConflict     settings that exclude or require each other
"""

from pathlib import Path

from forewarn.core.base_error import BaseError


class SettingsError(BaseError):
    """The service cannot start with these settings; the message names the place, the key and what is allowed."""


class InvalidSettingsFile(SettingsError):
    """The file cannot be read, or is not TOML."""

    template = "{path}: {why}"
    path: Path
    why: str


class SettingNotFound(SettingsError):
    """The key does not exist."""

    template = "{source}: {key}: {problem}"
    source: str
    key: str
    problem: str


class InvalidSetting(SettingsError):
    """The value is not allowed."""

    template = "{source}: {key} takes {allowed}{problem}"
    source: str
    key: str
    value: str
    """The value as it is written at its source."""
    allowed: str
    reason: str = ""
    """What is wrong with the value, if a rule says more than that it is not allowed."""

    @property
    def problem(self) -> str:
        """The reason, else the value."""
        return f"; {self.reason}" if self.reason else f", not {self.value}"


class MissingSetting(SettingsError):
    """A required value is not set, and it has no safe default."""

    template = "{key} is not set, and {why}: it takes {allowed}"
    key: str
    allowed: str
    why: str


class SettingsConflict(SettingsError):
    """Settings exclude each other, or one requires another."""

    template = "{problem}"
    problem: str
