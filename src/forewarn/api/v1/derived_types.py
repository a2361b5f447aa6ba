"""Derive types of the API from structs of the core: the same keys, bounds, defaults and descriptions.

The API does not use the core's structs directly, because they are also stored, and a record has another form than the
API: a duration is in ISO 8601 instead of "15m", a limit is an object instead of 10 or "10%", keys with their default
value are omitted, and unknown keys are ignored, while a request refuses them. `DerivedTypes` defines these differences
once per type of field; it names no keys.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import reduce
from operator import or_
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from forewarn.api.form import SHORT_FORMS
from forewarn.api.v1.common import Duration, Moment
from forewarn.core.campaign.spec import Limit
from forewarn.core.duration import RANGE, format_duration
from forewarn.core.errors import Invalid

S = TypeVar("S", bound=msgspec.Struct)

PositiveCount = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
Percent = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3})? ?%$")]


class Form(NamedTuple):
    """The form of a type in the API: the API type and the conversions in both directions.

    `read` also gets the path of the value in the request, for its error messages.
    """

    type: Any
    write: Callable[[Any], Any]
    read: Callable[[Any, str], Any]


def value_form(type_: Any, write: Callable[[Any], Any], read: Callable[[Any], Any]) -> Form:
    """Return the form of a type whose values are not nested."""

    def read_at(value: Any, path: str) -> Any:
        try:
            return read(value)
        except Invalid as error:
            raise error.below(path) from None

    return Form(type_, write, read_at)


def _to_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise Invalid(f"{moment.isoformat()} is outside the range of UTC") from None


VALUE_FORMS: Mapping[Any, Form] = {
    timedelta: value_form(Duration, SHORT_FORMS[timedelta].write, SHORT_FORMS[timedelta].parse),
    datetime: value_form(Moment, lambda moment: moment, _to_utc),
    Limit: value_form(PositiveCount | Percent, SHORT_FORMS[Limit].write, SHORT_FORMS[Limit].parse),
}


class DerivedTypes:
    """Derives API types with a common base class. `names` has the name of each type by its struct of the core.

    `own_forms` has the forms of fields that do not follow from their type, by struct and name. `is_change`: the types
    are requests that change a value, and an omitted field stays. Without `has_descriptions`, metadata with a
    description is left out of the schema; only the bounds of durations are then descriptions.
    """

    def __init__(
        self,
        base: type[msgspec.Struct],
        names: Mapping[type[msgspec.Struct], str],
        own_forms: Mapping[tuple[type[msgspec.Struct], str], Form],
        *,
        is_change: bool = False,
        has_descriptions: bool = True,
    ) -> None:
        self._base, self._names, self._own_forms = base, names, own_forms
        self._define = _change_definition if is_change else _definition
        self._has_descriptions = has_descriptions
        self._derived: dict[type[msgspec.Struct], type[Any]] = {}
        self._forms: dict[type[msgspec.Struct], dict[str, Form]] = {}

    def derive(self, struct: type[msgspec.Struct]) -> type[Any]:
        """Return the API type of a struct. Keys without a default come first."""
        if struct not in self._derived:
            hints = get_type_hints(struct, include_extras=True).items()
            forms = {name: self._own_forms.get((struct, name)) or self._form(hint) for name, hint in hints}
            fields = sorted(msgspec.structs.fields(struct), key=lambda field: not field.required)
            self._forms[struct] = forms
            self._derived[struct] = msgspec.defstruct(
                self._names[struct],
                [self._define(field, forms[field.name]) for field in fields],
                bases=(self._base,),
                module=self._base.__module__,
                namespace={"__doc__": struct.__doc__},
                frozen=True,
                kw_only=True,
            )
        return self._derived[struct]

    def with_fields_of(self, struct: type[msgspec.Struct]) -> Callable[[type[S]], type[S]]:
        """Return a decorator that appends to an API type the fields of a struct that it does not declare itself."""

        def complete(declared: type[S]) -> type[S]:
            self.derive(struct)
            fields = [each for each in msgspec.structs.fields(struct) if each.name not in declared.__struct_fields__]
            completed: type[Any] = msgspec.defstruct(
                declared.__name__,
                [self._define(each, self._forms[struct][each.name]) for each in fields],
                bases=(declared,),
                module=declared.__module__,
                namespace={"__doc__": declared.__doc__},
                frozen=True,
                kw_only=True,
            )
            return completed

        return complete

    def write(self, value: msgspec.Struct) -> Any:
        """Convert a value of the core to its API type."""
        return self.derive(type(value))(**self.write_fields(value))

    def write_fields(self, value: msgspec.Struct) -> dict[str, Any]:
        """Return the fields of a value of the core as the API has them."""
        self.derive(type(value))
        return {name: form.write(getattr(value, name)) for name, form in self._forms[type(value)].items()}

    def read(self, struct: type[S], value: Any, path: str = "") -> S:
        """Convert a value of the API type, or one with more fields, to the struct of the core.

        Raise Invalid, with the path, if a value is not allowed.
        """
        fields = self.read_fields(struct, value, path)
        try:
            return struct(**fields)
        except Invalid as error:
            raise error.below(path) from None

    def read_fields(self, struct: type[msgspec.Struct], value: Any, path: str = "") -> dict[str, Any]:
        """Return the fields of a struct that are set in a value of the API."""
        self.derive(struct)
        given = {name: getattr(value, name, msgspec.UNSET) for name in self._forms[struct]}
        return {
            name: self._forms[struct][name].read(each, f"{path}.{name}" if path else name)
            for name, each in given.items()
            if each is not msgspec.UNSET
        }

    def _form(self, type_: Any) -> Form:
        origin, arguments = get_origin(type_), get_args(type_)
        if type_ in VALUE_FORMS:
            return VALUE_FORMS[type_]
        if origin is Annotated:
            extra = {key: value for meta in arguments[1:] for key, value in (meta.extra or {}).items()}
            inner = _choice_form(arguments[0], extra["choices"]) if "choices" in extra else self._form(arguments[0])
            metas = [meta for meta in arguments[1:] if RANGE not in (meta.extra or {})]
            text = next((meta.description for meta in metas if meta.description), None)
            if not self._has_descriptions:
                text, metas = "", [meta for meta in metas if meta.description is None]
            if RANGE in extra:  # JSON schema has no such bounds for texts
                metas.append(_range_description(text, *extra[RANGE]))
            return inner._replace(type=Annotated[inner.type, *metas]) if metas else inner
        if origin is tuple:
            return _items_form(self._form(arguments[0]))
        if origin in (Union, UnionType):
            return _union_form([(each, self._form(each)) for each in arguments])
        if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
            return Form(self.derive(type_), self.write, lambda value, path: self.read(type_, value, path))
        return Form(type_, lambda value: value, lambda value, _: value)


def _range_description(text: str | None, least: timedelta, most: timedelta) -> msgspec.Meta:
    """Return metadata that replaces the description of a duration by one with its bounds."""
    if text is None:
        raise TypeError("a duration with bounds must have a description")
    allowed = f"Allowed: {format_duration(least)} to {format_duration(most)}."
    return msgspec.Meta(description=f"{text} {allowed}".lstrip())


def _definition(field: msgspec.structs.FieldInfo, form: Form) -> tuple[str, Any] | tuple[str, Any, Any]:
    if field.required:
        return field.name, form.type
    if field.default_factory is not msgspec.NODEFAULT:
        return field.name, form.type, msgspec.field(default_factory=field.default_factory)
    return field.name, form.type, form.write(field.default)


def _change_definition(field: msgspec.structs.FieldInfo, form: Form) -> tuple[str, Any, Any]:
    return field.name, Union[form.type, msgspec.UnsetType], msgspec.UNSET  # noqa: UP007 - a type may be Annotated


def _choice_form(values: type[StrEnum], choices: type[StrEnum]) -> Form:
    """Return the form of an enum of which a request may use only some values."""
    return value_form(choices, lambda value: choices(value.value), lambda choice: values(choice.value))


def _items_form(item: Form) -> Form:
    return Form(
        GenericAlias(tuple, (item.type, ...)),
        lambda values: tuple(map(item.write, values)),
        lambda values, path: tuple(item.read(value, f"{path}[{n}]") for n, value in enumerate(values)),
    )


def _union_form(alternatives: Iterable[tuple[Any, Form]]) -> Form:
    """Return the form of a union of at most one struct, one other type and None."""
    forms: dict[Any, Form] = dict(alternatives)
    structs = [each for each in forms if isinstance(each, msgspec.StructMeta) and each not in VALUE_FORMS]
    others = [each for each in forms if each not in structs and each is not NoneType]
    if len(structs) > 1 or len(others) > 1:
        raise TypeError(f"JSON cannot tell apart {', '.join(map(str, forms))}")

    def form_of(value: object) -> Form:
        is_struct = isinstance(value, msgspec.Struct) and type(value) not in VALUE_FORMS
        return forms[NoneType if value is None else (structs if is_struct else others)[0]]

    return Form(
        reduce(or_, (form.type for form in forms.values())),
        lambda value: form_of(value).write(value),
        lambda value, path: form_of(value).read(value, path),
    )
