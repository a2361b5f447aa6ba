"""The program: the lazy command table, the root command group, and how errors become exit codes."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from forewarn import __version__
from forewarn.cli.errors import EXIT_INTERRUPTED, EXPECTED_ERRORS, ExitCode, error_message, exit_code
from forewarn.cli.options.common import PlainUsage, ProgramCommand
from forewarn.cli.output import discard_stdout, ensure_streams, write, write_message


class CommandEntry(NamedTuple):
    """A command, or a group of commands: where in `forewarn.cli` it is made, and what it is for."""

    name: str
    target: str
    """`module:attribute`, which is a function or a Typer with commands of its own."""
    help: str
    command_class: type[TyperCommand] = PlainUsage


COMMAND_SECTIONS: Mapping[str, Sequence[CommandEntry]] = {
    "The service": (
        CommandEntry("up", "up:up", "Start the emulator: the whole service in one process, until Ctrl-C."),
        CommandEntry("serve", "serve:serve", "Run the service for real VMs, as forewarn.toml says."),
        CommandEntry("config", "config:config", "Show the settings that hold, and where each came from."),
        CommandEntry("token", "token:app", "Say who may ask the service for what."),
        CommandEntry("clock", "clock:app", "See the service's time, and move a manual clock."),
        CommandEntry("fault", "fault:app", "Have the emulator answer VMs wrongly, to test their handlers."),
    ),
    "The fleet": (
        CommandEntry("vm", "vm:app", "The VMs: see and change them, restart, move and delete them, let them fail."),
        CommandEntry("scope", "scope:app", "The groups within which events are shown and take their turn."),
        CommandEntry("host", "host:app", "The hosts, as seen from the VMs on them."),
        CommandEntry("fleet", "fleet:app", "The whole inventory as a file: import and export."),
        CommandEntry("doctor", "doctor:doctor", "Find out why a VM sees nothing."),
    ),
    "Maintenance": (
        CommandEntry("event", "event:app", "Announce maintenance, see what it waits for, follow it to its end."),
        CommandEntry(
            "campaign", "campaign:app", "Roll maintenance over many scopes, wave by wave: plan, start, follow."
        ),
        CommandEntry("hold", "hold:hold", "Let no planned maintenance start, anywhere or in one scope."),
        CommandEntry("release", "hold:release", "End a hold."),
        CommandEntry("watch", "watch:watch", "Show what is open and what happens, live."),
        CommandEntry("journal", "journal:journal", "Show what happened, when, by whom and why."),
    ),
    "Testing": (
        CommandEntry(
            "run", "run:run", "Run a program as a VM: 169.254.169.254 answers it, without root.", ProgramCommand
        ),
        CommandEntry("scenario", "scenario:app", "Play stories of maintenance, and see whether they go as told."),
        CommandEntry(
            "exam", "exam:exam", "Examine a handler in every scenario: what it must do, and must not.", ProgramCommand
        ),
        CommandEntry("conformance", "conformance:conformance", "Check an endpoint against the protocol, row by row."),
    ),
    "Inside a VM": (
        CommandEntry("guest", "guest:app", "See what is going to happen to this VM, and let it happen."),
        CommandEntry("agent", "agent:app", "Prepare for events, approve and recover, as agent.toml says."),
    ),
}


class CommandGroup(TyperGroup):
    """The commands of the program, by chapter."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.loaded: dict[str, Any] = {}

    def list_commands(self, _: typer.Context) -> list[str]:  # type: ignore[override]  # Typer's own context
        """Return the names of all commands."""
        return [offer.name for offer in _entries()]

    def get_command(self, _: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]  # Typer's own context
        """Return a command, or None if there is none of that name."""
        for offer in _entries():
            if offer.name == cmd_name and cmd_name not in self.loaded:
                self.loaded[cmd_name] = _load_command(offer)
        return self.loaded.get(cmd_name)

    def format_commands(self, _: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # likewise
        """Write the part of the help that lists the commands."""
        widest = max(len(offer.name) for offer in _entries())
        for chapter, offers in COMMAND_SECTIONS.items():
            with formatter.section(chapter):
                formatter.write_dl([(offer.name.ljust(widest), offer.help) for offer in offers])

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]  # likewise
        """Find the command that was typed; for one that does not exist, the nearest is named."""
        names: dict[str, Any] = {offer.name: self.loaded.get(offer.name) for offer in _entries()}
        self.commands = names
        return super().resolve_command(ctx, args)


def _entries() -> list[CommandEntry]:
    return [offer for offers in COMMAND_SECTIONS.values() for offer in offers]


def _load_command(entry: CommandEntry) -> Any:
    module, _, attribute = entry.target.partition(":")
    found = getattr(import_module(f"forewarn.cli.commands.{module}"), attribute)
    parent = typer.Typer(add_completion=False, rich_markup_mode=None, callback=_callback)
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=entry.name, help=entry.help, no_args_is_help=True)
    else:
        parent.command(entry.name, cls=entry.command_class)(found)
    return get_group(parent).commands[entry.name]


def _callback() -> None:
    """Do nothing: with a callback Typer keeps a single command apart from its home."""


app = typer.Typer(
    name="forewarn",
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Tell every machine before you touch it: Azure's Scheduled Events as software that anyone can run.",
)


def _show_version(is_given: bool) -> None:
    if is_given:
        write(f"forewarn {__version__}")
        raise typer.Exit


@app.callback()
def forewarn(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before any command."""


def main() -> None:
    """Run the program."""
    ensure_streams()
    if any(word.startswith("--token") for word in sys.argv):
        from forewarn.cli.argv import redact_tokens  # takes a while, and is seldom needed

        redact_tokens(sys.argv)
    try:
        app()
    except EXPECTED_ERRORS as error:
        write_message(f"forewarn: {error_message(error)}")
        sys.exit(exit_code(error))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has had enough; the interpreter must not complain about it at its end.
        discard_stdout()
        sys.exit(ExitCode.FAILED)
