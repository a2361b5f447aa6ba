"""The form of a campaign, derived from the fields of `core/campaign/spec.py`: a new key needs no change here.

A form and a campaign file have the same content: `form_content` reads the texts of the form as a table of the file, and
`form_texts` shows such a table in the form. Neither checks values, so that nothing typed is lost; the reader of the
campaign file does.
"""

import re
import tomllib
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import NamedTuple

import msgspec
from msgspec import inspect

from forewarn.api.form import SHORT_FORMS
from forewarn.api.table_reader import FieldType, field_type, struct_fields
from forewarn.api.table_writer import Value, toml_value
from forewarn.core.campaign.spec import Blackout, CampaignSpec, Limit, Window
from forewarn.core.duration import format_duration

Content = dict[str, Value]

EXAMPLES: Mapping[type, str] = {
    Limit: "10%",
    Window: "sat,sun 22:00-04:00 Europe/Vienna",
    Blackout: "2026-12-24T12:00Z/2027-01-02T06:00Z holidays",
}
"""How users write a struct that has a form as a text."""

URL_MARK = "://"
"""Distinguishes the alternatives of a key that is either a name or a table with a URL."""

TOML_MARKS = ('"', "{")
"""How a line begins that is written in TOML."""

NEWLINE = re.compile(r"\r\n?|\n")


class Control(StrEnum):
    """How a key is edited."""

    CHECK = "check"
    CHOICE = "choice"
    LINE = "line"
    TEXT = "text"
    """Several lines."""
    ITEMS = "items"
    """One item per line."""
    PAIRS = "pairs"
    """One `name=value` per line."""


class FormField(NamedTuple):
    """A key of the campaign file, as a field of the form."""

    key: str
    """The complete key: `policy.gap`."""
    type: FieldType
    default: object
    is_required: bool
    url_key: str = ""
    """The key of the URL, if it is either a name or a table with a URL, or a further key of such a table."""

    @property
    def name(self) -> str:
        """The name of the key in its table."""
        return self.key.rpartition(".")[2]

    @property
    def id(self) -> str:
        """The id of its element in a page."""
        return f"field-{self.key.replace('.', '-')}"

    @property
    def is_nested(self) -> bool:
        """Whether it is a key of a table within a table."""
        return self.key.count(".") > 1

    @property
    def label(self) -> str:
        """The name for people; that of a key in an inner table begins with the name of that table."""
        first, *others = self.key.split(".")
        words = " ".join(others or [first]).replace("_", " ")
        return re.sub(r"\bvms\b", "VMs", words[0].upper() + words[1:], flags=re.IGNORECASE)

    @property
    def control(self) -> Control:
        """How it is edited."""
        match self.type.type:
            case inspect.BoolType():
                return Control.CHECK
            case inspect.EnumType():
                return Control.CHOICE
            case inspect.VarTupleType():
                return Control.ITEMS
            case inspect.DictType():
                return Control.PAIRS
            case inspect.StrType(pattern=None) if "is_name" not in self.type.extra:
                return Control.TEXT
            case _:
                return Control.LINE

    @property
    def choices(self) -> tuple[str, ...]:
        """The words of a choice."""
        type_ = self.type.type
        words = self.type.extra.get("choices", type_.cls) if isinstance(type_, inspect.EnumType) else ()
        return tuple(word.value for word in words)

    @property
    def placeholder(self) -> str:
        """The default value, or an example."""
        match self.default:
            case timedelta() as duration:
                return format_duration(duration)
            case int() | str() as value if value != "":
                return str(value)
            case _:
                example = self._example()
                return f"such as {example}" if example else ""

    def _example(self) -> str:
        if self.type.example is not None:
            return str(self.type.example)
        type_ = self.type.type
        items = field_type(type_.item_type).type if isinstance(type_, inspect.VarTupleType) else type_
        match items:
            case inspect.StructType(cls=cls):
                return EXAMPLES.get(cls, "")
            case inspect.DictType():
                return "team=web"
            case inspect.DateTimeType():
                return "2026-01-31T10:15Z"
            case inspect.TimeDeltaType():
                return "15m"
            case _:
                return ""

    @property
    def hint(self) -> str:
        """What it means, and how to write several values."""
        more = {Control.ITEMS: "One per line.", Control.PAIRS: "One name=value per line."}.get(self.control, "")
        return " ".join(filter(None, (self.type.description, more)))

    def read(self, text: str) -> Value | None:
        """Return the value of the file for the text of the field; None: the key is left out."""
        text = NEWLINE.sub("\n", text)
        match self.control:
            case Control.CHECK:
                flag = text == "true"
                return None if flag is self.default else flag
            case Control.ITEMS:
                return [_read_item(line.strip()) for line in text.split("\n") if line.strip()] or None
            case Control.PAIRS:
                return _read_pairs([line.strip() for line in text.split("\n") if line.strip()])
            case Control.TEXT:
                return text or None
            case _:
                return _read_line(text.replace("\n", "").strip(), self.type.type)

    def show(self, value: Value | None) -> str:
        """Return the text of the field for a value of the file; None: the key is missing."""
        match value:
            case None:
                return ("true" if self.default else "") if self.control is Control.CHECK else ""
            case list() if self.control is Control.ITEMS:
                return "\n".join(map(_show_item, value))
            case dict() if self.control is Control.PAIRS:
                return "\n".join(_show_pair(name, item) for name, item in value.items())
            case str():
                return value
            case _:
                return toml_value(value)


