"""What can be wrong with settings.

SettingsError
├── UnreadableFile   the file cannot be read, or is not TOML
├── UnknownSetting   a key that does not exist
├── BadSetting       a value that is not allowed
├── MissingSetting   a value that has to be said
└── Contradiction    settings that exclude each other, or need each other
"""

from pathlib import Path


class SettingsError(Exception):
    """The service cannot be started with these settings; the message names the place, the key and what is allowed."""


class UnreadableFile(SettingsError):
    """The file cannot be read, or is not TOML."""

    def __init__(self, path: Path, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"{path}: {why}")


class UnknownSetting(SettingsError):
    """There is no such key."""

    def __init__(self, place: str, key: str, known: tuple[str, ...]) -> None:
        self.place, self.key, self.known = place, key, known
        super().__init__(f"{place}: there is no setting {key}; known here: {', '.join(known)}")


class BadSetting(SettingsError):
    """The value is not allowed."""

    def __init__(self, place: str, key: str, value: object, allowed: str) -> None:
        self.place, self.key, self.value, self.allowed = place, key, value, allowed
        super().__init__(f"{place}: {key} takes {allowed}, not {value!r}")


class MissingSetting(SettingsError):
    """The value has to be said, because no other one would be right."""

    def __init__(self, key: str, allowed: str, why: str) -> None:
        self.key, self.allowed, self.why = key, allowed, why
        super().__init__(f"{key} is not set, and {why}: it takes {allowed}")


class Contradiction(SettingsError):
    """Settings exclude each other, or one needs another."""
