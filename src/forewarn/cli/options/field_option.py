"""Options derived from the fields of a core struct: flag, metavar, help and parsing."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import click
import msgspec
from msgspec import inspect

from forewarn.api.table_reader import FieldType, field_type, struct_fields
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import ChoiceType, Decorator
from forewarn.cli.options.completion import complete_hosts, complete_scopes
from forewarn.cli.options.times import read_duration
from forewarn.core.campaign.spec import Blackout, Limit, WaveKind, Window
from forewarn.core.duration import format_duration

SELECTION_KEYS = ("scopes", "hosts", "tags", "all")
"""If one of these is given as an option, it replaces all of them in the file."""

COMPLETIONS = {"scopes": complete_scopes, "hosts": complete_hosts}
METAVARS: Mapping[type, str] = {
    inspect.TimeDeltaType: "DURATION",
    inspect.DateTimeType: "TIME",
    inspect.IntType: "NUMBER",
    inspect.DictType: "NAME=VALUE",
}
OWN_METAVARS: Mapping[type, str] = {Limit: "LIMIT", Window: "WINDOW", Blackout: "FROM/TO", WaveKind: "KIND"}
EXAMPLES: Mapping[str, str] = {
    "TIME": "2026-01-31T10:15Z",
    "LIMIT": "10%",
    "WINDOW": "'sat,sun 22:00-04:00 Europe/Vienna'",
    "FROM/TO": "2026-12-24T12:00Z/2027-01-02T06:00Z",
}


class FieldOption(NamedTuple):
    """An option and its field; `table` is the table of the campaign file that has the key."""

    table: str
    key: str
    type: FieldType
    default: object

    @property
    def is_repeatable(self) -> bool:
        """Whether the option can be given several times."""
        return isinstance(self.type.type, inspect.VarTupleType | inspect.DictType)

    @property
    def is_clearable(self) -> bool:
        """Whether "none" removes the value of the file. If the default is not null, "none" has its own meaning."""
        if self.is_repeatable:
            return self.key not in SELECTION_KEYS
        return self.type.is_optional and self.default is None

    @property
    def parameter(self) -> str:
        """The name of its parameter, which must not shadow a Python builtin."""
        return f"{self.key}_" if self.key in ("type", "all") else self.key

    @property
    def flag(self) -> str:
        """The flag, such as --scope."""
        return f"--{(self.key.removesuffix('s') if self.is_repeatable else self.key).replace('_', '-')}"

    @property
    def metavar(self) -> str:
        """The name of its value in the help."""
        type_ = self.type.type
        items = field_type(type_.item_type).type if isinstance(type_, inspect.VarTupleType) else type_
        if isinstance(items, inspect.StructType | inspect.EnumType) and items.cls in OWN_METAVARS:
            return OWN_METAVARS[items.cls]
        if isinstance(items, inspect.StrType) and items.pattern is None and "is_name" not in self.type.extra:
            return "TEXT"
        return METAVARS.get(type(type_)) or self.flag.rpartition("-")[2].upper()

    @property
    def help(self) -> str:
        """The help: description, whether it is repeatable, default and example."""
        example = EXAMPLES.get("" if isinstance(self.type.type, inspect.BoolType) else self.metavar)
        sentences = (
            self.type.description,
            "Repeatable." if self.is_repeatable else "",
            f"Default: {default}." if (default := self._default_text()) else "",
            f"Example: {example}." if example else "",
        )
        return " ".join(filter(None, sentences))

    def _default_text(self) -> str:
        """Return the default of a policy key; other options have no default or leave a value unchanged."""
        match self.default if self.table == "policy" else None:
            case bool() as flag:
                return "yes" if flag else "no"
            case timedelta() as duration:
                return format_duration(duration)
            case int() | str() as value:  # also the words of enumerations
                return str(value)
            case _:
                return ""

    def declare(self) -> Decorator:
        """Return the decorator that adds the option to a command."""
        match self.type.type:
            case inspect.BoolType() if self.table == "selection":
                return click.option(self.flag, self.parameter, is_flag=True, help=self.help)
            case inspect.BoolType():
                both = f"{self.flag}/--no-{self.flag.removeprefix('--')}"
                return click.option(both, self.parameter, default=None, help=self.help)
            case inspect.EnumType(cls=cls):
                choices = ChoiceType(self.type.extra.get("choices", cls))
                return click.option(self.flag, self.parameter, type=choices, metavar=self.metavar, help=self.help)
            case _:
                return click.option(
                    self.flag,
                    self.parameter,
                    multiple=self.is_repeatable,
                    metavar=self.metavar,
                    help=self.help,
                    shell_complete=COMPLETIONS.get(self.key),
                )

    def read(self, typed: Any) -> Any:
        """Convert the typed value to the form of file and API; None if the option was not given."""
        match self.type.type:
            case inspect.DictType():
                return _tags(typed, self.flag)
            case inspect.TimeDeltaType():
                return read_duration(typed, self.flag)
            case inspect.IntType():
                return int(typed) if typed and typed.isascii() and typed.isdigit() else typed
            case inspect.UnionType():  # a gate, which is a name or an HTTP check
                return {"url": typed} if typed is not None and "://" in typed else typed
            case inspect.BoolType() if self.table == "selection":
                return typed or None
            case _:
                return list(typed or ()) or None if self.is_repeatable else typed


def field_options(tables: Mapping[str, type[msgspec.Struct]]) -> tuple[FieldOption, ...]:
    """Return an option for each key of the tables that is not a table itself."""
    return tuple(
        FieldOption(table, key, field_type(field.type), field.default)
        for table, struct in tables.items()
        for key, field in struct_fields(struct).items()
        if key not in tables
    )


def _tags(texts: Iterable[str] | None, flag: str) -> dict[str, str] | None:
    tags = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            what, example = ("a value", "vmSize=Standard_D2s_v5") if flag == "--instance" else ("a tag", "team=web")
            raise CliError(ExitCode.USAGE, f"{flag}: {text!r} is not {what}; write NAME=VALUE, such as {example}")
        tags[name] = value
    return tags or None
