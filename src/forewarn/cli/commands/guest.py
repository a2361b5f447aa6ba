"""`forewarn guest …`: list, watch and approve a VM's scheduled events, through its guest endpoint."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import CommandGroup, complete_words
from forewarn.cli.options.endpoint import EndpointConnection, connect, with_endpoint
from forewarn.cli.output import Output, moment_text, write, write_json, write_message
from forewarn.cli.views.tables import GAP, Column, write_table
from forewarn.client import Appeared, Change, Changed, ClientError, Event, Gone, Refused, Started
from forewarn.client.document import event_key
from forewarn.clock import SystemClock
from forewarn.core.duration import format_duration

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SECOND = timedelta(seconds=1)


class GuestEventRow(msgspec.Struct, frozen=True, kw_only=True):
    """An event for programs. `mine` is null where it is not known what this VM is called."""

    id: str
    status: str
    type: str
    resources: tuple[str, ...]
    mine: bool | None
    not_before: datetime | None
    time_left: str | None
    duration: str | None
    source: str | None
    description: str | None


class GuestChangeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A change for programs. `how` is null unless the event is gone."""

    at: datetime
    change: str
    how: str | None
    event: GuestEventRow


def guest_event_row(event: Event, name: str | None, now: datetime) -> GuestEventRow:
    """Show an event to programs, on the VM of this name if it is known."""
    return GuestEventRow(
        id=event.id,
        status=event.status,
        type=event.type,
        resources=event.resources,
        mine=None if name is None else event.affects(name),
        not_before=event.not_before,
        time_left=time_left_text(event, now),
        duration=None if event.duration is None else format_duration(event.duration),
        source=event.source,
        description=event.description,
    )


def guest_change_row(change: Change, name: str | None, now: datetime) -> GuestChangeRow:
    """Show a change to programs."""
    how = change.how.value if isinstance(change, Gone) else None
    return GuestChangeRow(at=now, change=type(change).__name__, how=how, event=guest_event_row(change.event, name, now))


