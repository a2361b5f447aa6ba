"""Comments of a TOML file: kept when a program writes the file with other values.

A comment belongs to the key or table below it, or to the one in whose line it is. Comments within a list of several
lines are lost.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from forewarn.settings.key_positions import KeyPositions

END = ""
"""The key of comments at the end of a file."""

COMMENT = re.compile(r"""(?:[^#"']|"(?:[^"\\]|\\.)*"|'[^']*')*+(#.*)""")
"""A line with a comment behind texts, in which the same character has no meaning. It reads each character once."""


class KeyComments(NamedTuple):
    """The comments of a key: the lines above it, and the text behind its value."""

    above: tuple[str, ...]
    behind: str


def keep_comments(text: str, *, before: str) -> str:
    """Return a file with the comments that it had before. Those of keys that it no longer has move to its end."""
    try:
        comments = _read_comments(before)
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    lines = _lines(text)
    for key, line in sorted(_key_lines(text).items(), key=lambda item: item[1], reverse=True):
        if (found := comments.pop(key, None)) is not None:
            lines[line - 1] += f"  {found.behind}" if found.behind else ""
            lines[line - 1 : line - 1] = found.above
    lines += (each for found in comments.values() for each in (*found.above, found.behind) if each)
    return "".join(f"{line}\n" for line in lines)


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").replace("\r\n", "\n").split("\n") if text else []


def _key_lines(text: str) -> dict[str, int]:
    """Return the line of each key and table, in their order; of several in a line, the first."""
    positions, found = KeyPositions(text), dict[int, str]()
    for key in _keys(tomllib.loads(text)):
        if (line := positions.find(key)) is not None:
            found.setdefault(line, key)
    return {key: line for line, key in sorted(found.items())}


def _keys(content: Mapping[str, Any]) -> Iterable[str]:
    for key, value in content.items():
        yield key
        if isinstance(value, Mapping):
            yield from (f"{key}.{inner}" for inner in value)


def _read_comments(text: str) -> dict[str, KeyComments]:
    lines = _lines(text)
    found = {
        key: KeyComments(_comments_above(lines, line - 1), _comment_behind(lines[line - 1]))
        for key, line in _key_lines(text).items()
    }
    found[END] = KeyComments(_comments_above(lines, len(lines)), "")
    return {key: comments for key, comments in found.items() if any(comments)}


def _comments_above(lines: list[str], position: int) -> tuple[str, ...]:
    above: list[str] = []
    for line in map(str.strip, reversed(lines[:position])):
        if line and not line.startswith("#"):
            break
        above[:0] = [line] if line else []
    return tuple(above)


def _comment_behind(line: str) -> str:
    """Return the comment of a line: what can be removed without a change of its value."""
    if (found := COMMENT.fullmatch(line)) is None:
        return ""
    try:
        is_comment = tomllib.loads(line[: found.start(1)]) == tomllib.loads(line)
    except tomllib.TOMLDecodeError:  # a part of a value of several lines
        return ""
    return found[1].strip() if is_comment else ""
