"""Options for the properties that VMs have or inherit from their scope, shared by `vm` and `scope`."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import signature
from typing import Annotated, Any

import typer

from forewarn.api import v1
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import choice_option, option, with_options
from forewarn.cli.options.times import read_duration
from forewarn.core.vm import Os, Priority

VM_OPTIONS = (
    option(
        "priority",
        Annotated[
            Priority | None,
            choice_option(Priority, metavar="PRIORITY", help_="regular, or low: it can be taken away."),
        ],
    ),
    option(
        "terminate_notice",
        Annotated[str | None, typer.Option(metavar="DURATION", help="A delete is announced, 5m to 15m ahead.")],
    ),
    option("location", Annotated[str | None, typer.Option(metavar="TEXT", help="The region.")]),
    option("zone", Annotated[str | None, typer.Option(metavar="TEXT", help="The availability zone.")]),
    option("resource_group", Annotated[str | None, typer.Option(metavar="TEXT", help="The resource group.")]),
    option("subscription", Annotated[str | None, typer.Option(metavar="TEXT", help="The subscription.")]),
    option(
        "os",
        Annotated[
            Os | None,
            choice_option(Os, metavar="OS", help_="linux or windows."),
        ],
    ),
    option(
        "tag", Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A tag; repeatable, all are said.")]
    ),
)
LIST_FIELDS = frozenset({"addresses", "auto_approve"})
FIELD_NAMES = tuple("tags" if item.name == "tag" else item.name for item in VM_OPTIONS)

Command = Callable[..., None]


def with_vm_options(command: Command) -> Command:
    """Give a command the options of all traits, and in their place those that were said."""

    @wraps(command)
    def wrapped(connection: object, **given: Any) -> None:
        values = _read_values({item.name: given.pop(item.name) for item in VM_OPTIONS})
        command(connection, values, **given)

    connection, _, *own = signature(command).parameters.values()
    return with_options(wrapped, (connection, *own, *VM_OPTIONS))


def with_vm_changes(*others: str) -> Callable[[Command], Command]:
    """Do the same, with --clear to take away these and any of the others that may be missing."""
    names = (*others, *FIELD_NAMES)
    clear = option(
        "clear",
        Annotated[
            list[str] | None,
            typer.Option(
                metavar="FIELD",
                help=f"Take it away; repeatable: {', '.join(name.replace('_', '-') for name in names)}.",
                autocompletion=lambda: [name.replace("_", "-") for name in names],
            ),
        ],
    )

    def decorate(command: Command) -> Command:
        @wraps(command)
        def wrapped(connection: object, traits: dict[str, Any], clear: list[str] | None, **given: Any) -> None:
            command(connection, {**traits, **_cleared_values(clear or (), names)}, **given)

        connection, traits, *own = signature(command).parameters.values()
        return with_vm_options(with_options(wrapped, (connection, traits, *own, clear)))

    return decorate


def vm_option_details(resource: v1.Vm | v1.Scope) -> tuple[tuple[str, str], ...]:
    """Return what a VM or a scope says of itself, for people."""
    return (
        ("terminate notice", resource.terminate_notice or ""),
        ("location", resource.location or ""),
        ("zone", resource.zone or ""),
        ("resource group", resource.resource_group or ""),
        ("subscription", resource.subscription or ""),
        ("operating system", "" if resource.os is None else resource.os.value),
        ("tags", ", ".join(f"{name}={value}" for name, value in resource.tags.items())),
    )


def merge_changes(traits: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that is to change; nothing at all is hardly meant."""
    changes = {**traits, **{name: value for name, value in values.items() if value is not None}}
    if not changes:
        raise CliError(ExitCode.USAGE, "say what is to change: --help lists what can")
    return changes


def _read_values(values: Mapping[str, Any]) -> dict[str, Any]:
    tags = dict(_tag(text) for text in values["tag"]) if values["tag"] else None
    notice = read_duration(values["terminate_notice"], "--terminate-notice")
    read = {**values, "terminate_notice": notice, "tags": tags}
    del read["tag"]
    return {name: value for name, value in read.items() if value is not None}


def _tag(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise CliError(ExitCode.USAGE, f"--tag: {text!r} is no tag: write it like team=web")
    return name, value


def _cleared_values(fields: Iterable[str], names: Iterable[str]) -> dict[str, Any]:
    """Return null for each field; a list is emptied."""
    known = {name.replace("_", "-"): name for name in names}
    if unknown := [field for field in fields if field not in known]:
        raise CliError(ExitCode.USAGE, f"--clear: {unknown[0]} is not among {', '.join(known)}")
    return {known[field]: () if known[field] in LIST_FIELDS else None for field in fields}
