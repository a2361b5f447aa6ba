"""`forewarn history`: what happened, when, by whom and why."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated

import typer

from forewarn.api import v1
from forewarn.cli.exits import Exit, Stop
from forewarn.cli.finding import find_event
from forewarn.cli.names import OfCampaign, OfEvent, OfScope, OfVm
from forewarn.cli.options import choice
from forewarn.cli.output import Output, moment_text, say, write_json
from forewarn.cli.reaching import Asked, asks_service
from forewarn.cli.showing import SHORT_ID, write_journal
from forewarn.cli.times import read_past
from forewarn.core.journal import EntryKind

USUALLY = 50
"""How many lines are shown if nobody says how many, or of which time."""

AROUND = timedelta(minutes=15)
"""What belongs to a moment."""

FEW = 3
"""Of how many events a person is told how to see more."""

Since = Annotated[str | None, typer.Option(metavar="TIME", help="From then on: 2h (ago), 03:12, 2026-01-31T10:15Z.")]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Until then.")]
At = Annotated[str | None, typer.Option(metavar="TIME", help="What happened at this time, and 15 minutes around it.")]


@asks_service
def history(
    asked: Asked,
    vm: OfVm = None,
    scope: OfScope = None,
    event: OfEvent = None,
    campaign: OfCampaign = None,
    did: Annotated[
        EntryKind | None,
        choice(EntryKind, metavar="WHAT", help_="Only such lines: started, held, …"),
    ] = None,
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Only what this token, VM or part has done.")] = None,
    since: Since = None,
    until: Until = None,
    at: At = None,
    newest: Annotated[int | None, typer.Option(metavar="NUMBER", min=1, help="Only so many, the newest.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All lines, from the beginning.")] = False,
) -> None:
    """Show the journal: what happened, when, by whom and why. Unless you say more, the newest 50 lines.

    Times are UTC unless they have a zone; a time of day is the last time it was that late.

    Example: why did web-0 pause at 03:12? forewarn history --vm web-0 --at 03:12
    """
    if at is not None and (since is not None or until is not None):
        raise Stop(Exit.USAGE, "--at stands alone, without --since and --until")
    begin, end = _period(asked, since, until, at)
    most = newest if newest is not None or everything or begin is not None or end is not None else USUALLY
    found = asked.api.history(
        scope=scope,
        vm=vm,
        event=None if event is None else find_event(asked.api, event),
        campaign=campaign,
        did=() if did is None else (did,),
        by=by,
        since=begin,
        until=end,
        newest_first=most is not None,
    )
    entries = list(found) if most is None else list(islice(found, most))[::-1]
    _show(entries, asked.output)
    if not entries and (begin is not None or end is not None):
        say(_searched(begin, end, asked.api.clock().now))
    if newest is None and most is not None and len(entries) == most:
        say(f"These are the newest {most} lines: --since, --newest or --all shows more.")


def _period(
    asked: Asked, since: str | None, until: str | None, at: str | None
) -> tuple[datetime | None, datetime | None]:
    if since is None and until is None and at is None:
        return None, None
    now = asked.api.clock().now
    if (moment := read_past(at, "--at", now=now)) is not None:
        return moment - AROUND, moment + AROUND
    begin, end = read_past(since, "--since", now=now), read_past(until, "--until", now=now)
    if begin is not None and end is not None and begin > end:
        raise Stop(Exit.USAGE, f"--since, {moment_text(begin)}, comes after --until, {moment_text(end)}")
    return begin, end


def _searched(begin: datetime | None, end: datetime | None, now: datetime) -> str:
    """Say where nothing was found: times are easily taken for those of another zone or day."""
    since = "" if begin is None else f" from {moment_text(begin)}"
    until = "" if end is None else f" until {moment_text(end)}"
    return f"Looked{since}{until}; the service has {moment_text(now)}."


def _show(entries: Sequence[v1.JournalEntry], output: Output) -> None:
    if output is Output.JSON:
        write_json(entries)
        return
    if not entries:
        say("The journal has no such lines.")
        return
    write_journal(entries)
    events = dict.fromkeys(entry.event[:SHORT_ID] for entry in entries if entry.event is not None)
    if len(events) <= FEW:
        for event in events:
            say(f"`forewarn event show {event}` tells everything about that event.")
