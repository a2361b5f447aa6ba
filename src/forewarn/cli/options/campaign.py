"""Campaign options: build a campaign spec from a campaign file and options; options take precedence.

The options are derived from the fields of `core/campaign/spec.py`: a new key of a policy needs no change here.
"""

import sys
from collections.abc import Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec
from msgspec import inspect

from forewarn.api import v1
from forewarn.api.campaign_file import parse_campaign, read_campaign
from forewarn.api.file_reader import FileError
from forewarn.api.table_reader import NONE, FieldType, field_type, struct_fields
from forewarn.api.v1.campaigns import spec_view
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import FILE_PATH, ChoiceType, Command, Decorator, with_options
from forewarn.cli.options.completion import complete_hosts, complete_scopes
from forewarn.core.campaign.spec import Blackout, CampaignPolicy, CampaignSpec, Limit, Selection, WaveKind, Window

STDIN = Path("-")

Content = dict[str, Any]

TABLES: Mapping[str, type[msgspec.Struct]] = {"": CampaignSpec, "selection": Selection, "policy": CampaignPolicy}
"""The structs whose fields are options, by the table of the campaign file that has them."""

SELECTION_KEYS = ("scopes", "hosts", "tags", "all")
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


class CampaignOption(NamedTuple):
    """An option, and the key of the campaign file that it stands for."""

    table: str
    key: str
    type: FieldType
    default: object

    @property
    def is_repeatable(self) -> bool:
        """Whether it adds one of several values."""
        return isinstance(self.type.type, inspect.VarTupleType | inspect.DictType)

    @property
    def is_clearable(self) -> bool:
        """Whether "none" takes away what the file says. A key with another default than null has a meaning for it."""
        if self.is_repeatable:
            return self.key not in SELECTION_KEYS
        return self.type.is_optional and self.default is None

    @property
    def parameter(self) -> str:
        """The name of its parameter, which is no word of Python's own."""
        return f"{self.key}_" if self.key in ("type", "all") else self.key

    @property
    def flag(self) -> str:
        """What is typed."""
        return f"--{(self.key.removesuffix('s') if self.is_repeatable else self.key).replace('_', '-')}"

    @property
    def metavar(self) -> str:
        """What its value is called."""
        type_ = self.type.type
        items = field_type(type_.item_type).type if isinstance(type_, inspect.VarTupleType) else type_
        if isinstance(items, inspect.StructType | inspect.EnumType) and items.cls in OWN_METAVARS:
            return OWN_METAVARS[items.cls]
        if isinstance(items, inspect.StrType) and items.pattern is None and "is_name" not in self.type.extra:
            return "TEXT"
        return METAVARS.get(type(type_)) or self.flag.rpartition("-")[2].upper()

    @property
    def help(self) -> str:
        """What it means."""
        example = EXAMPLES.get("" if isinstance(self.type.type, inspect.BoolType) else self.metavar)
        return self.type.description + (f" Example: {example}." if example else "")

    def declare(self) -> Decorator:
        """Return it as an option of a command."""
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
        """Return what was typed as the campaign file has it; None: nothing was typed."""
        match self.type.type:
            case inspect.DictType():
                return _tags(typed, self.flag)
            case inspect.EnumType():
                return typed and typed.value
            case inspect.IntType():
                return int(typed) if typed and typed.isascii() and typed.isdigit() else typed
            case inspect.UnionType():  # a gate, which is a name or an HTTP check
                return {"url": typed} if typed is not None and "://" in typed else typed
            case inspect.BoolType() if self.table == "selection":
                return typed or None
            case _:
                return list(typed or ()) or None if self.is_repeatable else typed


def campaign_options(tables: Mapping[str, type[msgspec.Struct]]) -> tuple[CampaignOption, ...]:
    """Return an option for each key of the tables that is not a table itself."""
    return tuple(
        CampaignOption(table, key, field_type(field.type), field.default)
        for table, struct in tables.items()
        for key, field in struct_fields(struct).items()
        if key not in tables
    )


