"""Rules from the metadata of a struct's fields, which is the only declaration of their bounds.

msgspec enforces bounds only when it decodes a value. With `check_fields` in its `__post_init__`, a struct also refuses
them when code creates it.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import cache, partial
from math import inf
from types import UnionType
from typing import Annotated, Any, NamedTuple, Protocol, Union, get_args, get_origin, get_type_hints

import msgspec

from forewarn.core.duration import RANGE, format_duration
from forewarn.core.errors import Invalid
from forewarn.core.limits import MAX_TEXT_LENGTH
from forewarn.core.text import check_guid, check_name, check_text, describe_range


class Check(Protocol):
    """Refuses a value of a field."""

    def __call__(self, value: Any, /, *, field: str) -> None:
        """Raise Invalid with the field if the value is outside its bounds."""


class FieldRule(NamedTuple):
    """The check of a field's values of one type. The default of the field is valid and not checked."""

    field: str
    default: object
    type: type
    is_only_type: bool
    """Whether other values than the default are always of this type."""
    check: Check


def check_fields(struct: msgspec.Struct) -> None:
    """Refuse a value outside the bounds of its field; the error has the field.

    Patterns and the items of a tuple or dict are not checked: the struct does that, with a message of its own.
    """
    _compile(type(struct))(struct)


@cache
def _compile(struct: type[msgspec.Struct]) -> Callable[[msgspec.Struct], None]:
    """Return a function that applies the rules of a struct.

    Like the methods of a dataclass it is compiled: a loop over the rules makes the decoding of VMs slower by a third,
    and a start decodes 100,000 of them.
    """
    lines, names = ["def check(struct):", "    pass"], dict[str, Any]()
    for n, rule in enumerate(field_rules(struct)):
        names |= {f"default{n}": rule.default, f"type{n}": rule.type, f"check{n}": rule.check}
        lines.append(
            f"    if (value := struct.{rule.field}) is not default{n}"
            + ("" if rule.is_only_type else f" and isinstance(value, type{n})")
            + f": check{n}(value, field={rule.field!r})"
        )
    exec("\n".join(lines), names)  # noqa: S102 - only names of fields, which are constants
    compiled: Callable[[msgspec.Struct], None] = names["check"]
    return compiled


@cache
def field_rules(struct: type[msgspec.Struct]) -> tuple[FieldRule, ...]:
    """Return the rules of a struct's fields."""
    hints = get_type_hints(struct, include_extras=True)
    rules = []
    for field in msgspec.structs.fields(struct):
        alternatives = list(_alternatives(hints[field.name]))
        for type_, bounds, extra in alternatives:
            if (check := _check(type_, bounds, extra)) is not None:
                is_only_type = all(
                    other is type_ or (other is type(None) and field.default is None) for other, _, _ in alternatives
                )
                rules.append(FieldRule(field.name, field.default, type_, is_only_type, check))
    return tuple(rules)


def _alternatives(hint: Any) -> Iterator[tuple[type, dict[str, int], dict[str, Any]]]:
    """Yield each type of a union, with its bounds and other metadata."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        metas: Iterable[msgspec.Meta] = arguments[1:]
        own = {key: limit for meta in metas for key in _BOUNDS if (limit := getattr(meta, key)) is not None}
        own_extra = {key: value for meta in metas for key, value in (meta.extra or {}).items()}
        for type_, bounds, extra in _alternatives(arguments[0]):
            yield type_, bounds | own, extra | own_extra
    elif origin in (Union, UnionType):
        for each in arguments:
            yield from _alternatives(each)
    else:
        yield origin or hint, {}, {}


_UNSUPPORTED_BOUNDS = ("gt", "lt", "multiple_of", "min_length")
_BOUNDS = ("ge", "le", "max_length", *_UNSUPPORTED_BOUNDS)


def _check(type_: type, bounds: dict[str, int], extra: dict[str, Any]) -> Check | None:
    if type_ is str and "is_name" in extra:
        return check_name
    if type_ is str and "is_guid" in extra:
        return check_guid
    if unsupported := bounds.keys() & _UNSUPPORTED_BOUNDS:
        raise TypeError(f"{', '.join(sorted(unsupported))}: use ge, le or max_length, because only these have rules")
    if type_ is str and "max_length" in bounds:
        limit = bounds["max_length"]
        return check_text if limit == MAX_TEXT_LENGTH else partial(check_text, limit=limit)  # a partial is slower
    if type_ is tuple and "max_length" in bounds:
        return _count_check(bounds["max_length"], extra.get("advice", ""))
    if type_ is int and bounds:
        return _number_check(bounds.get("ge"), bounds.get("le"))
    if type_ is timedelta and RANGE in extra:
        return _duration_check(*extra[RANGE])
    return None


def _count_check(most: int, advice: str) -> Check:
    def check(items: tuple[object, ...], /, *, field: str) -> None:
        if len(items) > most:
            raise Invalid(f"{len(items)} items: at most {most} are allowed{advice}", field)

    return check


def _number_check(least: int | None, most: int | None) -> Check:
    low, high = -inf if least is None else least, inf if most is None else most

    def check(number: int, /, *, field: str) -> None:
        if not low <= number <= high:
            raise Invalid(f"must be {describe_range(least, most)}, got {number}", field)

    return check


def _duration_check(least: timedelta, most: timedelta) -> Check:
    allowed = describe_range(format_duration(least), format_duration(most))

    def check(duration: timedelta, /, *, field: str) -> None:
        if not least <= duration <= most:
            raise Invalid(f"must be {allowed}, got {format_duration(duration)}", field)

    return check
