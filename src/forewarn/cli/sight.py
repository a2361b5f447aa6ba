"""What a VM sees of events, as people and programs are shown it."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from forewarn.cli.output import moment_text
from forewarn.cli.tables import GAP, Column, write_table
from forewarn.client import Change, Event, Gone
from forewarn.core.duration import format_duration

SECOND = timedelta(seconds=1)


class SeenEvent(msgspec.Struct, frozen=True, kw_only=True):
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


class SeenChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change for programs. `how` is null unless the event is gone."""

    at: datetime
    change: str
    how: str | None
    event: SeenEvent


def seen_event(event: Event, name: str | None, now: datetime) -> SeenEvent:
    """Show an event to programs, on the VM of this name if it is known."""
    return SeenEvent(
        id=event.id,
        status=event.status,
        type=event.type,
        resources=event.resources,
        mine=None if name is None else event.affects(name),
        not_before=event.not_before,
        time_left=time_left(event, now),
        duration=None if event.duration is None else format_duration(event.duration),
        source=event.source,
        description=event.description,
    )


def seen_change(change: Change, name: str | None, now: datetime) -> SeenChange:
    """Show a change to programs."""
    how = change.how.value if isinstance(change, Gone) else None
    return SeenChange(at=now, change=type(change).__name__, how=how, event=seen_event(change.event, name, now))


def time_left(event: Event, now: datetime) -> str | None:
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
            Column("MINE", spare=2),
            Column("VMS", most=32),
            Column("TIME LEFT"),
            Column("NOT BEFORE", spare=1),
            Column("LASTS", spare=3),
            Column("SOURCE", spare=4),
            Column("DESCRIPTION", goes_below=True),
        ),
        (_row(seen_event(event, name, now)) for event in events),
    )


def _row(event: SeenEvent) -> tuple[str, ...]:
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
    about = (event.id, f"{event.type:<9}", ", ".join(event.resources), _rest(change, now))
    return moment_text(now), f"{type(change).__name__:<8}", _printable(GAP.join(about)).rstrip()


def _rest(change: Change, now: datetime) -> str:
    """Say how an event went, or how long there is to prepare for it."""
    if isinstance(change, Gone):
        return change.how.value
    left = None if change.event.is_started else time_left(change.event, now)
    return "" if left is None else f"{left} left"


def prospect(events: Iterable[Event], now: datetime) -> list[str]:
    """Say of each event when it comes, for people who are watching."""
    return [_printable(f"{event.type} of {', '.join(event.resources)} {_when(event, now)}") for event in events]


def _when(event: Event, now: datetime) -> str:
    if event.is_started:
        return "is under way"
    left = time_left(event, now)
    if left is None:
        return "at any moment"
    return f"in {left}" if left != "0s" else "is due"


def _printable(text: str) -> str:
    """Keep what would move a terminal's cursor, or worse, from coming out of what a service says."""
    return "".join(char if char.isprintable() else " " for char in text)
