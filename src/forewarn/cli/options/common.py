"""Options shared by several commands, and how they are added to a command's signature for Typer."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from enum import StrEnum
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from forewarn.cli.output import Output
from forewarn.settings import KEYS, variable_name

E = TypeVar("E", bound=StrEnum)

Url = Annotated[
    str | None, typer.Option("--url", envvar="FOREWARN_URL", metavar="URL", help="Where the operator API is.")
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="FOREWARN_TOKEN",
        metavar="TOKEN",
        help="The token for --url. For a moment others can see what you type here: better use the variable.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", envvar="FOREWARN_TOKEN_FILE", metavar="FILE", help="A file with the token for --url."),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        envvar="FOREWARN_CA",
        metavar="FILE",
        help="Trust the certificates in this file, for a service whose own is from no public authority.",
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data", envvar="FOREWARN_DATA", metavar="DIR", help="The data directory of a service on this machine."
    ),
]
Config = Annotated[
    str | None, typer.Option("--config", envvar="FOREWARN_CONFIG", help="The settings file.", metavar="FILE")
]
OutputOption = Annotated[
    Output,
    typer.Option("--output", "-o", envvar="FOREWARN_OUTPUT", metavar="table|json", help="How results are shown."),
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the journal.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Saying it again with the same key does nothing twice.")
]
Force = Annotated[bool, typer.Option("--force", help="Even while events are open: they end with it.")]
Wait = Annotated[bool, typer.Option("--wait", help="Follow it to its end. Ctrl-C stops watching, not the event.")]


class PlainUsage(TyperCommand):
    """A command whose usage line shows what is required without braces, as manuals do."""

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # Typer's own context
        """Return the parts of the usage line."""
        return [piece.translate({ord("{"): None, ord("}"): None}) for piece in super().collect_usage_pieces(ctx)]


class ProgramCommand(PlainUsage):
    """A command that runs another one: what comes after that one's name is its own, whether `--` was said or not."""

    allow_interspersed_args = False


def parse_choice(choices: type[E], text: str) -> E:
    """Read a word, in any case; a wrong one is answered with the nearest right one and with all of them."""
    by_name = {choice.value.casefold(): choice for choice in choices}
    if text.casefold() in by_name:
        return by_name[text.casefold()]
    *others, last = (choice.value for choice in choices)
    close = get_close_matches(text.casefold(), by_name, n=1)
    meant = f" Do you mean {by_name[close[0]].value}?" if close else ""
    raise typer.BadParameter(f"{text} is not among {', '.join(others)} and {last}.{meant}")


def choice_parser(choices: type[E]) -> Callable[[str], E]:
    """Return the reader of a word out of these."""

    def parse(text: str) -> E:
        return parse_choice(choices, text)

    return parse


def choice_completer(choices: type[E]) -> Callable[[], list[str]]:
    """Return what offers these words to the shell."""
    return lambda: [choice.value for choice in choices]


def choice_option(choices: type[StrEnum], *names: str, metavar: str, help_: str) -> Any:
    """Declare the option whose value is a word out of these."""
    return typer.Option(
        *names, metavar=metavar, parser=choice_parser(choices), autocompletion=choice_completer(choices), help=help_
    )


def option(name: str, annotation: Any, default: object = None) -> Parameter:
    """Declare an option."""
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def setting_option(key: str, help_: str, metavar: str | None = None) -> Parameter:
    """Declare the flag of a setting; without `metavar` it is a flag that is there or not."""
    declared = typer.Option(envvar=variable_name(key), help=help_, metavar=metavar, show_default=False)
    return option(key, Annotated[bool if metavar is None else str | None, declared], None)


def with_options(command: Callable[..., None], options: Iterable[Parameter]) -> Callable[..., None]:
    """Return the command with exactly these options, in this order."""
    new_signature = Signature([item.replace(kind=Parameter.KEYWORD_ONLY) for item in options])
    command.__signature__ = new_signature  # type: ignore[attr-defined]  # functions do have it, and Typer looks there first
    command.__annotations__ = {name: parameter.annotation for name, parameter in new_signature.parameters.items()}
    return command


def settings_from_flags(ctx: typer.Context) -> dict[str, object]:
    """Return the settings that were typed as flags; those in the environment are found there."""
    sources = {name: ctx.get_parameter_source(name) for name in ctx.params if name in KEYS}
    return {name: ctx.params[name] for name, source in sources.items() if source and source.name == "COMMANDLINE"}
