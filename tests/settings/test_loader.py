"""The settings loader works for any struct: a new field is a new setting, and nothing else has to know it."""

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from forewarn.settings.errors import InvalidSetting, InvalidSettingsFile, SettingNotFound, SettingsError
from forewarn.settings.file_reader import read_toml
from forewarn.settings.loader import (
    LoadedSettings,
    LoadOptions,
    Precedence,
    SettingSource,
    iter_values,
    load_struct,
    read_section,
    read_settings_file,
    setting_types,
)
from forewarn.settings.types import Count, Duration, Flag, PathOrNone


class Inner(msgspec.Struct, frozen=True, kw_only=True):
    size: Count = 1


class Section(msgspec.Struct, frozen=True, kw_only=True):
    is_on: Flag = False
    pause: Duration = timedelta(0)
    inner: Inner = Inner()


class Toy(msgspec.Struct, frozen=True, kw_only=True):
    path: PathOrNone = None
    section: Section = Section()
    others: tuple[str, ...] = ("no setting",)


def load(text: str, environ: dict[str, str] | None = None, **flags: object) -> LoadedSettings[Toy]:
    options = LoadOptions(
        file=read_toml(text, file="/etc/toy.toml"),
        environ=environ or {},
        variable=lambda key: "TOY_" + key.replace(".", "_").upper(),
        flags={key.replace("__", "."): value for key, value in flags.items()},
        flag=lambda key: f"--{key}",
        tables=frozenset({"others"}),
    )
    return load_struct(Toy(), "default", options)


def test_every_annotated_field_is_a_key() -> None:
    assert list(setting_types(Toy)) == ["path", "section.is_on", "section.pause", "section.inner.size"]
    assert dict(iter_values(Toy())) == {
        "path": None,
        "section.is_on": False,
        "section.pause": timedelta(0),
        "section.inner.size": 1,
    }


def test_source_with_the_highest_precedence_wins_and_is_recorded() -> None:
    text = 'path = "data"\n[section]\nis_on = true\n[section.inner]\nsize = 2\n'
    loaded = load(text, {"TOY_SECTION_INNER_SIZE": "3", "TOY_SECTION_IS_ON": "false"}, section__is_on="yes")
    assert loaded.settings == Toy(path=Path("/etc/data"), section=Section(is_on=True, inner=Inner(size=3)))
    assert loaded.sources == {
        "path": SettingSource(Precedence.FILE, "/etc/toy.toml", 1),
        "section.is_on": SettingSource(Precedence.FLAG, "--section.is_on"),
        "section.pause": SettingSource(Precedence.PRESET, "default"),
        "section.inner.size": SettingSource(Precedence.ENVIRONMENT, "TOY_SECTION_INNER_SIZE"),
    }
    assert loaded.places["path"] == "/etc/toy.toml:1"


def test_unset_value_is_the_default() -> None:
    loaded = load("", {"TOY_PATH": ""})
    assert loaded.settings == Toy()
    assert {str(source) for source in loaded.sources.values()} == {"default preset"}


@pytest.mark.parametrize("path", ["none", "/abs", "~/home"])
def test_only_a_relative_path_is_resolved_against_the_file(path: str) -> None:
    expected = {"none": None, "/abs": Path("/abs"), "~/home": Path("~/home").expanduser()}
    assert load(f'path = "{path}"').settings.path == expected[path]


WRONG: dict[str, tuple[str, type[SettingsError], str]] = {
    "unknown": (
        "\npaths = 1",
        SettingNotFound,
        ":2: paths: unknown key; did you mean path? Valid keys: others, path, section",
    ),
    "unknown in a section": (
        "[section.inner]\nsizes = 1",
        SettingNotFound,
        ":2: section.inner.sizes: unknown key; did you mean size? Valid keys: size",
    ),
    "key of another table": (
        "[section]\npath = 1",
        SettingNotFound,
        ":2: section.path: unknown key; valid keys: inner, is_on, pause",
    ),
    "not a section": ("section = 1", InvalidSetting, ":1: section takes a table, not 1"),
    "value": (
        "[section]\ninner.size = 0",
        InvalidSetting,
        ":2: section.inner.size takes an integer, at least 1, not 0",
    ),
    "text": (
        "[section]\nis_on = 'maybe'",
        InvalidSetting,
        ':2: section.is_on takes true or false, not "maybe"',
    ),
    "date": ("path = 2026-01-01", InvalidSetting, ':1: path takes a path, or "none", not 2026-01-01'),
    "list": ("path = ['a', true]", InvalidSetting, ':1: path takes a path, or "none", not ["a", true]'),
}


@pytest.mark.parametrize(("text", "error", "message"), WRONG.values(), ids=WRONG)
def test_error_in_the_file_names_its_line(text: str, error: type[SettingsError], message: str) -> None:
    with pytest.raises(error) as raised:
        load(text)
    assert str(raised.value) == f"/etc/toy.toml{message}"


def test_error_elsewhere_names_its_source() -> None:
    with pytest.raises(InvalidSetting, match=r"^TOY_SECTION_IS_ON: section\.is_on takes true or false, not 'maybe'$"):
        load("", {"TOY_SECTION_IS_ON": "maybe"})
    with pytest.raises(InvalidSetting, match=r"^--path: path takes a path"):
        load("", path="")


def test_reason_of_a_rule_is_part_of_the_message() -> None:
    """40000d is a duration, so what a setting takes does not explain the refusal."""
    with pytest.raises(InvalidSetting) as refused:
        load("[section]\npause = '40000d'")
    assert str(refused.value) == (
        '/etc/toy.toml:2: section.pause takes a duration such as "90s", "15m" or "1h30m"; '
        "'40000d' is too long: the longest duration is 36500d"
    )


def test_table_of_the_file_is_read_as_a_separate_struct() -> None:
    table = read_toml("[others.x]\nsize = 7", file="toy.toml").entries()["others"].entries()["x"]
    assert read_section(Inner, table) == Inner(size=7)
    with pytest.raises(SettingNotFound, match=r"^toy.toml:1: others\.x\.length: unknown key; valid keys: size$"):
        read_section(Inner, table.with_value({"length": 1}))
    with pytest.raises(InvalidSetting, match=r"^toy.toml:1: others\.x takes a table, not 7$"):
        read_section(Inner, table.with_value(7))


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingsFile, match=r"none\.toml: cannot be read: No such file"):
        read_settings_file(tmp_path / "none.toml")