OPTIONS = campaign_options(TABLES)
REQUIRED = {"name": "--name NAME", "type": "--type TYPE", "selection": "--scope, --host, --tag or --all"}
"""What has to be said, and how."""

ALL = {"all": True}
EMPTY_VALUES: tuple[object, ...] = ([], {}, False)
"""What only takes the place of what the file says."""


def with_campaign(command: Command) -> Command:
    """Give a command the file and the options of a campaign, and in their place `spec`: what they ask for."""

    @wraps(command)
    def wrapped(file: Path | None, **given: Any) -> None:
        values = {each.parameter: given.pop(each.parameter) for each in OPTIONS}
        command(spec=campaign_from_options(file, values), **given)

    file_argument = click.argument("file", type=FILE_PATH, metavar="[FILE]", required=False)
    return with_options((file_argument, *(each.declare() for each in OPTIONS)))(wrapped)


def campaign_from_options(file: Path | None, values: Mapping[str, Any]) -> v1.CampaignSpec:
    """Return the campaign that file and options ask for; what is wrong is named by its key or option.

    `values` has what was typed, by parameter.
    """
    content = _read(file) if file is not None else {}
    given: dict[str, Content] = {table: {} for table in TABLES}
    for each in OPTIONS:
        typed = values[each.parameter]
        if each.is_clearable and typed in (NONE, (NONE,)):
            _remove(content, each)
        elif (value := each.read(typed)) is not None:
            _check_option(each, value)
            given[each.table][each.key] = value
    if not given["selection"].keys().isdisjoint(SELECTION_KEYS):  # it takes the place of the file's, whichever it is
        given["selection"] = {"scopes": [], "hosts": [], "tags": {}, "all": False} | given["selection"]
    for table, values in given.items():
        _merge(content, table, values)
    if file is None:
        _check_complete(content)
    return spec_view(read_campaign(content, file=_name_of(file)))


def _remove(content: Content, cleared: CampaignOption) -> None:
    """Take away from what is written what is switched off."""
    written = content.get(cleared.table) if cleared.table else content
    if isinstance(written, dict):
        written.pop(cleared.key, None)


def _check_option(given: CampaignOption, value: object) -> None:
    """Read an option's value where nothing else can be wrong, so that the file is not blamed for it."""
    key, is_selection = given.key, given.table == "selection" and given.key in SELECTION_KEYS
    content: Content = {"name": "any", "type": v1.CampaignType.FREEZE.value, "selection": {} if is_selection else ALL}
    _merge(content, given.table, {key: value})
    try:
        read_campaign(content, file="")
    except FileError as error:
        named = error.problem.startswith((f"{key} ", f"{key}: "))
        problem = error.problem.removeprefix(key) if named else f": {error.problem}"
        raise CliError(ExitCode.USAGE, given.flag + problem) from None


def _name_of(file: Path | None) -> str:
    return "" if file is None else "stdin" if file == STDIN else str(file)


def _read(file: Path) -> Content:
    try:
        text = sys.stdin.read() if file == STDIN else file.read_text(encoding="utf-8")
    except OSError as error:
        raise CliError(ExitCode.USAGE, f"cannot read {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise CliError(ExitCode.USAGE, f"{_name_of(file)}: this is not UTF-8: {error}") from error
    return parse_campaign(text, file=_name_of(file))


def _merge(content: Content, table: str, values: Content) -> None:
    """Lay what was said over what is written; a table that is none is left for the reader to refuse."""
    if not table:
        content.update(values)
    elif values and isinstance(written := content.get(table, {}), dict):
        content[table] = {**written, **values}


def _check_complete(content: Content) -> None:
    missing = [how for key, how in REQUIRED.items() if key not in content]
    if missing:
        raise CliError(ExitCode.USAGE, f"say {', and '.join(missing)}; or name a FILE that says it")


def _tags(texts: Iterable[str] | None, flag: str) -> dict[str, str] | None:
    tags = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise CliError(ExitCode.USAGE, f"{flag}: {text!r} is no tag: write it like team=web")
        tags[name] = value
    return tags or None
