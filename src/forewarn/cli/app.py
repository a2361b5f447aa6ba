"""The program `forewarn`: the table of commands, lazy loading, and the mapping of errors to exit codes."""

import gc
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from forewarn import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class CommandEntry(NamedTuple):
    """A command or command group: its location in `forewarn.cli.commands` and its help."""

    name: str
    target: str
    """`module:attribute`."""
    help: str
    """The line in the command list; for a group also its help."""


COMMAND_SECTIONS: Mapping[str, Sequence[CommandEntry]] = {
    "The service": (
        CommandEntry("up", "up:up", "Start the emulator: the whole service in one process."),
        CommandEntry("serve", "serve:serve", "Run the service for real VMs, as set in forewarn.toml."),
        CommandEntry("config", "config:config", "Show the effective settings and where each comes from."),
        CommandEntry("backup", "backup:backup", "Back up the data of a service into a file, while it runs."),
        CommandEntry("restore", "restore:restore", "Replace the data of a stopped service by a backup."),
        CommandEntry("migrate", "migrate:migrate", "Copy a fleet from a data directory into NATS, or back."),
        CommandEntry("cluster", "cluster:app", "Create, show, check and change the cell of a service on NATS."),
        CommandEntry("token", "token:app", "Create, list and revoke API tokens."),
        CommandEntry("clock", "clock:app", "Show or advance the service's time, and change its speed."),
        CommandEntry("fault", "fault:app", "Inject faults into the emulator's responses, to test handlers."),
    ),
    "The fleet": (
        CommandEntry("vm", "vm:app", "Manage VMs; restart, redeploy, delete, evict or fail them."),
        CommandEntry("scope", "scope:app", "Manage scopes: groups of VMs that see each other's events."),
        CommandEntry("host", "host:app", "List hosts with their VMs and open events."),
        CommandEntry("fleet", "fleet:app", "Import and export the whole inventory as a file."),
        CommandEntry("doctor", "doctor:doctor", "Find out why a VM does not see its events."),
    ),
    "Maintenance": (
        CommandEntry("event", "event:app", "Schedule, list, approve, cancel and follow maintenance events."),
        CommandEntry("campaign", "campaign:app", "Roll out maintenance over many scopes, wave by wave."),
        CommandEntry("hold", "hold:hold", "Stop planned maintenance from starting."),
        CommandEntry("release", "hold:release", "End a hold."),
        CommandEntry("watch", "watch:watch", "Show open events and the journal, live."),
        CommandEntry("journal", "journal:journal", "Show what happened, when, by whom and why."),
    ),
    "Testing": (
        CommandEntry("run", "run:run", "Run a program as a VM that can reach 169.254.169.254."),
        CommandEntry("scenario", "scenario:app", "List, check and run maintenance scenarios."),
        CommandEntry("exam", "exam:exam", "Run a handler in every scenario and grade it."),
        CommandEntry("simulate", "simulate:simulate", "Simulate a day of a large fleet and show its load."),
        CommandEntry("conformance", "conformance:conformance", "Check an endpoint against the protocol, row by row."),
    ),
    "Inside a VM": (
        CommandEntry("guest", "guest:app", "List, watch and approve the events of this VM."),
        CommandEntry("agent", "agent:app", "Prepare for events, approve and recover automatically."),
    ),
}


def command_entries() -> Iterator[CommandEntry]:
    """Yield the commands in the order of the help."""
    for entries in COMMAND_SECTIONS.values():
        yield from entries


def load_command(entry: CommandEntry) -> click.Command:
    """Import a command."""
    module, _, attribute = entry.target.partition(":")
    gc.disable()  # imports create no garbage, and frozen objects are not scanned afterwards
    try:
        command: click.Command = getattr(import_module(f"forewarn.cli.commands.{module}"), attribute)
    finally:
        gc.freeze()
        gc.enable()
    if isinstance(command, click.Group):
        command.help = entry.help
    return command


class ProgramCommands(click.Group):
    """The commands of the table. A command's module is imported when the command is used.

    See https://click.palletsprojects.com/en/stable/complex/#lazily-loading-subcommands
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # Click's signature
        """Return the names of all commands."""
        return [entry.name for entry in command_entries()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # likewise
        """Return a command, or None if it does not exist."""
        entry = next((entry for entry in command_entries() if entry.name == cmd_name), None)
        return None if entry is None else load_command(entry)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return the command that was typed; if it does not exist, suggest similar names."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            names = self.list_commands(ctx)
            raise click.NoSuchCommand(error.command_name, possibilities=names, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # likewise
        """Write the list of commands, by section, without importing them."""
        widest = max(len(entry.name) for entry in command_entries())
        for section, entries in COMMAND_SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(entry.name.ljust(widest), entry.help) for entry in entries])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Return the commands and options that start with the typed text, without importing commands."""
        from click.shell_completion import CompletionItem

        matching = (entry for entry in command_entries() if entry.name.startswith(incomplete))
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(entry.name, help=entry.help) for entry in matching), *options]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; on Ctrl-C exit with code 130, as shells expect."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            from forewarn.cli.errors import EXIT_INTERRUPTED

            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


def _show_completion(ctx: click.Context, _: click.Parameter, shell: str | None) -> None:
    if shell is not None and not ctx.resilient_parsing:
        from forewarn.cli.completion_script import completion_script, find_shell

        click.echo(completion_script(app, shell or find_shell()), nl=False)
        ctx.exit()


def _install_completion(ctx: click.Context, _: click.Parameter, shell: str | None) -> None:
    if shell is not None and not ctx.resilient_parsing:
        from forewarn.cli.completion_script import find_shell, install_completion

        installed = install_completion(app, shell or find_shell())
        click.echo(f"Completion is installed in {installed}. Start a new shell to use it.", err=True)
        ctx.exit()


@click.group(
    cls=ProgramCommands,
    help="Tell every machine before you touch it: Azure's Scheduled Events as software that anyone can run.",
)
@click.version_option(__version__, message="%(prog)s %(version)s", prog_name="forewarn")
@click.option(
    "--install-completion",
    is_flag=False,
    flag_value="",
    metavar="[SHELL]",
    is_eager=True,
    expose_value=False,
    callback=_install_completion,
    help="Install completion for bash, zsh or fish; without SHELL, for the current shell.",
)
@click.option(
    "--show-completion",
    is_flag=False,
    flag_value="",
    metavar="[SHELL]",
    is_eager=True,
    expose_value=False,
    callback=_show_completion,
    help="Show the completion script, to install it elsewhere.",
)
def app() -> None:
    """Handle the options that precede the command."""


def main() -> None:
    """Run the program."""
    if sys.stdout is None or sys.stderr is None:
        from forewarn.cli.output import ensure_streams

        ensure_streams()
    if any(word.startswith("--token") for word in sys.argv):
        from forewarn.cli.argv import redact_tokens  # slow to import and rarely needed

        redact_tokens(sys.argv)
    try:
        app(prog_name="forewarn")  # also where Python runs it as a module
    except BrokenPipeError:
        from forewarn.cli.output import discard_stdout

        # The reader closed the pipe: keep the interpreter from reporting it again at exit.
        discard_stdout()
        sys.exit(1)
    except Exception as error:
        from forewarn.cli.errors import EXPECTED_ERRORS, error_message, exit_code

        if not isinstance(error, EXPECTED_ERRORS):
            raise
        from forewarn.cli.output import write_message

        write_message(f"forewarn: {error_message(error)}")
        sys.exit(exit_code(error))
