"""Options that several commands share, declared once: Typer reads a command's signature, so that is what is made."""

from collections.abc import Callable, Iterable
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from forewarn.cli.output import Output
from forewarn.settings import variable

Url = Annotated[str | None, typer.Option("--url", envvar="FOREWARN_URL", help="Where the operator API is.")]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="FOREWARN_TOKEN",
        help="The token for --url. Everybody on this machine can read what you type here: better use the variable.",
    ),
]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", envvar="FOREWARN_TOKEN_FILE", help="A file with the token for --url.")
]
Data = Annotated[
    str | None, typer.Option("--data", envvar="FOREWARN_DATA", help="The data directory of a service on this machine.")
]
Config = Annotated[
    str | None, typer.Option("--config", envvar="FOREWARN_CONFIG", help="The settings file.", metavar="FILE")
]
Shown = Annotated[Output, typer.Option("--output", "-o", envvar="FOREWARN_OUTPUT", help="How results are shown.")]


def option(name: str, annotation: Any, default: object = None) -> Parameter:
    """Declare an option."""
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def setting(key: str, help_: str, metavar: str | None = None) -> Parameter:
    """Declare the flag of a setting; without `metavar` it is a flag that is there or not."""
    declared = typer.Option(envvar=variable(key), help=help_, metavar=metavar, show_default=False)
    return option(key, Annotated[bool if metavar is None else str | None, declared], None)


def with_options(command: Callable[..., None], options: Iterable[Parameter]) -> Callable[..., None]:
    """Return the command with exactly these options, in this order."""
    made = Signature([item.replace(kind=Parameter.KEYWORD_ONLY) for item in options])
    command.__signature__ = made  # type: ignore[attr-defined]  # functions do have it, and Typer looks there first
    command.__annotations__ = {name: parameter.annotation for name, parameter in made.parameters.items()}
    return command
