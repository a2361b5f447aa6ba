"""`forewarn clock …`: show the service's clock, advance a manual clock, and change the speed."""

from collections.abc import Sequence

import click

from forewarn.api import v1
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import ANY_NUMBER, CommandGroup
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.output import Output, moment_text, write, write_json, write_message
from forewarn.cli.views.event import entry_location, entry_reason
from forewarn.cli.views.tables import SHORT_ID
from forewarn.core.duration import format_duration, parse_duration
from forewarn.core.errors import Invalid
from forewarn.core.explain import CAMPAIGN_PREFIX
from forewarn.core.journal import CAMPAIGN_CHANGE_KINDS
from forewarn.core.limits import MAX_SPEED

app = CommandGroup()


MAX_CHANGES = 20
"""How many changes are printed; the journal has all."""


@app.command("show")
@with_service
def show(connection: ServiceConnection) -> None:
    """Show the service's time."""
    _write_clock(connection.api.clock(), connection.output)


# -5m must reach our own error message instead of being refused as an unknown option.
@app.command("advance", context_settings={"ignore_unknown_options": True})
@click.argument("by", metavar="[DURATION]", required=False)
@click.option("--to-next", is_flag=True, help="Advance to the next change of an event.")
@with_service
def advance(connection: ServiceConnection, by: str | None, to_next: bool) -> None:
    """Advance a manual clock. Everything that becomes due in this time happens.

    The service must have been started with --manual-time.

    DURATION is how far: 90s, 15m, 1h30m, 2d.

    Example: forewarn clock advance 15m
    """
    if by is not None and to_next:
        raise CliError(ExitCode.USAGE, f"DURATION ({by}) and --to-next are mutually exclusive")
    if by is None and not to_next:
        raise CliError(ExitCode.USAGE, "specify DURATION, such as `forewarn clock advance 15m`, or --to-next")
    result = connection.api.advance(None if by is None else _parse_distance(by))
    for change in result.changes[:MAX_CHANGES]:
        write_message(_change_line(change))
    if len(result.changes) > MAX_CHANGES:
        write_message(_more_changes(result.changes))
    if to_next and not result.changes:
        write_message("No open event changes with time alone.")
    _write_clock(result, connection.output)


# -5 must reach our own error message instead of being refused as an unknown option.
@app.command("speed", context_settings={"ignore_unknown_options": True})
@click.argument("speed", metavar="NUMBER", type=ANY_NUMBER)
@with_service
def speed(connection: ServiceConnection, speed: float) -> None:
    """Set the speed of new events.

    Their notices and durations are divided by it; events that exist keep their times. Only in the emulator. The speed
    is kept over restarts, unless `forewarn up` then gets another --speed.

    Example: forewarn clock speed 60
    """
    if not 0 < speed <= MAX_SPEED:
        raise CliError(ExitCode.USAGE, f"NUMBER must be above 0 and at most {MAX_SPEED} (got {speed:g})")
    clock = connection.api.set_speed(v1.SetSpeed(speed=speed))
    if connection.output is Output.JSON:
        write_json(clock)
    else:
        write(f"speed: {clock.speed:g}")


def _parse_distance(text: str) -> str:
    if text.startswith("--"):
        raise CliError(ExitCode.USAGE, f"no such option: {text}; `forewarn clock advance --help` shows them")
    if text.startswith("-"):
        raise CliError(
            ExitCode.USAGE, f"DURATION: the clock cannot go back ({text}); specify a positive duration, such as 15m"
        )
    try:
        return format_duration(parse_duration(text))
    except Invalid as error:
        raise CliError(ExitCode.USAGE, f"DURATION: {error}") from None


def _more_changes(changes: Sequence[v1.JournalEntry]) -> str:
    """Return how many more changes there are and how to see them. The service returns at most one page of changes."""
    at_least = "at least " if len(changes) >= v1.PAGE else ""
    since = moment_text(changes[MAX_CHANGES].at).replace(" ", "T")
    return f"… and {at_least}{len(changes) - MAX_CHANGES} more: forewarn journal --since {since}"


def _change_line(entry: v1.JournalEntry) -> str:
    why = entry_reason(entry)
    return f"{moment_text(entry.at)} {_subject(entry)}{f' ({why})' if why else ''}"


def _subject(entry: v1.JournalEntry) -> str:
    if entry.action in CAMPAIGN_CHANGE_KINDS:
        where = entry_location(entry)
        return f"{_campaign_name(entry)} {entry.action.value}" + (f" {where}" if where != entry.record_kind else "")
    return f"{(entry.event or '')[:SHORT_ID]} in {entry.record_id} {entry.action.value}: {', '.join(entry.vms)}"


def _campaign_name(entry: v1.JournalEntry) -> str:
    """Return the campaign's name if the campaign is the actor; for actions of operators, the start of its id."""
    named = entry.actor.startswith(CAMPAIGN_PREFIX)
    return f"campaign {entry.actor.removeprefix(CAMPAIGN_PREFIX) if named else entry.record_id[:SHORT_ID]}"


def _write_clock(clock: v1.Clock, output: Output) -> None:
    if output is Output.JSON:
        write_json(clock)
        return
    write(moment_text(clock.now))
    if clock.next_change_at is not None:
        write(f"next: {moment_text(clock.next_change_at)}")
