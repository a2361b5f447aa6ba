"""`forewarn clock …`: the service's time."""

from collections.abc import Sequence
from typing import Annotated

import typer

from forewarn.api import v1
from forewarn.cli.exits import Exit, Stop
from forewarn.cli.output import Output, moment_text, say, write, write_json
from forewarn.cli.reaching import Asked, asks_service
from forewarn.cli.showing import SHORT_ID, place, reason
from forewarn.core.duration import format_duration, parse_duration
from forewarn.core.errors import Invalid
from forewarn.core.explain import CAMPAIGN_PREFIX
from forewarn.core.journal import CAMPAIGN_CHANGE_KINDS

app = typer.Typer()

SHOWN = 20
"""How many changes are told; the journal has all."""


@app.command("show")
@asks_service
def show(asked: Asked) -> None:
    """Show what time it is for the service."""
    _write_clock(asked.api.clock(), asked.output)


# A distance back is to be answered as such, and not as an option that does not exist.
@app.command("advance", context_settings={"ignore_unknown_options": True})
@asks_service
def advance(
    asked: Asked,
    by: Annotated[str | None, typer.Argument(metavar="DURATION", hidden=True)] = None,
    to_next: Annotated[bool, typer.Option("--to-next", help="To the next change of an event.")] = False,
) -> None:
    """Move a clock that stands still. What is due on the way happens.

    Only the clock of a service that was started with --manual-time can be moved.

    DURATION is how far: 90s, 15m, 1h30m, 2d.
    """
    if by is not None and to_next:
        raise Stop(Exit.USAGE, f"{by} and --to-next: say one of them")
    if by is None and not to_next:
        raise Stop(Exit.USAGE, "say how far, like `forewarn clock advance 15m`, or --to-next")
    moved = asked.api.advance(None if by is None else _distance(by))
    for change in moved.changes[:SHOWN]:
        say(_change(change))
    if len(moved.changes) > SHOWN:
        say(_rest(moved.changes))
    if to_next and not moved.changes:
        say("Time alone changes no event any more.")
    _write_clock(moved, asked.output)


def _distance(said: str) -> str:
    if said.startswith("--"):
        raise Stop(Exit.USAGE, f"there is no option {said}: `forewarn clock advance --help` shows them")
    if said.startswith("-"):
        raise Stop(Exit.USAGE, f"{said}: time never goes back; say how far it goes on, like 15m")
    try:
        return format_duration(parse_duration(said))
    except Invalid as error:
        raise Stop(Exit.USAGE, str(error)) from None


def _rest(changes: Sequence[v1.JournalEntry]) -> str:
    """Say how many more changes there are, and how to see them. The service itself tells of so many and no more."""
    at_least = "at least " if len(changes) >= v1.PAGE else ""
    since = moment_text(changes[SHOWN].at).replace(" ", "T")
    return f"And {at_least}{len(changes) - SHOWN} more: `forewarn history --since {since}` shows them."


def _change(entry: v1.JournalEntry) -> str:
    why = reason(entry)
    return f"{moment_text(entry.at)} {_what(entry)}{f' ({why})' if why else ''}"


def _what(entry: v1.JournalEntry) -> str:
    if entry.did in CAMPAIGN_CHANGE_KINDS:
        where = place(entry)
        return f"{_campaign(entry)} {entry.did.value}" + (f" {where}" if where != entry.kind else "")
    return f"{(entry.event or '')[:SHORT_ID]} in {entry.record} {entry.did.value}: {', '.join(entry.vms)}"


def _campaign(entry: v1.JournalEntry) -> str:
    """Name the campaign whose line it is; what people do about one, they do under their own names."""
    named = entry.by.startswith(CAMPAIGN_PREFIX)
    return f"campaign {entry.by.removeprefix(CAMPAIGN_PREFIX) if named else entry.record[:SHORT_ID]}"


def _write_clock(clock: v1.Clock, output: Output) -> None:
    if output is Output.JSON:
        write_json(clock)
        return
    write(moment_text(clock.now))
    if clock.next_at is not None:
        write(f"next: {moment_text(clock.next_at)}")
