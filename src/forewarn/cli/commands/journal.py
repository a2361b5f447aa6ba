"""`forewarn journal`: query the journal: what happened, when, by whom and why."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice

import click

from forewarn.api import v1
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import FROM_1, ChoiceType
from forewarn.cli.options.completion import campaign_filter, event_filter, scope_filter, vm_filter
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.options.lookup import find_event
from forewarn.cli.options.times import read_past
from forewarn.cli.output import Output, moment_text, write_json, write_message
from forewarn.cli.views.event import write_journal
from forewarn.cli.views.tables import SHORT_ID
from forewarn.core.journal import EntryKind

DEFAULT_LINES = 50
"""How many entries are shown without --newest, --all and a time."""

AT_MARGIN = timedelta(minutes=15)
"""How far --at reaches before and after the given time."""

MAX_HINTS = 3
"""For how many events a hint to `forewarn event show` is written."""


@click.command()
@vm_filter
@scope_filter
@event_filter
@campaign_filter
@click.option(
    "--action", type=ChoiceType(EntryKind), metavar="ACTION", help="Only entries of this action: started, held, …"
)
@click.option(
    "--actor", metavar="NAME", help="Only entries of this actor: a token's name, a VM, a part of the service."
)
@click.option("--since", metavar="TIME", help="Only entries since this time: 2h (ago), 03:12, 2026-01-31T10:15Z.")
@click.option("--until", metavar="TIME", help="Only entries until this time.")
@click.option("--at", metavar="TIME", help="Only entries within 15 minutes of this time.")
@click.option("--newest", type=FROM_1, metavar="NUMBER", help="Only the newest entries, at most this many.")
@click.option("--all", "all_", is_flag=True, help="Show all entries.")
@with_service
def journal(
    connection: ServiceConnection,
    vm: str | None,
    scope: str | None,
    event: str | None,
    campaign: str | None,
    action: EntryKind | None,
    actor: str | None,
    since: str | None,
    until: str | None,
    at: str | None,
    newest: int | None,
    all_: bool,
) -> None:
    """Show the journal: what happened, when, by whom and why. Without options, show the newest 50 entries.

    Times are UTC unless they have a zone. A time of day means its most recent occurrence.

    Example: why did web-0 pause at 03:12? forewarn journal --vm web-0 --at 03:12
    """
    if at is not None and (since is not None or until is not None):
        raise CliError(ExitCode.USAGE, "--at and --since or --until are mutually exclusive")
    begin, end = _period(connection, since, until, at)
    limit = newest if newest is not None or all_ or begin is not None or end is not None else DEFAULT_LINES
    found = connection.api.journal(
        scope=scope,
        vm=vm,
        event=None if event is None else find_event(connection.api, event),
        campaign=campaign,
        actions=() if action is None else (action,),
        actor=actor,
        since=begin,
        until=end,
        newest_first=limit is not None,
    )
    entries = list(found) if limit is None else list(islice(found, limit))[::-1]
    _show(entries, connection.output)
    if not entries and (begin is not None or end is not None):
        write_message(_period_text(begin, end, connection.api.clock().now))
    if newest is None and limit is not None and len(entries) == limit:
        write_message(f"Showing the newest {limit} entries; for more use --since, --newest or --all.")


def _period(
    connection: ServiceConnection, since: str | None, until: str | None, at: str | None
) -> tuple[datetime | None, datetime | None]:
    if since is None and until is None and at is None:
        return None, None
    now = connection.api.clock().now
    if (moment := read_past(at, "--at", now=now)) is not None:
        return moment - AT_MARGIN, moment + AT_MARGIN
    begin, end = read_past(since, "--since", now=now), read_past(until, "--until", now=now)
    if begin is not None and end is not None and begin > end:
        raise CliError(ExitCode.USAGE, f"--since ({moment_text(begin)}) is later than --until ({moment_text(end)})")
    return begin, end


def _period_text(begin: datetime | None, end: datetime | None, now: datetime) -> str:
    """Return the searched period, because users often mean another zone or day."""
    since = "" if begin is None else f" from {moment_text(begin)}"
    until = "" if end is None else f" until {moment_text(end)}"
    return f"Searched{since}{until}; the service's time is {moment_text(now)}."


def _show(entries: Sequence[v1.JournalEntry], output: Output) -> None:
    if output is Output.JSON:
        write_json(entries)
        return
    if not entries:
        write_message("No matching journal entries.")
        return
    write_journal(entries)
    events = dict.fromkeys(entry.event[:SHORT_ID] for entry in entries if entry.event is not None)
    if len(events) <= MAX_HINTS:
        for event in events:
            write_message(f"For details: forewarn event show {event}")
