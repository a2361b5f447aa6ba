"""What could stand where an operator's request has a word that is none of those that are allowed there."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import inspect

NONE_OF_THEM = re.compile(r"Invalid enum value '(?P<word>.*)'(?: - at `\$(?P<place>.*)`)?", re.DOTALL)
"""How the decoder refuses a word: it names the place, but not what is allowed there."""

STEP = re.compile(r"\.(?P<field>\w+)|\[[^]]*\]")
"""A step towards the place: into a field, or to an item."""


def with_choices(complaint: str, type_: Any) -> str:
    """Add to a refused word of a value of this type what is allowed in its place; other complaints stay as they are."""
    found = NONE_OF_THEM.fullmatch(complaint)
    words = _choices(type_, found["place"] or "") if found is not None else []
    if found is None or not words:
        return complaint
    *others, last = words
    place = (found["place"] or "").removeprefix(".")
    among = f"{found['word']!r} is not among {', '.join(others)} and {last}" if others else f"only {last} is allowed"
    return f"{place}: {among}" if place else among


def _choices(type_: Any, place: str) -> list[str]:
    kinds = [inspect.type_info(type_)]
    for step in STEP.finditer(place):
        kinds = [inner for kind in _each(kinds) for inner in _inside(kind, step["field"])]
    return [word for kind in _each(kinds) for word in _words(kind)]


def _words(kind: inspect.Type) -> Iterator[str]:
    """Give the words that are allowed for a value of this type, or for an item of it."""
    match kind:
        case inspect.EnumType():
            yield from (str(member.value) for member in kind.cls)
        case inspect.LiteralType():
            yield from map(str, kind.values)
        case inspect.CollectionType():  # which of several parameters of a name is wrong, the framework does not say
            yield from (word for one in _each([kind.item_type]) for word in _words(one))
        case _:
            pass


def _each(kinds: list[inspect.Type]) -> Iterator[inspect.Type]:
    """Give every type that a value may have."""
    for kind in kinds:
        yield from kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _inside(kind: inspect.Type, field: str | None) -> Iterator[inspect.Type]:
    """Give the types of a field, or of items."""
    match kind:
        case inspect.StructType() if field is not None:
            yield from (one.type for one in kind.fields if one.encode_name == field)
        case inspect.CollectionType() if field is None:
            yield kind.item_type
        case inspect.DictType() if field is None:
            yield kind.value_type
