"""Errors in settings.

SettingsError
├── InvalidSettingsFile  the file cannot be read, or is not TOML
├── SettingNotFound      a key that does not exist
├── InvalidSetting       a value that is not allowed
├── MissingSetting       a required value is not set
└── SettingsConflict     settings that exclude or require each other
"""

from pathlib import Path


class SettingsError(Exception):
    """The service cannot be started with these settings; the message names the place, the key and what is allowed."""


class InvalidSettingsFile(SettingsError):
    """The file cannot be read, or is not TOML."""

    def __init__(self, path: Path, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"{path}: {why}")


class SettingNotFound(SettingsError):
    """There is no such key."""

    def __init__(self, source: str, key: str, known: tuple[str, ...]) -> None:
        self.source, self.key, self.known = source, key, known
        super().__init__(f"{source}: there is no setting {key}; known here: {', '.join(known)}")


class InvalidSetting(SettingsError):
    """The value is not allowed."""

    def __init__(self, source: str, key: str, value: object, allowed: str) -> None:
        self.source, self.key, self.value, self.allowed = source, key, value, allowed
        super().__init__(f"{source}: {key} takes {allowed}, not {value!r}")


class MissingSetting(SettingsError):
    """The value has to be said, because no other one would be right."""

    def __init__(self, key: str, allowed: str, why: str) -> None:
        self.key, self.allowed, self.why = key, allowed, why
        super().__init__(f"{key} is not set, and {why}: it takes {allowed}")


class SettingsConflict(SettingsError):
    """Settings exclude each other, or one needs another."""
