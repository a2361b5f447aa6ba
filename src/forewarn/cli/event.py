"""`forewarn event …`: maintenance, from its announcement on."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

import typer

from forewarn.api import v1
from forewarn.cli.exits import Exit, Stop
from forewarn.cli.options import PlainUsage, one_of
from forewarn.cli.output import Output, moment_text, say, write_json
from forewarn.cli.reaching import Asked, asks_service, complete_vms
from forewarn.cli.tables import Column, write_table
from forewarn.core.duration import duration_text, parse_duration
from forewarn.core.errors import Invalid
from forewarn.core.event import EventType, Source

app = typer.Typer(no_args_is_help=True, help="Announce maintenance, and see what is open and what it waits for.")


def _event_type(said: str) -> EventType:
    return one_of(EventType, said)


def _source(said: str) -> Source:
    return one_of(Source, said)


# Typer would show the types of these as Python knows them; the commands' own words say what they are.
Type = Annotated[
    EventType,
    typer.Argument(
        metavar="TYPE", parser=_event_type, autocompletion=lambda: [type_.value for type_ in EventType], hidden=True
    ),
]
Vms = Annotated[list[str], typer.Argument(metavar="VM", autocompletion=complete_vms, hidden=True)]


@app.command("schedule", cls=PlainUsage)
@asks_service
def schedule(
    asked: Asked,
    type_: Type,
    vms: Vms,
    notice: Annotated[str | None, typer.Option("--in", metavar="DURATION", help="Start after this time: 20m.")] = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="Start at this time: 2026-01-31T10:15Z.")] = None,
    duration: Annotated[
        str | None, typer.Option(metavar="DURATION", help="For how long the VMs are interrupted: 9s.")
    ] = None,
    description: Annotated[str, typer.Option(metavar="TEXT", help="What the VMs are told.")] = "",
    source: Annotated[
        Source, typer.Option(metavar="SOURCE", parser=_source, help="Who wants it: Platform or User.")
    ] = Source.PLATFORM,
    user: Annotated[bool, typer.Option("--user", help="The same as --source User.")] = False,
    failure: Annotated[bool, typer.Option("--failure", help="The hardware has failed: start at once.")] = False,
    why: Annotated[str, typer.Option(metavar="TEXT", help="What the journal says about the reason.")] = "",
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Saying it again with the same key makes nothing twice.")
    ] = None,
) -> None:
    """Announce maintenance of VMs. They get at least the usual notice of its type, unless you say when.

    TYPE is Freeze, Reboot, Redeploy, Preempt or Terminate. A VM is named by its name, or as scope/name where that is
    ambiguous; several can be named.

    Example: forewarn event schedule Reboot web-0 web-1 --in 20m --why "new kernel"
    """
    if notice is not None and at is not None:
        raise Stop(Exit.USAGE, "--in and --at: say one of them")
    scheduled = asked.api.schedule(
        v1.ScheduleEvents(
            type=type_,
            vms=vms,
            notice=_duration(notice, "--in"),
            not_before=_moment(at),
            duration=_duration(duration, "--duration"),
            description=description,
            source=Source.USER if user else source,
            failure=failure,
            why=why,
        ),
        key=key,
    )
    if asked.output is Output.JSON:
        write_json(scheduled)
        return
    _write_events(scheduled.events)
    for made in scheduled.made:
        if made.id not in {event.id for event in scheduled.events}:
            say(f"Event {made.id} in scope {made.scope} has ended already.")


@app.command("list")
@asks_service
def list_events(
    asked: Asked,
    scope: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this scope.")] = None,
    vm: Annotated[
        str | None, typer.Option(metavar="VM", help="Only those that affect this VM.", autocompletion=complete_vms)
    ] = None,
) -> None:
    """List the open events, and why each of them waits."""
    events = list(asked.api.events(scope=scope, vm=vm))
    if asked.output is Output.JSON:
        write_json(events)
    elif events:
        _write_events(events)
    else:
        say("No open events.")


def _write_events(events: Iterable[v1.Event]) -> None:
    write_table(
        (
            Column("EVENT"),
            Column("STATUS"),
            Column("TYPE"),
            Column("SCOPE", spare=1),
            Column("VMS", most=32),
            Column("NOT BEFORE", spare=2),
            Column("WAITS FOR", goes_below=True),
        ),
        (
            (
                event.id,
                event.status,
                event.type.value,
                event.scope,
                ", ".join(event.vms),
                moment_text(event.not_before),
                "; ".join(event.explain) or _progress(event),
            )
            for event in events
        ),
    )


def _progress(event: v1.Event) -> str:
    return ", ".join(f"{impact.vm} {impact.state.value}" for impact in event.impacts)


def _duration(text: str | None, option: str) -> str | None:
    if text is None:
        return None
    try:
        return duration_text(parse_duration(text))
    except Invalid as error:
        raise Stop(Exit.USAGE, f"{option}: {error}") from None


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise Stop(Exit.USAGE, f"--at: {text!r} is no time: write it with its zone, like 2026-01-31T10:15Z")
    return moment
