"""Options for the properties that VMs have or inherit from their scope, shared by `vm` and `scope`."""

from collections.abc import Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from forewarn.api import v1
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import Command, Decorator, complete_words, with_options
from forewarn.cli.options.field_option import field_options
from forewarn.core.vm import Traits

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VM_OPTIONS = field_options({"": Traits})
LABELS = {"os": "operating system"}
LIST_FIELDS = frozenset({"addresses", "auto_approve"})


def with_vm_options(command: Command) -> Command:
    """Add the options of all properties to a command, which receives the given ones as `properties`."""

    @wraps(command)
    def wrapped(**given: Any) -> None:
        values = {each.key: each.read(given.pop(each.parameter)) for each in VM_OPTIONS}
        command(properties={name: value for name, value in values.items() if value is not None}, **given)

    return with_options(each.declare() for each in VM_OPTIONS)(wrapped)


def with_vm_changes(*others: str) -> Decorator:
    """Like `with_vm_options`, with --clear to remove these properties or `others`."""
    fields = {name.replace("_", "-"): name for name in (*others, *Traits.__struct_fields__)}

    def complete_fields(_: click.Context, __: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        return complete_words(fields, incomplete)

    clear_option = click.option(
        "--clear",
        metavar="FIELD",
        multiple=True,
        shell_complete=complete_fields,
        help=f"Remove this property; repeatable: {', '.join(fields)}.",
    )

    def decorate(command: Command) -> Command:
        @wraps(command)
        def wrapped(properties: dict[str, Any], clear: Iterable[str], **given: Any) -> None:
            command(properties={**properties, **_cleared_values(clear, fields)}, **given)

        return with_vm_options(clear_option(wrapped))

    return decorate


def vm_option_details(resource: v1.Vm | v1.Scope) -> tuple[tuple[str, str], ...]:
    """Return the properties of a VM or scope as rows of a details view, except for the priority."""
    names = (name for name in Traits.__struct_fields__ if name != "priority")
    return tuple((LABELS.get(name, name.replace("_", " ")), _text(getattr(resource, name))) for name in names)


def _text(value: object) -> str:
    match value:
        case None:
            return ""
        case Mapping():
            return ", ".join(f"{name}={each}" for name, each in value.items())
        case _:
            return str(value)


def merge_changes(properties: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return all changes; raise an error if there are none."""
    changes = {**properties, **{name: value for name, value in values.items() if value is not None}}
    if not changes:
        raise CliError(ExitCode.USAGE, "specify what to change; --help lists the options")
    return changes


def _cleared_values(cleared: Iterable[str], fields: Mapping[str, str]) -> dict[str, Any]:
    """Return null for each field; a list is emptied."""
    if unknown := [field for field in cleared if field not in fields]:
        raise CliError(ExitCode.USAGE, f"--clear: {unknown[0]} is not one of {', '.join(fields)}")
    return {fields[field]: () if fields[field] in LIST_FIELDS else None for field in cleared}
