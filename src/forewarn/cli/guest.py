"""`forewarn guest …`: what a VM is told, and its approval; on the VM, or wherever its endpoint can be reached."""

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from forewarn.cli.asking import AskedFromVm, asks_endpoint, connect
from forewarn.cli.exits import Exit, Stop
from forewarn.cli.options import PlainUsage
from forewarn.cli.output import Output, say, write_json
from forewarn.cli.sight import seen_event, write_events
from forewarn.cli.watching import telling
from forewarn.client import ClientError, Event, Refused
from forewarn.clock import SystemClock

app = typer.Typer(no_args_is_help=True, help="See what is going to happen to this VM, and let it happen.")


def complete_events(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of events that begin like this; none where no endpoint answers at once."""
    try:
        with connect(ctx.params.get("endpoint"), retry_for="0s") as events:
            ids = [event.id for event in events.get().events]
    except (ClientError, Stop):
        return []
    return [id_ for id_ in ids if id_.startswith(incomplete)]


Mine = Annotated[bool, typer.Option("--mine", help="Only those that affect this VM.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="EVENT", autocompletion=complete_events, hidden=True)]


@app.command("list")
@asks_endpoint
def list_events(asked: AskedFromVm, mine: Mine = False) -> None:
    """List what this VM is told of. Its own events, and those of its neighbours."""
    events = _events(asked, mine=mine)
    _show(asked, events)
    if not events:
        say("No events.")


@app.command("watch")
@asks_endpoint
def watch(asked: AskedFromVm, mine: Mine = False) -> None:
    """Tell every change until Ctrl-C. Events appear, change, start, and are gone.

    On a terminal the time that is left to prepare is counted down. With -o json there is one object in each line.
    """
    asked.events.get()
    name = asked.name_if_known() if asked.output is Output.JSON else None
    try:
        with telling(asked.output, asked.events.endpoint, name, SystemClock().now) as tell:
            for change in asked.events.watch(mine=mine):
                tell(change)
    except KeyboardInterrupt:
        say("Ended.")


@app.command("approve", cls=PlainUsage)
@asks_endpoint
def approve(
    asked: AskedFromVm,
    ids: Ids = None,
    mine: Annotated[bool, typer.Option("--mine", help="All that affect this VM.")] = False,
    every: Annotated[bool, typer.Option("--all", help="All that this VM is told of.")] = False,
) -> None:
    """Say that everything is prepared. The events need not wait any longer, for any of the VMs that they affect.

    EVENT is an id, as `forewarn guest list` shows it; several can be named. Approving again changes nothing.

    Example: forewarn guest approve --mine
    """
    if [bool(ids), mine, every].count(True) != 1:
        raise Stop(Exit.USAGE, "say which: the ids of events, or --mine, or --all")
    chosen = ids or [event.id for event in _events(asked, mine=mine) if not event.is_started]
    if chosen:
        _approve(asked, chosen)
    else:
        say("Nothing waits to be approved.")
    _show(asked, _still_there(asked, chosen))


def _events(asked: AskedFromVm, *, mine: bool) -> tuple[Event, ...]:
    document = asked.events.get()
    return document.affecting(asked.events.name).events if mine else document.events


def _approve(asked: AskedFromVm, ids: Sequence[str]) -> None:
    try:
        asked.events.approve(*ids)
    except Refused as error:
        known = {event.id.upper() for event in asked.events.get().events}
        unknown = [id_ for id_ in ids if id_.upper() not in known]
        if not unknown:
            raise
        raise Stop(
            Exit.NOT_FOUND,
            f"there is no event {', '.join(unknown)}, so none was approved; `forewarn guest list` shows them",
        ) from error


def _still_there(asked: AskedFromVm, ids: Iterable[str]) -> tuple[Event, ...]:
    """Return the events of these ids as they are after the approval; say of which there are none any more."""
    events = {event.id.upper(): event for event in asked.events.get().events}
    for gone in (id_ for id_ in ids if id_.upper() not in events):
        say(f"Event {gone} has ended already.")
    return tuple(events[id_.upper()] for id_ in ids if id_.upper() in events)


def _show(asked: AskedFromVm, events: Sequence[Event]) -> None:
    name, now = asked.name_if_known(), SystemClock().now()
    if asked.output is Output.JSON:
        write_json([seen_event(event, name, now) for event in events])
    elif events:
        write_events(events, name, now)
