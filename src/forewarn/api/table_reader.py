"""Read structs of the core from a file: each key by the type of its field.

Some structs can also be written as a string: a window as `"sat,sun 22:00-04:00"`. TOML has no null: `"none"` switches
off a key that has a default.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, time, timedelta
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import inspect

from forewarn.api.campaign_windows import parse_moment
from forewarn.api.form import SHORT_FORMS, require_str
from forewarn.core.text import join_choices
from forewarn.settings.file_reader import FileError, FileTable, FileValue

S = TypeVar("S", bound=msgspec.Struct)

NONE = "none"


class FieldType(NamedTuple):
    """The type of a field without None, and its metadata."""

    type: inspect.Type
    is_optional: bool
    description: str
    example: object
    extra: Mapping[str, Any]


def field_type(type_: inspect.Type) -> FieldType:
    """Unwrap a type from its metadata and from None."""
    is_optional, described, extra = False, dict[str, Any](), dict[str, Any]()
    while True:
        match type_:
            case inspect.Metadata():
                described |= type_.extra_json_schema or {}
                extra |= type_.extra or {}
                type_ = type_.type
            case inspect.UnionType(types=types) if type_.includes_none:
                others = tuple(each for each in types if not isinstance(each, inspect.NoneType))
                is_optional, type_ = True, others[0] if len(others) == 1 else inspect.UnionType(others)
            case _:
                example = next(iter(described.get("examples", ())), None)
                return FieldType(type_, is_optional, described.get("description", ""), example, extra)


@cache
def struct_fields(struct: type[msgspec.Struct]) -> Mapping[str, inspect.Field]:
    """Return the fields of a struct, with their types, by name."""
    return {field.name: field for field in cast("inspect.StructType", inspect.type_info(struct)).fields}


def read_struct(raw: FileValue, struct: type[S], allowed: str = "a table") -> S:
    """Read a table as a struct; every error names the key and what is allowed."""
    fields = struct_fields(struct)
    table = raw.table(fields, allowed)
    values = {name: _read_field(table, field) for name, field in fields.items() if field.required or table.has(name)}
    with table.wrap_errors():
        return struct(**values)


def _read_field(table: FileTable, field: inspect.Field) -> Any:
    type_, raw = field_type(field.type), table.at(field.name)
    has_none = type_.is_optional and field.default is not None
    if has_none and raw.value == NONE:
        return None
    try:
        return table.require(field.name, lambda raw: read_value(raw, type_), _allowed(type_))
    except FileError as error:
        raise (raw.error(f'{error.problem}, or "{NONE}"') if has_none and error.key == raw.key else error) from None


def read_value(raw: FileValue, type_: FieldType) -> Any:
    """Read a value of a type."""
    match type_.type:
        case inspect.BoolType():
            return raw.flag()
        case inspect.IntType(ge=least, le=most):
            return raw.number(least, most)
        case inspect.StrType(pattern=pattern):
            if isinstance(raw.value, time) and re.search(pattern or "", clock_time := f"{raw.value:%H:%M}"):
                return clock_time
            return raw.name() if "is_name" in type_.extra else raw.text()
        case inspect.EnumType(cls=cls):
            return cls(raw.choice(type_.extra.get("choices", cls)).value)
        case inspect.TimeDeltaType():
            return raw.read(SHORT_FORMS[timedelta].parse, SHORT_FORMS[timedelta].allowed)
        case inspect.DateTimeType():
            return raw.read(_parse_moment, _allowed(type_))
        case inspect.VarTupleType(item_type=item_type):
            return tuple(read_value(item, field_type(item_type)) for item in raw.items())
        case inspect.DictType(value_type=value_type):
            return {key: read_value(value, field_type(value_type)) for key, value in raw.entries().items()}
        case inspect.StructType(cls=cls):
            form = SHORT_FORMS.get(cls)
            if form is None or (form.is_table_allowed and isinstance(raw.value, Mapping)):
                return read_struct(raw, cls, _allowed(type_))
            return raw.read(form.parse, form.allowed)
        case inspect.UnionType(types=types):
            return _read_alternative(raw, type_, types)
        case other:
            raise TypeError(f"a file cannot have values of type {other}")


def _read_alternative(raw: FileValue, type_: FieldType, types: Iterable[inspect.Type]) -> Any:
    """Read a table as the struct among the alternatives, and a string as the other alternative."""
    kinds = {isinstance(each.type, inspect.StructType): each for each in map(field_type, types)}
    raw.read(_check_alternative, _allowed(type_))
    return read_value(raw, kinds[isinstance(raw.value, Mapping)])


def _check_alternative(value: object) -> None:
    if not isinstance(value, str | Mapping):
        raise TypeError


def _parse_moment(value: object) -> datetime:
    return value if isinstance(value, datetime) else parse_moment(require_str(value))


def _allowed(type_: FieldType) -> str:
    """Return which values of a type a file can have."""
    example = "" if type_.example is None else f" such as {_toml(type_.example)}"
    match type_.type:
        case inspect.EnumType(cls=cls):
            return join_choices(f'"{choice.value}"' for choice in type_.extra.get("choices", cls))
        case inspect.StrType():
            return ("a name in quotes" if "is_name" in type_.extra else "a text in quotes") + example
        case inspect.TimeDeltaType():
            return SHORT_FORMS[timedelta].allowed
        case inspect.DateTimeType():
            return "a moment such as 2026-12-24T12:00:00Z"
        case inspect.StructType(cls=cls) if cls in SHORT_FORMS:
            return SHORT_FORMS[cls].allowed
        case inspect.StructType(cls=cls):
            required = [name for name, field in struct_fields(cls).items() if field.required]
            return f"a table with {' and '.join(required)}" if required else f"a table{example}"
        case inspect.UnionType(types=types):
            return ", or ".join(_allowed(field_type(each)) for each in types)
        case _:
            return "a value"


def _toml(value: object) -> str:
    match value:
        case dict():
            return f"{{ {', '.join(f'{key} = {_toml(item)}' for key, item in value.items())} }}"
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case _:
            return f'"{value}"'
