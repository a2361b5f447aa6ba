"""The settings loader: flags over environment over file over default, for any struct of settings.

Settings are declared as msgspec structs; a field is a setting if its annotation has a `SettingType`, or a section if it
is a struct itself. `section.field` is its key. The loader records the origin of each value, and every message names the
origin (of a file: with the line), the key and what is allowed. To add a setting, add the field and document it.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec

from forewarn.core.errors import Invalid
from forewarn.settings.errors import InvalidSetting, InvalidSettingsFile, SettingNotFound
from forewarn.settings.file_reader import FileError, FileValue, describe_unknown_key, read_toml_file, value_text
from forewarn.settings.types import SettingType, resolve_path

S = TypeVar("S", bound=msgspec.Struct)


class Precedence(IntEnum):
    """The sources of a value; the higher one wins."""

    PRESET = 0
    FILE = 1
    ENVIRONMENT = 2
    FLAG = 3


class SettingSource(NamedTuple):
    """The source of a value: the name of a flag, a variable, a file or a preset."""

    precedence: Precedence
    name: str
    line: int | None = None
    """The line in the file."""

    def __str__(self) -> str:
        return f"{self.name} preset" if self.precedence is Precedence.PRESET else self.name

    @property
    def place(self) -> str:
        """The name and, of a file, the line."""
        return self.name if self.line is None else f"{self.name}:{self.line}"


class LoadedSettings(msgspec.Struct, Generic[S], frozen=True):
    """The effective settings, and the source of each by its key."""

    settings: S
    sources: dict[str, SettingSource]

    @property
    def places(self) -> dict[str, str]:
        """The place of each value, for messages."""
        return {key: source.place for key, source in self.sources.items()}


class LoadOptions(NamedTuple):
    """The sources of values. `variable` and `flag` return the names that belong to a key."""

    file: FileValue | None
    environ: Mapping[str, str]
    variable: Callable[[str], str]
    flags: Mapping[str, object] = {}
    flag: Callable[[str], str] = str
    tables: frozenset[str] = frozenset()
    """Tables of the file that are not sections; the caller reads them."""


def read_settings_file(path: Path) -> FileValue:
    """Read a file of settings; raise InvalidSettingsFile."""
    try:
        return read_toml_file(path)
    except FileError as error:
        raise InvalidSettingsFile(path, error.problem) from error


def load_struct(defaults: S, default_name: str, options: LoadOptions) -> LoadedSettings[S]:
    """Load the value of every setting; raise SettingsError. `default_name` is the source of values that are not set."""
    section = type(defaults)
    values = dict(iter_values(defaults))
    sources = {key: SettingSource(Precedence.PRESET, default_name) for key in values}
    for key, source, value in iter_overrides(section, options):
        values[key], sources[key] = parse_value(section, key, value, source, options.file), source
    return LoadedSettings(build_settings(defaults, values), sources)


def iter_overrides(section: type[msgspec.Struct], options: LoadOptions) -> Iterator[tuple[str, SettingSource, object]]:
    """Yield the values that are set in any source, unparsed, lowest precedence first."""
    if options.file is not None:
        for value in _iter_file(section, options.file, options.tables):
            source = SettingSource(Precedence.FILE, value.file, value.line)
            yield value.key, source, _resolve_path(setting_types(section)[value.key], value)
    for key in setting_types(section):
        if text := options.environ.get(options.variable(key)):
            yield key, SettingSource(Precedence.ENVIRONMENT, options.variable(key)), text
    for key, given in options.flags.items():
        yield key, SettingSource(Precedence.FLAG, options.flag(key)), given


def parse_value(
    section: type[msgspec.Struct], key: str, value: object, source: SettingSource, file: FileValue | None = None
) -> object:
    """Parse a value of a key; raise InvalidSetting. `file` provides the line of a part of the value."""
    if file is not None and source.precedence is Precedence.FILE:
        return _parse(setting_types(section)[key], file.at(key), value)
    return _parse(setting_types(section)[key], FileValue(source.place, key, value), value, show=repr)


def find_value(section: type[msgspec.Struct], key: str, given: LoadOptions, file: Path | None) -> object:
    """Return the value of one key, None if no source sets it. The key has no dot; `given` has no file.

    The file is read only if it decides, and other keys in it are ignored.
    """
    if found := [(source, value) for name, source, value in iter_overrides(section, given) if name == key]:
        source, value = found[-1]
        return parse_value(section, key, value, source)
    document = None if file is None else read_settings_file(file)
    if document is None or (entry := read_table(document).get(key)) is None:
        return None
    source = SettingSource(Precedence.FILE, entry.file, entry.line)
    return parse_value(section, key, _resolve_path(setting_types(section)[key], entry), source, document)


def read_section(section: type[S], table: FileValue, **given: object) -> S:
    """Read a table of the file as a separate struct of settings; `given` has fields that are not keys."""
    types = setting_types(section)
    known = tuple(field for field in section.__struct_fields__ if field in types)
    values: dict[str, object] = {}
    for name, value in read_table(table).items():
        if name not in known:
            raise SettingNotFound(place(value), value.key, describe_unknown_key(name, known))
        values[name] = _parse(types[name], value, _resolve_path(types[name], value))
    return section(**given, **values)


def read_table(value: FileValue) -> dict[str, FileValue]:
    """Return the entries of a table; raise InvalidSetting if it is not a table."""
    if not isinstance(value.value, Mapping):
        raise InvalidSetting(place(value), value.key, value_text(value.value), "a table")
    return value.entries()


def place(value: FileValue) -> str:
    """Return the place of a value in the file, for messages."""
    return value.file if value.line is None else f"{value.file}:{value.line}"


def iter_values(section: msgspec.Struct) -> Iterator[tuple[str, object]]:
    """Yield the value of every key, in the order of declaration."""
    for key in setting_types(type(section)):
        value: object = section
        for field in key.split("."):
            value = getattr(value, field)
        yield key, value


def build_settings(base: S, values: Mapping[str, object]) -> S:
    """Return the settings with these values by key; other keys are as in `base`."""
    fields = {key: value for key, value in values.items() if "." not in key}
    for section in {key.partition(".")[0] for key in values if "." in key}:
        inner = {
            key.removeprefix(f"{section}."): value for key, value in values.items() if key.startswith(f"{section}.")
        }
        fields[section] = build_settings(getattr(base, section), inner)
    return msgspec.structs.replace(base, **fields)


@cache
def setting_types(section: type[msgspec.Struct]) -> Mapping[str, SettingType]:
    """Return every key, as `section.field` in a section, with its type."""
    types: dict[str, SettingType] = {}
    hints = get_type_hints(section, include_extras=True)
    for field in section.__struct_fields__:
        hint: Any = hints[field]
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            types |= {f"{field}.{key}": type_ for key, type_ in setting_types(hint).items()}
        elif found := next((item for item in get_args(hint) if isinstance(item, SettingType)), None):
            types[field] = found
    return types


def _iter_file(section: type[msgspec.Struct], table: FileValue, tables: frozenset[str]) -> Iterator[FileValue]:
    types = setting_types(section)
    for name, value in read_table(table).items():
        is_section = any(key.startswith(f"{value.key}.") for key in types)
        if value.key in types:
            yield value
        elif is_section and isinstance(value.value, Mapping):
            yield from _iter_file(section, value, frozenset())
        elif value.key not in tables:
            if is_section:
                raise InvalidSetting(place(value), value.key, value_text(value.value), "a table")
            prefix = f"{table.key}." if table.key else ""
            known = {key.removeprefix(prefix).partition(".")[0] for key in types if key.startswith(prefix)}
            raise SettingNotFound(place(value), value.key, describe_unknown_key(name, known | tables))


def _resolve_path(type_: SettingType, value: FileValue) -> object:
    """Resolve a path relative to the file that names it, wherever the program was started."""
    written = value.value
    is_location = type_.is_path and isinstance(written, str) and written not in ("", *type_.keywords)
    return resolve_path(Path(value.file).parent, str(written)) if is_location else written


def _parse(type_: SettingType, at: FileValue, value: object, *, show: Callable[[object], str] = value_text) -> object:
    """Parse a value. `at` is its place; `show` returns the value as it is written there.

    A value that is a table of settings raises SettingsError about a part, with the key of the part within the value.
    """
    try:
        return type_.parse(value)
    except (InvalidSetting, SettingNotFound) as error:
        part = at.at(f"{at.key}.{error.key}")
        raise type(error)(place(part), part.key, *error.args[2:]) from None
    except Invalid as error:
        raise InvalidSetting(place(at), at.key, show(value), type_.allowed, str(error)) from None
    except (TypeError, ValueError, KeyError):
        raise InvalidSetting(place(at), at.key, show(value), type_.allowed) from None
