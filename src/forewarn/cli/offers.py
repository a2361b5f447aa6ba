"""What `forewarn` offers, in chapters. A command's module is imported when the command is used, and not before."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from forewarn.cli.options import PlainUsage, RunsCommand


class Offer(NamedTuple):
    """A command, or a group of commands: where in `forewarn.cli` it is made, and what it is for."""

    name: str
    made_in: str
    """`module:attribute`, which is a function or a Typer with commands of its own."""
    help: str
    kind: type[TyperCommand] = PlainUsage


CHAPTERS: Mapping[str, Sequence[Offer]] = {
    "The service": (
        Offer("up", "up:up", "Start the emulator: the whole service in one process, until Ctrl-C."),
        Offer("serve", "serve:serve", "Run the service for real VMs, as forewarn.toml says."),
        Offer("config", "config:config", "Show the settings that hold, and where each came from."),
        Offer("token", "token:app", "Say who may ask the service for what."),
        Offer("clock", "clock:app", "See the service's time, and move a manual clock."),
        Offer("fault", "fault:app", "Have the emulator answer VMs wrongly, to test their handlers."),
    ),
    "The fleet": (
        Offer("vm", "vm:app", "The VMs: see and change them, restart, move and delete them, let them fail."),
        Offer("scope", "scope:app", "The groups within which events are shown and take their turn."),
        Offer("host", "host:app", "The hosts, as seen from the VMs on them."),
        Offer("fleet", "fleet:app", "The whole inventory as a file: import and export."),
        Offer("doctor", "doctor:doctor", "Find out why a VM sees nothing."),
    ),
    "Maintenance": (
        Offer("event", "event:app", "Announce maintenance, see what it waits for, follow it to its end."),
        Offer("campaign", "campaign:app", "Roll maintenance over many scopes, wave by wave: plan, start, follow."),
        Offer("hold", "hold:hold", "Let no planned maintenance start, anywhere or in one scope."),
        Offer("release", "hold:release", "End a hold."),
        Offer("watch", "watch:watch", "Show what is open and what happens, live."),
        Offer("history", "history:history", "Show what happened, when, by whom and why."),
    ),
    "Testing": (
        Offer("run", "run:run", "Run a program as a VM: 169.254.169.254 answers it, without root.", RunsCommand),
        Offer("scenario", "scenario:app", "Play stories of maintenance, and see whether they go as told."),
        Offer("exam", "exam:exam", "Examine a handler in every scenario: what it must do, and must not.", RunsCommand),
        Offer("conformance", "conformance:conformance", "Check an endpoint against the protocol, row by row."),
    ),
    "Inside a VM": (
        Offer("guest", "guest:app", "See what is going to happen to this VM, and let it happen."),
        Offer("agent", "agent:app", "Prepare for events, approve and recover, as agent.toml says."),
    ),
}


class Offers(TyperGroup):
    """The commands of the program, by chapter."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.made: dict[str, Any] = {}

    def list_commands(self, _: typer.Context) -> list[str]:  # type: ignore[override]  # Typer's own context
        """Return the names of all commands."""
        return [offer.name for offer in _all()]

    def get_command(self, _: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]  # Typer's own context
        """Return a command, or None if there is none of that name."""
        for offer in _all():
            if offer.name == cmd_name and cmd_name not in self.made:
                self.made[cmd_name] = _made(offer)
        return self.made.get(cmd_name)

    def format_commands(self, _: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # likewise
        """Write the part of the help that lists the commands."""
        widest = max(len(offer.name) for offer in _all())
        for chapter, offers in CHAPTERS.items():
            with formatter.section(chapter):
                formatter.write_dl([(offer.name.ljust(widest), offer.help) for offer in offers])

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]  # likewise
        """Find the command that was typed; for one that does not exist, the nearest is named."""
        names: dict[str, Any] = {offer.name: self.made.get(offer.name) for offer in _all()}
        self.commands = names
        return super().resolve_command(ctx, args)


def _all() -> list[Offer]:
    return [offer for offers in CHAPTERS.values() for offer in offers]


def _made(offer: Offer) -> Any:
    module, _, attribute = offer.made_in.partition(":")
    found = getattr(import_module(f"forewarn.cli.{module}"), attribute)
    home = typer.Typer(add_completion=False, rich_markup_mode=None, callback=_nothing)
    if isinstance(found, typer.Typer):
        home.add_typer(found, name=offer.name, help=offer.help, no_args_is_help=True)
    else:
        home.command(offer.name, cls=offer.kind)(found)
    return get_group(home).commands[offer.name]


def _nothing() -> None:
    """Do nothing: with a callback Typer keeps a single command apart from its home."""