class FormTable(NamedTuple):
    """The fields of a table of the campaign file; those outside of any table have an empty name."""

    name: str
    fields: tuple[FormField, ...]

    @property
    def title(self) -> str:
        """The name for people."""
        return self.name.capitalize() or "Campaign"


@cache
def form_tables(struct: type[msgspec.Struct] = CampaignSpec) -> tuple[FormTable, ...]:
    """Return the tables of the form."""
    tables = {name: cls for name, field in struct_fields(struct).items() if (cls := _table(field)) is not None}
    own = tuple(_fields("", struct, without=tables))
    others = (FormTable(name, tuple(_fields(f"{name}.", cls))) for name, cls in tables.items())
    return FormTable("", own), *others


def _table(field: inspect.Field) -> type[msgspec.Struct] | None:
    type_ = field_type(field.type).type
    return type_.cls if isinstance(type_, inspect.StructType) and type_.cls not in SHORT_FORMS else None


def _fields(prefix: str, struct: type[msgspec.Struct], without: Container[str] = ()) -> Iterator[FormField]:
    for name, field in struct_fields(struct).items():
        if name in without:
            continue
        type_ = field_type(field.type)
        alternative = _alternative(type_.type)
        url_key = "" if alternative is None else next(iter(struct_fields(alternative)))
        yield FormField(prefix + name, type_, field.default, field.required, url_key)
        if alternative is not None:
            others = _fields(f"{prefix}{name}.", alternative, without=(url_key,))
            yield from (other._replace(url_key=url_key) for other in others)


def _alternative(type_: inspect.Type) -> type[msgspec.Struct] | None:
    """Return the struct of a key that is either a name or a table."""
    kinds = (field_type(each).type for each in type_.types) if isinstance(type_, inspect.UnionType) else ()
    return next((kind.cls for kind in kinds if isinstance(kind, inspect.StructType)), None)


def form_fields(struct: type[msgspec.Struct] = CampaignSpec) -> Iterator[FormField]:
    """Yield all fields of the form."""
    for table in form_tables(struct):
        yield from table.fields


def form_content(texts: Mapping[str, str], struct: type[msgspec.Struct] = CampaignSpec) -> Content:
    """Return the content of the campaign file for the texts of the form, by key."""
    content: Content = {}
    for field in form_fields(struct):
        if (value := field.read(texts.get(field.key, ""))) is not None:
            _put(content, field, value)
    return content


def _put(content: Content, field: FormField, value: Value) -> None:
    *tables, name = field.key.split(".")
    place: dict[str, Value] = content
    for table in tables:
        inner = place.get(table, {})
        # A further key of a gate whose text is a name, not a URL: the reader of the file refuses the name.
        place[table] = place = inner if isinstance(inner, dict) else {field.url_key: inner}
    is_url = isinstance(field.type.type, inspect.UnionType) and isinstance(value, str) and URL_MARK in value
    place[name] = {field.url_key: value} if is_url else value


def form_texts(content: Mapping[str, Value], struct: type[msgspec.Struct] = CampaignSpec) -> dict[str, str]:
    """Return the texts of the form, by key, for the content of a campaign file. Unknown keys are left out."""
    return {field.key: field.show(_find(content, field)) for field in form_fields(struct)}


def _find(content: Mapping[str, Value], field: FormField) -> Value | None:
    value: Value | None = content
    for part in field.key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(field.type.type, inspect.UnionType) and isinstance(value, Mapping):
        return value.get(field.url_key)
    return value


def _read_line(text: str, type_: inspect.Type) -> Value | None:
    """Return the value of one line. A text that is not of the type stays a text, which the reader refuses."""
    match type_:
        case _ if not text:
            return None
        case inspect.IntType() | inspect.StructType() if text.isascii() and text.isdigit():
            return int(text)
        case inspect.DateTimeType():
            try:
                return datetime.fromisoformat(text)
            except ValueError:
                return text
        case _:
            return text


def _read_item(line: str) -> Value:
    """Return an item of a list. One that cannot be written as plain text is written in TOML."""
    if line.startswith(TOML_MARKS):
        try:
            item: Value = tomllib.loads(f"item = {line}")["item"]
        except (tomllib.TOMLDecodeError, RecursionError):
            return line
        return item
    return line


def _show_item(item: Value) -> str:
    if isinstance(item, str) and item and not NEWLINE.search(item) and _read_item(item.strip()) == item:
        return item
    return toml_value(item)


def _read_pairs(lines: Sequence[str]) -> Value | None:
    """Return a table of names and values, or the text of a line that is not a pair, which the reader refuses."""
    pairs: dict[str, Value] = {}
    for line in lines:
        if line.startswith(TOML_MARKS):
            try:
                pairs |= tomllib.loads(line)
            except (tomllib.TOMLDecodeError, RecursionError):
                return line
        elif "=" in line:
            name, _, value = line.partition("=")
            pairs[name.strip()] = value.strip()
        else:
            return line
    return pairs or None


def _show_pair(name: str, value: Value) -> str:
    line = f"{name}={value}"
    if not NEWLINE.search(line) and _read_pairs([line.strip()]) == {name: value}:
        return line
    return f"{toml_value(name)} = {toml_value(value)}"  # the quotes mark it as TOML
