"""Write structs of the core as tables of a file, which `table_reader` reads as the same values, and tables as TOML."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from enum import StrEnum

import msgspec

from forewarn.api.form import SHORT_FORMS
from forewarn.api.table_reader import NONE, struct_fields
from forewarn.core.errors import Invalid

Value = str | bool | int | float | date | time | Sequence["Value"] | Mapping[str, "Value"]
"""A value of a TOML file."""

MAX_LINE = 100
"""A longer list has one line per item."""


def write_struct(struct: msgspec.Struct) -> dict[str, Value]:
    """Return the table of a struct, without the keys that have their default value."""
    fields = ((name, field.default, getattr(struct, name)) for name, field in struct_fields(type(struct)).items())
    return {name: write_value(value) for name, default, value in fields if value != default and value not in ((), {})}


def write_value(value: object) -> Value:
    """Return a value of a field as a file has it."""
    match value:
        case None:
            return NONE
        case StrEnum():
            return value.value
        case timedelta():
            return SHORT_FORMS[timedelta].write(value)
        case tuple():
            return [write_value(item) for item in value]
        case msgspec.Struct():
            return _short_form(value) or write_struct(value)
        case str() | bool() | int() | datetime() | dict():
            return value
        case other:
            raise TypeError(f"a file cannot have values of type {type(other)}")


def _short_form(struct: msgspec.Struct) -> str | int | None:
    """Return a struct as a string or number; None if it has no such form, or if its form does not have all of it."""
    form = SHORT_FORMS.get(type(struct))
    if form is None:
        return None
    written = form.write(struct)
    try:
        return written if form.parse(written) == struct else None
    except Invalid:
        return None


def toml_text(content: Mapping[str, Value]) -> str:
    """Return a TOML file: values first, then a section for each table."""
    tables = {key: value for key, value in content.items() if isinstance(value, Mapping)}
    values = (item for item in content.items() if item[0] not in tables)
    sections = (f"\n[{toml_key(key)}]\n{_pairs(table.items())}" for key, table in tables.items())
    return (_pairs(values) + "".join(sections)).removeprefix("\n")


def _pairs(items: Iterable[tuple[str, Value]]) -> str:
    return "".join(f"{_pair(key, value)}\n" for key, value in items)


def _pair(key: str, value: Value) -> str:
    line = f"{toml_key(key)} = {toml_value(value)}"
    if len(line) <= MAX_LINE or not isinstance(value, list):
        return line
    return f"{toml_key(key)} = [\n{''.join(f'    {toml_value(item)},{chr(10)}' for item in value)}]"


def toml_value(value: Value) -> str:
    """Return a value in TOML syntax, on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            return _quoted(value)
        case date() | time():  # a datetime is a date
            return value.isoformat().replace("+00:00", "Z")
        case Mapping():
            inner = ", ".join(f"{toml_key(key)} = {toml_value(item)}" for key, item in value.items())
            return f"{{ {inner} }}" if inner else "{}"
        case _:
            return f"[{', '.join(toml_value(item) for item in value)}]"


def toml_key(key: str) -> str:
    """Return a key in TOML syntax."""
    is_bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if is_bare else _quoted(key)


ESCAPES = {ord('"'): '\\"', ord("\\"): "\\\\"} | {code: f"\\u{code:04X}" for code in (*range(0x20), 0x7F)}


def _quoted(text: str) -> str:
    return f'"{text.translate(ESCAPES)}"'
