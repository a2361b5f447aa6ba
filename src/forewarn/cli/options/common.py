"""Options shared by several commands, as decorators, and the types of their values."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.output import Output
from forewarn.settings.errors import InvalidSettingsFile
from forewarn.settings.types import flag_name, variable_name

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

N = TypeVar("N", bound=float)

Command: TypeAlias = Callable[..., None]
Decorator: TypeAlias = Callable[[Command], Command]
OptionTable: TypeAlias = Mapping[str, Decorator]
"""Options by parameter name, in the order of the help."""

FILE_PATH = click.Path(path_type=Path)
"""A path as typed; the command that opens it reports errors."""


class ChoiceType(click.ParamType[StrEnum]):
    """A value of an enumeration, case-insensitive."""

    name = "choice"

    def __init__(self, choices: type[StrEnum]) -> None:
        self.choices = choices

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> StrEnum:
        """Return the member; the error about an invalid value lists all values and suggests the closest."""
        by_name = {choice.value.casefold(): choice for choice in self.choices}
        member = by_name.get(value.casefold())
        if member is None:
            from difflib import get_close_matches  # late: an idle agent does not need it

            close = get_close_matches(value.casefold(), by_name, n=1)
            meant = f" Did you mean {by_name[close[0]].value}?" if close else ""
            self.fail(f"{value!r} is not one of {self._all_values()}.{meant}", param, ctx)
        return member

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:  # noqa: ARG002  # Click's signature
        """Return the allowed values."""
        return f"Choose one of {self._all_values()}."

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002  # Click's signature
        param: click.Parameter,  # noqa: ARG002  # likewise
        incomplete: str,
    ) -> "list[CompletionItem]":
        """Return the values that start with the typed text."""
        return complete_words([choice.value for choice in self.choices], incomplete)

    def _all_values(self) -> str:
        *others, last = (choice.value for choice in self.choices)
        return f"{', '.join(others)} and {last}" if others else last


class _Number(click.ParamType[N]):
    """A number within bounds; the error about another one says which are allowed, where Click's says `x>=1`."""

    name = "number"

    def __init__(self, parse: Callable[[str], N], allowed: str, least: float = -inf, most: float = inf) -> None:
        self._parse, self._allowed, self._least, self._most = parse, allowed, least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> N:
        """Return the number."""
        try:
            number = self._parse(value)
        except ValueError:
            number = None
        if number is None or not self._least <= number <= self._most:
            self.fail(f"{value!r} is not allowed: use {self._allowed}.", param, ctx)
        return number


FROM_0 = _Number(int, "an integer of at least 0", 0)
FROM_1 = _Number(int, "an integer of at least 1", 1)
ANY_NUMBER = _Number(float, "a number")
FROM_1_TO_100 = _Number(float, "a number from 1 to 100", 1, 100)
ONE_SHOT_SECONDS = _Number(float, "a number from 0.1 to 3600", 0.1, 3600)


class CommandGroup(click.Group):
    """A command group whose help lists commands in the order of their definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # Click's signature
        """Return the names of the commands."""
        return list(self.commands)


class SettingOption(click.Option):
    """The option of a setting. The help shows its environment variable, which the settings loader reads."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:  # noqa: ARG002  # Click's signature
        """Return None: the settings loader reads the variable and reports errors by its name."""
        return None


def complete_words(words: Iterable[str], incomplete: str) -> "list[CompletionItem]":
    """Return the words that start with the typed text, case-insensitive."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(word) for word in words if word.casefold().startswith(incomplete.casefold())]


def option(*declarations: str, **attributes: Any) -> Decorator:
    """Declare an option whose help shows its environment variable."""
    return click.option(*declarations, show_envvar=True, **attributes)


def origin_of(flag: str) -> str:
    """Return the option or argument, as in the usage, or the variable that its value is from; for messages.

    A command without this option has read the variable itself.
    """
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return flag
    param = next((each for each in ctx.command.params if flag.lower() in each.opts), None)
    if param is None:
        return variable_name(flag.removeprefix("--").replace("-", "_"))
    is_variable = ctx.get_parameter_source(param.name or "") is ParameterSource.ENVIRONMENT
    return str(param.envvar) if is_variable else flag


@contextmanager
def usage_errors(flag: str, *kinds: type[Exception]) -> Iterator[None]:
    """Report these errors, raised within this context, as wrong usage of an option."""
    try:
        yield
    except kinds as error:
        raise CliError(ExitCode.USAGE, f"{origin_of(flag)}: {error}") from error


@contextmanager
def config_errors(config: str | None) -> Iterator[None]:
    """Report that the settings file that --config names cannot be read, as wrong usage of this option."""
    try:
        yield
    except InvalidSettingsFile as error:
        if config is None or error.path != Path(config).expanduser():
            raise
        raise CliError(ExitCode.USAGE, f"{origin_of('--config')}: {error}") from error


def declare_config_option(variable: str, help_: str) -> Decorator:
    """Declare --config. If its file cannot be read, the error names the option or the variable."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def wrapped(config: str | None, **given: Any) -> None:
            with config_errors(config):
                command(config=config, **given)

        return option("--config", envvar=variable, metavar="FILE", help=help_)(wrapped)

    return decorate


SHARED_SETTINGS = {
    "data": ("Keep the fleet in this directory.", "DIR"),
    "fleet": ("Fill an empty data directory from this fleet file.", "FILE"),
    "network": ("The network of interfaces for which none is given.", "NAME"),
    "operator": ("The address of the operator API.", "HOST:PORT"),
}
"""Help and value of the settings that are options of both `forewarn up` and `forewarn serve`."""


def shared_setting_option(key: str) -> Decorator:
    """Declare one of `SHARED_SETTINGS`."""
    return setting_option(key, *SHARED_SETTINGS[key])


def setting_option(
    key: str, help_: str, metavar: str | None = None, *, variable: Callable[[str], str] = variable_name
) -> Decorator:
    """Declare the option of a setting; without `metavar` it is a flag. `variable` returns the variable of a key."""
    kind = {"is_flag": True} if metavar is None else {"metavar": metavar}
    return option(flag_name(key), cls=SettingOption, envvar=variable(key), default=None, help=help_, **kind)


def given_settings(values: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that were given as options."""
    return {key: value for key, value in values.items() if value is not None}


def with_options(options: Iterable[Decorator]) -> Decorator:
    """Combine options into one decorator; the help lists them in this order."""

    def decorate(command: Command) -> Command:
        for declare in reversed(list(options)):
            command = declare(command)
        return command

    return decorate


config_option = declare_config_option("FOREWARN_CONFIG", "The settings file.")
output_option = option(
    "--output",
    "-o",
    type=ChoiceType(Output),
    envvar="FOREWARN_OUTPUT",
    metavar="table|json",
    default=Output.TABLE.value,
    show_default=True,
    help="The format of the results.",
)
reason_option = click.option("--reason", metavar="TEXT", default="", help="The reason for the journal.")
key_option = click.option(
    "--key", metavar="KEY", help="Idempotency key: a repeated request with the same key has no effect."
)
force_option = click.option("--force", is_flag=True, help="Remove it even if it has open events; they end.")
wait_option = click.option(
    "--wait", is_flag=True, help="Follow the event until it ends. Ctrl-C stops watching, not the event."
)
