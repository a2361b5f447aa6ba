"""Options for the properties that VMs have or inherit from their scope, shared by `vm` and `scope`."""

from collections.abc import Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from forewarn.api import v1
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import ChoiceType, Command, Decorator, OptionTable, complete_words, with_options
from forewarn.cli.options.times import read_duration
from forewarn.core.vm import Os, Priority

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VM_OPTIONS: OptionTable = {
    "priority": click.option(
        "--priority", type=ChoiceType(Priority), metavar="PRIORITY", help="regular, or low: it can be evicted."
    ),
    "terminate_notice": click.option(
        "--terminate-notice", metavar="DURATION", help="The notice before a delete, 5m to 15m."
    ),
    "location": click.option("--location", metavar="TEXT", help="The region."),
    "zone": click.option("--zone", metavar="TEXT", help="The availability zone."),
    "resource_group": click.option("--resource-group", metavar="TEXT", help="The resource group."),
    "subscription": click.option("--subscription", metavar="TEXT", help="The subscription."),
    "os": click.option("--os", type=ChoiceType(Os), metavar="OS", help="linux or windows."),
    "tag": click.option("--tag", metavar="NAME=VALUE", multiple=True, help="A tag; repeatable, give all of them."),
}
LIST_FIELDS = frozenset({"addresses", "auto_approve"})
FIELD_NAMES = tuple("tags" if name == "tag" else name for name in VM_OPTIONS)


def with_vm_options(command: Command) -> Command:
    """Give a command the options of all properties, and in their place `properties`: those that were given."""

    @wraps(command)
    def wrapped(**given: Any) -> None:
        command(properties=_read_values({name: given.pop(name) for name in VM_OPTIONS}), **given)

    return with_options(VM_OPTIONS.values())(wrapped)


def with_vm_changes(*others: str) -> Decorator:
    """Do the same, with --clear to remove these properties and any of the others that may be missing."""
    fields = {name.replace("_", "-"): name for name in (*others, *FIELD_NAMES)}

    def complete_fields(_: click.Context, __: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        return complete_words(fields, incomplete)

    clear_option = click.option(
        "--clear",
        metavar="FIELD",
        multiple=True,
        shell_complete=complete_fields,
        help=f"Remove it; repeatable: {', '.join(fields)}.",
    )

    def decorate(command: Command) -> Command:
        @wraps(command)
        def wrapped(properties: dict[str, Any], clear: Iterable[str], **given: Any) -> None:
            command(properties={**properties, **_cleared_values(clear, fields)}, **given)

        return with_vm_options(clear_option(wrapped))

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


def merge_changes(properties: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that is to change; a command that changes nothing is a mistake."""
    changes = {**properties, **{name: value for name, value in values.items() if value is not None}}
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


def _cleared_values(cleared: Iterable[str], fields: Mapping[str, str]) -> dict[str, Any]:
    """Return null for each field; a list is emptied."""
    if unknown := [field for field in cleared if field not in fields]:
        raise CliError(ExitCode.USAGE, f"--clear: {unknown[0]} is not among {', '.join(fields)}")
    return {fields[field]: () if fields[field] in LIST_FIELDS else None for field in cleared}
