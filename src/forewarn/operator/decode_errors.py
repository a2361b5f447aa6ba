"""Decoder errors in plain words, with the values that are allowed in place of an invalid one."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import inspect

from forewarn.core.limits import MAX_KEY_LENGTH

INVALID_ENUM = re.compile(r"Invalid enum value '(?P<word>.*)'(?: - at `\$(?P<place>.*)`)?", re.DOTALL)
"""The decoder's message about an enum value: it names the location, but not the allowed values."""

PATH_STEP = re.compile(r"\.(?P<field>\w+)|\[[^]]*\]")
"""A step of the location: into a field or to an item."""


def with_choices(message: str, type_: Any) -> str:
    """Add the allowed values to a message about an invalid enum value; return other messages unchanged."""
    found = INVALID_ENUM.fullmatch(message)
    choices = _choices(type_, found["place"] or "") if found is not None else []
    if found is None or not choices:
        return message
    *others, last = choices
    path = (found["place"] or "").removeprefix(".")
    text = f"{found['word']!r} is not one of {', '.join(others)} and {last}" if others else f"only {last} is allowed"
    return f"{path}: {text}" if path else text


def _choices(type_: Any, path: str) -> list[str]:
    kinds = [inspect.type_info(type_)]
    for step in PATH_STEP.finditer(path):
        kinds = [inner for kind in _flatten_unions(kinds) for inner in _inner_types(kind, step["field"])]
    return [word for kind in _flatten_unions(kinds) for word in _allowed_values(kind)]


def _allowed_values(kind: inspect.Type) -> Iterator[str]:
    """Yield the allowed values of this type or of its items."""
    match kind:
        case inspect.Metadata(extra_json_schema={"enum": [*words]}):  # a rule allows only some of them
            yield from words
        case inspect.Metadata(type=inner):
            yield from _allowed_values(inner)
        case inspect.EnumType():
            yield from (str(member.value) for member in kind.cls)
        case inspect.LiteralType():
            yield from map(str, kind.values)
        case inspect.CollectionType():  # the framework does not report which of several parameters is invalid
            yield from (word for one in _flatten_unions([kind.item_type]) for word in _allowed_values(one))
        case _:
            pass


def _flatten_unions(kinds: list[inspect.Type]) -> Iterator[inspect.Type]:
    """Yield the types, with the members of unions in place of the unions."""
    for kind in kinds:
        yield from kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _inner_types(kind: inspect.Type, field: str | None) -> Iterator[inspect.Type]:
    """Yield the types of a field, or of items."""
    match kind:
        case inspect.StructType() if field is not None:
            yield from (one.type for one in kind.fields if one.encode_name == field)
        case inspect.CollectionType() if field is None:
            yield kind.item_type
        case inspect.DictType() if field is None:
            yield kind.value_type


PLAIN_MESSAGES = (
    (re.compile(r"Expected `str` of length >= 1 - at `\$\.(.+)`"), r"\1 is empty"),
    (re.compile(r"(.+): Expected `str` of length >= 1"), r"\1: must not be empty; omit it to match everything"),
    (re.compile(r"Expected `str` of length <= (\d+) - at `\$\.(.+)`"), r"\2 is longer than \1 characters"),
    (re.compile(r"Expected `array` of length <= (\d+) - at `\$\.(.+)`"), r"\2: at most \1 items are allowed"),
    (re.compile(r"Expected `(?:int|float)` >= (\S+) - at `\$\.(.+)`"), r"\2: must be at least \1"),
    (re.compile(r"Expected `(?:int|float)` <= (\S+) - at `\$\.(.+)`"), r"\2: must be at most \1"),
    (
        re.compile(r"Idempotency-Key: Expected `str` .*"),
        (
            f"Idempotency-Key: a request key must be 1 to {MAX_KEY_LENGTH} printable ASCII characters "
            "but space, quote, backslash"
        ),
    ),
)
"""Patterns of the decoder's messages, each with the message for users."""


def plain_message(message: str) -> str:
    """Return the message for users in place of a decoder's message, if there is one."""
    for words, plain in PLAIN_MESSAGES:
        if found := words.fullmatch(message):
            return found.expand(plain)
    return message
