"""Read a TOML or JSON file with validation: every error names the file, the line, the key and what is allowed.

`read_toml` and `read_json` return the whole file as a `FileValue`. Read the expected type from it (`table`, `items`,
`text`, `number`, …); for other errors raise `FileValue.error`.
"""

import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, time
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import msgspec

from forewarn.core.base_error import BaseError
from forewarn.core.errors import CoreError, Invalid
from forewarn.core.text import check_name, describe_range, join_choices
from forewarn.settings.key_positions import KeyPositions

T = TypeVar("T")
D = TypeVar("D")
E = TypeVar("E", bound=StrEnum)


MAX_DEPTH = 64
"""How deeply brackets can be nested; more is refused at the latest when it can no longer be parsed."""

MAX_SHOWN_LENGTH = 80
"""How many characters of a text are shown in a message."""

MAX_SHOWN_ITEMS = 8
"""A list with more items is not shown in a message."""

_BRACKETS = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"""|"(?:[^"\\\n]|\\.)*"|' + r"'''.*?'''|'[^'\n]*'|#[^\n]*|[\[\]{}]", re.DOTALL
)
"""Brackets, and the texts and comments in which they have no meaning."""


class FileError(BaseError):
    """The file is invalid; the message names the file, the line, the key and what is allowed."""

    template = "{place}{problem}"
    file: str
    key: str
    problem: str
    line: int | None = None

    @property
    def place(self) -> str:
        """The file, the line and the key, as far as they are known."""
        file = self.file if self.line is None else f"{self.file}:{self.line}" if self.file else f"line {self.line}"
        return "".join(f"{part}: " for part in (file, self.key) if part)


def read_toml(text: str, *, file: str) -> "FileValue":
    """Parse TOML; raise FileError if it is not TOML. `file` is the name that messages use."""
    try:
        content = tomllib.loads(text)
    except ValueError as error:
        raise FileError(file, "", f"invalid TOML: {error}") from error
    except RecursionError as error:
        raise _nesting_error(file, text, "TOML") from error
    return FileValue(file, "", content, KeyPositions(text))


def read_json(text: str | bytes, *, file: str) -> "FileValue":
    """Parse JSON of the same shape; raise FileError if it is not JSON."""
    try:
        return FileValue(file, "", msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FileError(file, "", f"invalid JSON: {error}") from error
    except RecursionError as error:
        raise _nesting_error(file, text if isinstance(text, str) else text.decode(errors="replace"), "JSON") from error


def _nesting_error(file: str, text: str, format_: str) -> FileError:
    """Return the error for a file that is nested too deeply to be read, with the position where the limit is passed."""
    depth = 0
    position = 0
    for found in _BRACKETS.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth > MAX_DEPTH:
            position = found.start()
            break
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    return FileError(file, "", f"invalid {format_}: more than {MAX_DEPTH} levels of brackets, in column {column}", line)


def read_toml_file(path: Path, *, max_bytes: int | None = None) -> "FileValue":
    """Read and parse a TOML file; raise FileError if it cannot be read."""
    try:
        if max_bytes is not None and path.stat().st_size > max_bytes:
            raise FileError(str(path), "", f"it is too large: at most {max_bytes >> 20} MiB are allowed")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(str(path), "", f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise FileError(str(path), "", "invalid TOML: the file is not UTF-8") from error
    return read_toml(text, file=str(path))


class FileValue:
    """A value of the file, and its place there. Without `positions`, it does not come from a TOML text."""

    def __init__(self, file: str, key: str, value: object, positions: KeyPositions | None = None) -> None:
        self.file, self.key, self.value, self.positions = file, key, value, positions

    @property
    def line(self) -> int | None:
        """The line of the value, or of its table if the key is missing."""
        return None if self.positions is None else self.positions.find(self.key)

    def at(self, key: str) -> "FileValue":
        """Return another place in the file, for a message about it; `key` is complete."""
        return FileValue(self.file, key, None, self.positions)

    def with_value(self, value: object) -> "FileValue":
        """Return another value for the same place."""
        return FileValue(self.file, self.key, value, self.positions)

    def error(self, problem: str) -> FileError:
        """Return an error about this value."""
        return FileError(self.file, self.key, problem, self.line)

    def read(self, parse: Callable[[object], T], allowed: str) -> T:
        """Parse the value. `parse` raises Invalid with its own message, TypeError or ValueError for the default one."""
        try:
            with self.wrap_errors():
                return parse(self.value)
        except (TypeError, ValueError):
            raise self.error(f"{value_text(self.value)} is not allowed: use {allowed}") from None

    @contextmanager
    def wrap_errors(self) -> Iterator[None]:
        """Report errors of the rules, raised within this context, as errors of this value."""
        try:
            yield
        except CoreError as error:
            raise self.error(str(error)) from None

    def text(self) -> str:
        """Read a text."""
        return self.read(_text, "a text in quotes")

    def name(self) -> str:
        """Read a name."""
        return self.read(_name, "a name in quotes")

    def flag(self) -> bool:
        """Read a boolean."""
        return self.read(_flag, "true or false")

    def number(self, least: int | None, most: int | None) -> int:
        """Read an integer within bounds; None: it has no bound on this side."""
        allowed = f" from {least} to {most}" if least is not None and most is not None else ""
        if not allowed and (least, most) != (None, None):
            allowed = f" of {describe_range(least, most)}"
        return self.read(lambda value: _number(value, least, most), f"an integer{allowed}")

    def choice(self, choices: type[E]) -> E:
        """Read one of several words."""
        return self.read(lambda value: choices(_text(value)), join_choices(f'"{each.value}"' for each in choices))

    def items(self) -> list["FileValue"]:
        """Read a list."""
        items = self.read(_list, "a list")
        return [FileValue(self.file, f"{self.key}[{n}]", item, self.positions) for n, item in enumerate(items)]

    def table(self, known: Collection[str], allowed: str = "a table") -> "FileTable":
        """Read a table with only these keys. Unknown keys are reported before missing ones: a typo causes both."""
        content = self.read(_mapping, allowed)
        table = FileTable(self, content)
        for key in content:
            if key not in known:
                raise table.at(key).error(describe_unknown_key(key, known))
        return table

    def entries(self) -> dict[str, "FileValue"]:
        """Read a table with any keys."""
        content = self.read(_mapping, "a table")
        return {key: FileTable(self, content).at(key) for key in content}


class FileTable:
    """A table of the file. Each key is read by name."""

    def __init__(self, parent: FileValue, content: Mapping[str, object]) -> None:
        self._parent = parent
        self._content = content

    def at(self, key: str) -> FileValue:
        """Return the value of a key, or None with its place if the key is missing."""
        path = f"{self._parent.key}.{key}" if self._parent.key else key
        return FileValue(self._parent.file, path, self._content.get(key), self._parent.positions)

    def has(self, key: str) -> bool:
        """Return whether the key is present."""
        return key in self._content

    def get(self, key: str, read: Callable[[FileValue], T], default: D) -> T | D:
        """Read an optional key."""
        value = self.at(key)
        return read(value) if self.has(key) else default

    def require(self, key: str, read: Callable[[FileValue], T], allowed: str) -> T:
        """Read a required key."""
        value = self.at(key)
        if not self.has(key):
            raise value.error(f"required key is missing: use {allowed}")
        return read(value)

    def forbid(self, key: str, why: str) -> None:
        """Refuse a key that has no meaning in this table, although it has one in others."""
        value = self.at(key)
        if self.has(key):
            raise value.error(why)

    @contextmanager
    def wrap_errors(self) -> Iterator[None]:
        """Report errors about a field, raised within this context, as errors of its key, and others of the table."""
        try:
            yield
        except Invalid as error:
            raise (self.at(error.field) if error.field else self._parent).error(error.problem) from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _name(value: object) -> str:
    name = _text(value)
    check_name(name)
    return name


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _number(value: object, least: int | None, most: int | None) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    if (least is not None and value < least) or (most is not None and value > most):
        raise ValueError
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise TypeError
    return value


def describe_unknown_key(key: str, known: Collection[str]) -> str:
    """Return the message about an unknown key, with the known one that is closest to it."""
    from difflib import get_close_matches  # late: an idle agent does not need it

    close = get_close_matches(key, sorted(known), n=1, cutoff=0.7)
    meant = f"did you mean {close[0]}? Valid" if close else "valid"
    return f"unknown key; {meant} keys: {', '.join(sorted(known))}"


def value_text(value: object) -> str:
    """Return a value as written in the file, or at least its type."""
    match value:
        case str():
            shown = repr(value[:MAX_SHOWN_LENGTH])[1:-1]  # escapes control characters, for terminals and logs
            return f'"{shown}"' if len(value) <= MAX_SHOWN_LENGTH else f'"{shown}…"'
        case bool():
            return str(value).lower()
        case int() | float() | date() | time():
            return str(value)
        case list() if len(value) <= MAX_SHOWN_ITEMS and not any(isinstance(each, list | Mapping) for each in value):
            return f"[{', '.join(map(value_text, value))}]"
        case list():
            return "a list"
        case Mapping():
            return "a table"
        case _:
            return "this kind of value"
