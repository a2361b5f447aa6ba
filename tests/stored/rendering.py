"""Values as JSON that does not depend on the names of Python classes and attributes, only on what is stored."""

from datetime import datetime, timedelta
from enum import Enum
from typing import Any

import msgspec


def rendered(value: object, *, named: bool = True) -> Any:
    """Render a value with every field, also those at their defaults, by the names under which they are stored.

    With `named` False, structs are lists of their values: for those that are not stored themselves.
    """
    match value:
        case Enum():
            return value.value
        case msgspec.Struct():
            fields = msgspec.structs.fields(value)
            items = [(field.encode_name, rendered(getattr(value, field.name), named=named)) for field in fields]
            is_list = value.__struct_config__.array_like or not named
            return [item for _, item in items] if is_list else dict(items)
        case dict():
            return {str(rendered(key)): rendered(item, named=named) for key, item in value.items()}
        case tuple() | list():
            return [rendered(item, named=named) for item in value]
        case datetime():
            return value.isoformat()
        case timedelta():
            return f"{value.total_seconds()} s"
        case None | str() | int() | float():
            return value
        case _:
            raise TypeError(f"cannot render {value!r}")


def missing(expected: Any, actual: Any, path: str = "") -> list[str]:
    """Return where the expected value is not in the actual one. Only fields may be added, nothing else may differ."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return [
            line
            for key, item in expected.items()
            for line in (missing(item, actual[key], f"{path}.{key}") if key in actual else [f"{path}.{key} is missing"])
        ]
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        pairs = zip(expected, actual, strict=True)
        return [line for n, pair in enumerate(pairs) for line in missing(*pair, f"{path}[{n}]")]
    return [] if expected == actual else [f"{path} is {actual!r}, not {expected!r}"]


def key_paths(value: Any, path: str = "") -> set[str]:
    """Return the paths of all keys in a JSON value; all items of a list are taken together."""
    match value:
        case dict():
            inner = (key_paths(item, f"{path}.{key}") for key, item in value.items())
            return {f"{path}.{key}" for key in value}.union(*inner)
        case list():
            return set().union(*(key_paths(item, f"{path}[]") for item in value))
        case _:
            return set()
