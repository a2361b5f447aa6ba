"""The options for what a VM has of its own or takes from its scope: the same for both."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import signature
from typing import Annotated, Any

import typer

from forewarn.api import v1
from forewarn.cli.exits import Exit, Stop
from forewarn.cli.options import choice, option, with_options
from forewarn.cli.times import read_duration
from forewarn.core.vm import Os, Priority

TRAITS = (
    option(
        "priority",
        Annotated[
            Priority | None,
            choice(Priority, metavar="PRIORITY", help_="regular, or low: it can be taken away."),
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
            choice(Os, metavar="OS", help_="linux or windows."),
        ],
    ),
    option(
        "tag", Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A tag; repeatable, all are said.")]
    ),
)
LISTS = frozenset({"addresses", "auto_approve"})
NAMES = tuple("tags" if item.name == "tag" else item.name for item in TRAITS)

Command = Callable[..., None]


def takes_traits(command: Command) -> Command:
    """Give a command the options of all traits, and in their place those that were said."""

    @wraps(command)
    def with_traits(asked: object, **given: Any) -> None:
        said = _read({item.name: given.pop(item.name) for item in TRAITS})
        command(asked, said, **given)

    asked, _, *own = signature(command).parameters.values()
    return with_options(with_traits, (asked, *own, *TRAITS))


def takes_changed_traits(*others: str) -> Callable[[Command], Command]:
    """Do the same, with --clear to take away these and any of the others that may be missing."""
    names = (*others, *NAMES)
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

    def take(command: Command) -> Command:
        @wraps(command)
        def with_clear(asked: object, traits: dict[str, Any], clear: list[str] | None, **given: Any) -> None:
            command(asked, {**traits, **_cleared(clear or (), names)}, **given)

        asked, traits, *own = signature(command).parameters.values()
        return takes_traits(with_options(with_clear, (asked, traits, *own, clear)))

    return take


def traits_details(having: v1.Vm | v1.Scope) -> tuple[tuple[str, str], ...]:
    """Return what a VM or a scope says of itself, for people."""
    return (
        ("terminate notice", having.terminate_notice or ""),
        ("location", having.location or ""),
        ("zone", having.zone or ""),
        ("resource group", having.resource_group or ""),
        ("subscription", having.subscription or ""),
        ("operating system", "" if having.os is None else having.os.value),
        ("tags", ", ".join(f"{name}={value}" for name, value in having.tags.items())),
    )


def changed(traits: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that is to change; nothing at all is hardly meant."""
    everything = {**traits, **{name: value for name, value in said.items() if value is not None}}
    if not everything:
        raise Stop(Exit.USAGE, "say what is to change: --help lists what can")
    return everything


def _read(said: Mapping[str, Any]) -> dict[str, Any]:
    tags = dict(_tag(text) for text in said["tag"]) if said["tag"] else None
    notice = read_duration(said["terminate_notice"], "--terminate-notice")
    read = {**said, "terminate_notice": notice, "tags": tags}
    del read["tag"]
    return {name: value for name, value in read.items() if value is not None}


def _tag(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise Stop(Exit.USAGE, f"--tag: {text!r} is no tag: write it like team=web")
    return name, value


def _cleared(said: Iterable[str], names: Iterable[str]) -> dict[str, Any]:
    """Return null for each field; a list is emptied."""
    known = {name.replace("_", "-"): name for name in names}
    if unknown := [field for field in said if field not in known]:
        raise Stop(Exit.USAGE, f"--clear: {unknown[0]} is not among {', '.join(known)}")
    return {known[field]: () if known[field] in LISTS else None for field in said}
