"""`forewarn guest …`: list, watch and approve a VM's scheduled events, through its guest endpoint."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.live.guest_follow import GuestEventRow, GuestFollower, GuestStream, guest_event_row
from forewarn.cli.live.live_view import show_live
from forewarn.cli.options.common import CommandGroup, complete_words
from forewarn.cli.options.endpoint import EndpointConnection, connect, with_endpoint
from forewarn.cli.options.lookup import MIN_PREFIX_LENGTH, is_full_id
from forewarn.cli.output import Output, moment_text, write_json, write_message
from forewarn.cli.views.tables import Column, write_table
from forewarn.client import ClientError, Event, Refused
from forewarn.clock import SystemClock
from forewarn.core.text import escape_controls

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def write_events(events: Iterable[Event], name: str | None, now: datetime) -> None:
    """Write events as a table."""
    write_table(
        (
            Column("EVENT", has_ids=True),
            Column("STATUS"),
            Column("TYPE"),
            Column("MINE", drop_order=2),
            Column("VMS", max_width=32),
            Column("TIME LEFT"),
            Column("NOT BEFORE", drop_order=1),
            Column("LASTS", drop_order=3),
            Column("SOURCE", drop_order=4),
            Column("DESCRIPTION", can_fold=True),
        ),
        (_row(guest_event_row(event, name, now)) for event in events),
    )


def _row(event: GuestEventRow) -> tuple[str, ...]:
    cells = (
        event.id,
        event.status,
        event.type,
        {True: "yes", False: "no", None: ""}[event.mine],
        ", ".join(event.resources),
        event.time_left or "",
        "" if event.not_before is None else moment_text(event.not_before),
        event.duration or "",
        event.source or "",
        event.description or "",
    )
    return tuple(map(escape_controls, cells))


app = CommandGroup()


def complete_events(ctx: click.Context, _: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the event ids that start with the typed text; none if the endpoint does not answer at once."""
    try:
        with connect(ctx.params.get("endpoint"), retry_for="0s") as events:
            ids = [event.id for event in events.get().events]
    except (ClientError, CliError):
        return []
    return complete_words(ids, incomplete)


mine_option = click.option("--mine", is_flag=True, help="Only events that affect this VM.")


@app.command("list")
@mine_option
@with_endpoint
def list_events(connection: EndpointConnection, mine: bool) -> None:
    """List the events that this VM sees. Includes those of the other VMs in its scope."""
    events = _events(connection, mine=mine)
    _show(connection, events)
    if not events:
        write_message("No events.")


@app.command("watch")
@mine_option
@with_endpoint
def watch(connection: EndpointConnection, mine: bool) -> None:
    """Show changes of events until Ctrl-C. Events appear, change, start and are gone.

    On a terminal, also show a countdown to each event. With -o json, each line is one object.
    """
    connection.events.get()
    name = connection.name_if_known() if connection.output is Output.JSON else None
    content = GuestFollower(connection.events.endpoint, name, SystemClock())
    try:
        show_live(content, GuestStream(connection.events, mine=mine), connection.output)
    except KeyboardInterrupt:
        write_message("Stopped watching.")


@app.command("approve")
@click.argument("ids", metavar="[EVENT]...", nargs=-1, shell_complete=complete_events)
@click.option("--mine", is_flag=True, help="All events that affect this VM.")
@click.option("--all", "all_", is_flag=True, help="All events that this VM sees.")
@with_endpoint
def approve(connection: EndpointConnection, ids: Sequence[str], mine: bool, all_: bool) -> None:
    """Approve events, so that they can start early. An approval counts for all VMs that the event affects.

    EVENT is an id from `forewarn guest list`, or a prefix of it; repeatable. Approving an event again changes nothing.

    Example: forewarn guest approve --mine
    """
    if [bool(ids), mine, all_].count(True) != 1:
        raise CliError(ExitCode.USAGE, "specify one or more EVENT, --mine or --all")
    if ids:
        selected: Sequence[str] = [_full_id(connection, id_) for id_ in ids]
    else:
        selected = [event.id for event in _events(connection, mine=mine) if not event.is_started]
    if selected:
        _approve(connection, selected)
    else:
        write_message("No events to approve.")
    _show(connection, _events_after_approval(connection, selected))


def _events(connection: EndpointConnection, *, mine: bool) -> tuple[Event, ...]:
    document = connection.events.get()
    return document.affecting(connection.events.name).events if mine else document.events


def _full_id(connection: EndpointConnection, given: str) -> str:
    """Return the id of the only event that begins with the given text; an unknown one is left to the service."""
    if is_full_id(given):
        return given
    found = [event.id for event in connection.events.get().events if event.id.upper().startswith(given.upper())]
    if len(found) > 1:
        raise CliError(ExitCode.USAGE, f"EVENT: {given} is ambiguous: {' or '.join(found)}")
    if len(given) < MIN_PREFIX_LENGTH or not found:
        raise CliError(
            ExitCode.NOT_FOUND,
            f"there is no event {given}; nothing was approved; `forewarn guest list` shows the events",
        )
    return found[0]


def _approve(connection: EndpointConnection, ids: Sequence[str]) -> None:
    try:
        connection.events.approve(*ids)
    except Refused as error:
        known = {event.id.upper() for event in connection.events.get().events}
        unknown = [id_ for id_ in ids if id_.upper() not in known]
        if not unknown:
            raise
        raise CliError(
            ExitCode.NOT_FOUND,
            f"there is no event {', '.join(unknown)}; nothing was approved; `forewarn guest list` shows the events",
        ) from error


def _events_after_approval(connection: EndpointConnection, ids: Iterable[str]) -> tuple[Event, ...]:
    """Return the events with these ids after the approval; write a message about each that has ended."""
    events = {event.id.upper(): event for event in connection.events.get().events}
    for gone in (id_ for id_ in ids if id_.upper() not in events):
        write_message(f"Event {gone} has already ended.")
    return tuple(events[id_.upper()] for id_ in ids if id_.upper() in events)


def _show(connection: EndpointConnection, events: Sequence[Event]) -> None:
    name, now = connection.name_if_known(), SystemClock().now()
    if connection.output is Output.JSON:
        write_json([guest_event_row(event, name, now) for event in events])
    elif events:
        write_events(events, name, now)
