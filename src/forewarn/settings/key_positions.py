"""The line number of each key of a TOML file.

tomllib does not report positions. `KeyPositions` scans the text a second time, and only if a message needs a line. The
text must be valid TOML: tomllib has parsed it before.
"""

import re
import tomllib
from bisect import bisect_left
from functools import cached_property

BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
SPACES = re.compile(r"[ \t]*")
KEY_PART = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|[A-Za-z0-9_-]+')
STRING = re.compile(r'"""(?:[^\\]|\\.)*?"""\"{0,2}|\'\'\'.*?\'\'\'\'{0,2}|"(?:[^"\\]|\\.)*"|\'[^\']*\'', re.DOTALL)
SCALAR = re.compile(r"[^,\]}#\n]+")


class KeyPositions:
    """Finds the line of a key, written as in messages: `scopes[0].vms[2].name`."""

    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")

    def find(self, key: str) -> int | None:
        """Return the line of the key or, if it is missing, of the table or list that should contain it."""
        while key and key not in self._lines:
            key = key[: max(key.rfind("."), key.rfind("["), 0)]
        return self._lines.get(key)

    @cached_property
    def _lines(self) -> dict[str, int]:
        return _Scanner(self._text).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text, self._position = text, 0
        self._line_ends = [match.start() for match in re.finditer("\n", text)]
        self._lines: dict[str, int] = {}
        self._last_items: dict[str, int] = {}
        """The index of the last `[[table]]` of each array of tables."""

    def scan(self) -> dict[str, int]:
        table = ""
        while self._skip(BLANK) < len(self._text):
            if self._take("["):
                is_item = self._take("[")
                table = self._enter_table(self._key(), is_item=is_item)
                self._position += 2 if is_item else 1
            else:
                self._pair(table)
        return self._lines

    def _enter_table(self, parts: list[str], *, is_item: bool) -> str:
        path = ""
        for number, part in enumerate(parts, 1):
            path = _join(path, part)
            self._mark(path)
            if is_item and number == len(parts):
                self._last_items[path] = self._last_items.get(path, -1) + 1
            if path in self._last_items:
                path += f"[{self._last_items[path]}]"
                self._mark(path)
        return path

    def _pair(self, table: str) -> None:
        path = table
        for part in self._key():
            path = _join(path, part)
            self._mark(path)
        self._position += 1  # the equals sign
        self._value(path)

    def _key(self) -> list[str]:
        parts = []
        while True:
            self._skip(SPACES)
            start = self._position
            part = self._text[start : self._skip(KEY_PART)]
            parts.append(tomllib.loads(f"key = {part}")["key"] if part[0] in "\"'" else part)
            self._skip(SPACES)
            if not self._take("."):
                return parts

    def _value(self, path: str) -> None:
        self._skip(SPACES)
        if self._take("["):
            number = 0
            while not self._at_end_of("]"):
                self._mark(f"{path}[{number}]")
                self._value(f"{path}[{number}]")
                number += 1
        elif self._take("{"):
            while not self._at_end_of("}"):
                self._pair(path)
        elif self._text[self._position] in "\"'":
            self._skip(STRING)
        else:
            self._skip(SCALAR)

    def _at_end_of(self, bracket: str) -> bool:
        """Move to the next item of a list or an inline table; return whether there is none."""
        self._skip(BLANK)
        self._take(",")
        self._skip(BLANK)
        return self._take(bracket)

    def _mark(self, path: str) -> None:
        self._lines.setdefault(path, bisect_left(self._line_ends, self._position) + 1)

    def _take(self, char: str) -> bool:
        is_next = self._text.startswith(char, self._position)
        self._position += len(char) if is_next else 0
        return is_next

    def _skip(self, pattern: re.Pattern[str]) -> int:
        if match := pattern.match(self._text, self._position):
            self._position = match.end()
        return self._position


def _join(path: str, part: str) -> str:
    return f"{path}.{part}" if path else part