def time_left_text(event: Event, now: datetime) -> str | None:
    """Write in whole seconds how long there is to prepare; None if nobody knows."""
    left = event.time_left(now)
    return None if left is None else format_duration(left // SECOND * SECOND)


def write_events(events: Iterable[Event], name: str | None, now: datetime) -> None:
    """Write events as a table."""
    write_table(
        (
            Column("EVENT"),
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
    return tuple(map(_printable, cells))


def change_line(change: Change, now: datetime) -> tuple[str, str, str]:
    """Write a change for people: when, what, and of which event."""
    event = change.event
    about = (event.id, f"{event.type:<9}", ", ".join(event.resources), _change_note(change, now))
    return moment_text(now), f"{type(change).__name__:<8}", _printable(GAP.join(about)).rstrip()


def _change_note(change: Change, now: datetime) -> str:
    """Say how an event went, or how long there is to prepare for it."""
    if isinstance(change, Gone):
        return change.how.value
    left = None if change.event.is_started else time_left_text(change.event, now)
    return "" if left is None else f"{left} left"


def countdown_lines(events: Iterable[Event], now: datetime) -> list[str]:
    """Say of each event when it comes, for people who are watching."""
    return [
        _printable(f"{event.type} of {', '.join(event.resources)} {_countdown_text(event, now)}") for event in events
    ]


def _countdown_text(event: Event, now: datetime) -> str:
    if event.is_started:
        return "is under way"
    left = time_left_text(event, now)
    if left is None:
        return "at any moment"
    return f"in {left}" if left != "0s" else "is due"


def _printable(text: str) -> str:
    """Keep what would move a terminal's cursor, or worse, from coming out of what a service says."""
    return "".join(char if char.isprintable() else " " for char in text)


CHANGE_STYLES: dict[type[Change], str] = {Appeared: "yellow", Changed: "cyan", Started: "red", Gone: "green"}

ChangeWriter = Callable[[Change], None]
Now = Callable[[], datetime]


@contextmanager
def change_writer(output: Output, endpoint: str, name: str | None, now: Now) -> Iterator[ChangeWriter]:
    """Give what tells a change, in the form that was asked for."""
    if output is Output.JSON:
        yield lambda change: write(msgspec.json.encode(guest_change_row(change, name, now())).decode())
    elif sys.stdout.isatty():
        countdown = _Countdown(endpoint, now)
        with Live(console=Console(), get_renderable=countdown.text, refresh_per_second=1, transient=True) as live:
            yield countdown.writer(live)
    else:
        yield lambda change: write(GAP.join(change_line(change, now())))


class _Countdown:
    """What stands below the lines: the events that are there, and the time that is left."""

    def __init__(self, endpoint: str, now: Now) -> None:
        self._endpoint, self._now = endpoint, now
        self._events: dict[str, Event] = {}

    def text(self) -> Text:
        """Write it as it is now."""
        there = countdown_lines(tuple(self._events.values()), self._now())
        lines: Iterable[str] = there or [f"Nothing is planned. Watching {self._endpoint} until Ctrl-C."]
        return Text("\n".join(lines), style="dim")

    def writer(self, live: Live) -> ChangeWriter:
        """Return what writes a change above it."""

        def write_change(change: Change) -> None:
            self._update(change)
            when, what, about = change_line(change, self._now())
            line = Text.assemble(when, GAP, (what, CHANGE_STYLES[type(change)]), GAP, about)
            live.console.print(line, soft_wrap=True)
            live.refresh()

        return write_change

    def _update(self, change: Change) -> None:
        # The display is drawn by another thread, so it gets a new dictionary and never a changing one.
        id_ = event_key(change.event)
        others = {other: event for other, event in self._events.items() if other != id_}
        self._events = others if isinstance(change, Gone) else {**others, id_: change.event}


app = CommandGroup()


def complete_events(ctx: click.Context, _: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the ids of events that begin as typed; none where no endpoint answers at once."""
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
    """List the events that this VM sees. Its own, and those of the other VMs in its scope."""
    events = _events(connection, mine=mine)
    _show(connection, events)
    if not events:
        write_message("No events.")


@app.command("watch")
@mine_option
@with_endpoint
def watch(connection: EndpointConnection, mine: bool) -> None:
    """Show every change until Ctrl-C. Events appear, change, start, and are gone.

    A terminal shows a countdown to each event. With -o json each line is one object.
    """
    connection.events.get()
    name = connection.name_if_known() if connection.output is Output.JSON else None
    try:
        with change_writer(connection.output, connection.events.endpoint, name, SystemClock().now) as write_change:
            for change in connection.events.watch(mine=mine):
                write_change(change)
    except KeyboardInterrupt:
        write_message("Ended.")


@app.command("approve")
@click.argument("ids", metavar="[EVENT]...", nargs=-1, shell_complete=complete_events)
@click.option("--mine", is_flag=True, help="All events that affect this VM.")
@click.option("--all", "all_", is_flag=True, help="All events that this VM sees.")
@with_endpoint
def approve(connection: EndpointConnection, ids: Sequence[str], mine: bool, all_: bool) -> None:
    """Approve events: they can start early. An approval is for all VMs that the event affects.

    EVENT is an id, as `forewarn guest list` shows it; several can be given. Approving again changes nothing.

    Example: forewarn guest approve --mine
    """
    if [bool(ids), mine, all_].count(True) != 1:
        raise CliError(ExitCode.USAGE, "say which: the ids of events, or --mine, or --all")
    selected = ids or [event.id for event in _events(connection, mine=mine) if not event.is_started]
    if selected:
        _approve(connection, selected)
    else:
        write_message("Nothing waits to be approved.")
    _show(connection, _events_after_approval(connection, selected))


def _events(connection: EndpointConnection, *, mine: bool) -> tuple[Event, ...]:
    document = connection.events.get()
    return document.affecting(connection.events.name).events if mine else document.events


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
            f"there is no event {', '.join(unknown)}, so none was approved; `forewarn guest list` shows them",
        ) from error


def _events_after_approval(connection: EndpointConnection, ids: Iterable[str]) -> tuple[Event, ...]:
    """Return the events of these ids as they are after the approval; say of which there are none any more."""
    events = {event.id.upper(): event for event in connection.events.get().events}
    for gone in (id_ for id_ in ids if id_.upper() not in events):
        write_message(f"Event {gone} has ended already.")
    return tuple(events[id_.upper()] for id_ in ids if id_.upper() in events)


def _show(connection: EndpointConnection, events: Sequence[Event]) -> None:
    name, now = connection.name_if_known(), SystemClock().now()
    if connection.output is Output.JSON:
        write_json([guest_event_row(event, name, now) for event in events])
    elif events:
        write_events(events, name, now)
