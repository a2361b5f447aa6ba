"""Errors in settings: one tree, and messages with the place, the key and what is allowed."""

import inspect
import re
from pathlib import Path

import pytest

from forewarn.settings import errors
from forewarn.settings.errors import (
    InvalidSetting,
    InvalidSettingsFile,
    MissingSetting,
    SettingNotFound,
    SettingsConflict,
    SettingsError,
)


def test_error_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    drawn = re.findall(r"[├└]── (\w+)", inspect.getdoc(errors) or "")
    classes = [
        name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, SettingsError)
    ]
    assert ["SettingsError", *drawn] == classes


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (InvalidSettingsFile(Path("/f.toml"), "it is gone"), ["/f.toml", "it is gone"]),
        (SettingNotFound("/f.toml:2", "sped", "unknown key"), ["/f.toml:2: sped: unknown key"]),
        (InvalidSetting("--speed", "speed", "'0'", "a number"), ["--speed", "speed", "'0'", "a number"]),
        (InvalidSetting("--age", "age", "'9d'", "a time", "9d is too long"), ["--age: ", "a time; 9d is too long"]),
        (MissingSetting("platform", "a word", "nobody knows"), ["platform", "a word", "nobody knows"]),
        (SettingsConflict("both are set"), ["both are set"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_message_has_place_key_and_what_is_allowed(error: SettingsError, facts: list[str]) -> None:
    assert [fact for fact in facts if fact not in str(error)] == []
