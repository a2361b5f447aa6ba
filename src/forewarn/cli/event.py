"""`forewarn event …`: maintenance, from its announcement to its end."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

import typer

from forewarn.api import v1
from forewarn.cli.exits import Exit, Stop
from forewarn.cli.finding import find_event
from forewarn.cli.making import show_made
from forewarn.cli.names import (
    EventId,
    EventIds,
    OfHost,
    OfScope,
    OfVm,
    VmNames,
    complete_hosts,
    complete_scopes,
    complete_vms,
)
from forewarn.cli.options import Key, PlainUsage, Wait, Why, choice, word, words
from forewarn.cli.output import Output, moment_text, say, write, write_json
from forewarn.cli.reaching import Asked, asks_service
from forewarn.cli.showing import mention_hold, waits_for, write_events, write_timeline
from forewarn.cli.tables import write_details
from forewarn.cli.times import read_coming, read_duration
from forewarn.core.event import EventType, Source
from forewarn.core.journal import EntryKind

app = typer.Typer()

JUST_NOW = timedelta(minutes=1)
"""A time that has passed by no more than this was the present when it was typed; the service takes it, too."""

# Typer would show the type as Python knows it; the command's own words say what it is.
Type = Annotated[
    EventType,
    typer.Argument(metavar="TYPE", parser=word(EventType), autocompletion=words(EventType), hidden=True),
]
OneVm = Annotated[str | None, typer.Option("--vm", metavar="VM", help="On this VM.", autocompletion=complete_vms)]


@app.command("schedule", cls=PlainUsage)
@asks_service
def schedule(
    asked: Asked,
    type_: Type,
    vms: VmNames = None,
    host: Annotated[
        str | None, typer.Option(metavar="NAME", help="All VMs of this host.", autocompletion=complete_hosts)
    ] = None,
    scope: Annotated[
        str | None, typer.Option(metavar="NAME", help="All VMs of this scope.", autocompletion=complete_scopes)
    ] = None,
    update_domain: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=0, help="With --scope: those of this update domain.")
    ] = None,
    notice: Annotated[str | None, typer.Option("--in", metavar="DURATION", help="Start after this time: 20m.")] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Start at this time: 2026-01-31T10:15Z, 03:12.")
    ] = None,
    duration: Annotated[
        str | None, typer.Option(metavar="DURATION", help="For how long the VMs are interrupted: 9s.")
    ] = None,
    description: Annotated[str, typer.Option(metavar="TEXT", help="What the VMs are told.")] = "",
    source: Annotated[
        Source,
        choice(Source, metavar="SOURCE", help_="Who wants it: Platform or User."),
    ] = Source.PLATFORM,
    user: Annotated[bool, typer.Option("--user", help="The same as --source User.")] = False,
    failure: Annotated[bool, typer.Option("--failure", help="The hardware has failed: start at once.")] = False,
    why: Why = "",
    key: Key = None,
    wait: Wait = False,
) -> None:
    """Announce maintenance of VMs. They get at least the usual notice of its type, unless you say when.

    TYPE is Freeze, Reboot, Redeploy, Preempt or Terminate. A VM is named by its name, or as scope/name where that is
    ambiguous; several can be named. Or say --host, --scope, or --scope with --update-domain.

    Where announce is when-enabled, as under `serve`, nobody is told in a scope of which no VM asks for events: without
    --in and --at its maintenance starts at once.

    Example: forewarn event schedule Reboot web-0 web-1 --in 20m --why "new kernel"
    """
    if notice is not None and at is not None:
        raise Stop(Exit.USAGE, "--in and --at: say one of them")
    _check_selection(vms, host, scope, update_domain)
    scheduled = asked.api.schedule(
        v1.ScheduleEvents(
            type=type_,
            vms=vms or (),
            host=host,
            scope=scope,
            update_domain=update_domain,
            notice=read_duration(notice, "--in"),
            not_before=_coming(asked, at, key),
            duration=read_duration(duration, "--duration"),
            description=description,
            source=Source.USER if user else source,
            failure=failure,
            why=why,
        ),
        key=key,
    )
    show_made(asked, scheduled, wait=wait)


def _check_selection(vms: Sequence[str] | None, host: str | None, scope: str | None, update_domain: int | None) -> None:
    """VMs are said in one way: as names, as those of a host, or as those of a scope."""
    if update_domain is not None and scope is None:
        raise Stop(Exit.USAGE, "--update-domain says which VMs of a scope: say --scope, too")
    said = [word for word, given in (("VM…", vms), ("--host", host), ("--scope", scope)) if given]
    if not said:
        raise Stop(Exit.USAGE, "say for which VMs: VM…, --host or --scope")
    if len(said) > 1:
        raise Stop(Exit.USAGE, f"{' and '.join(said)}: say one of them")


def _coming(asked: Asked, at: str | None, key: str | None) -> datetime | None:
    """Read --at. A request that is said again under its key may be about a time that has passed meanwhile."""
    if at is None:
        return None
    now = asked.api.clock().now
    moment = read_coming(at, "--at", now=now)
    if moment is not None and moment < now - JUST_NOW and key is None:
        raise Stop(
            Exit.USAGE, f"--at: {at} has passed, the service has {moment_text(now)}: to start at once say --in 0s"
        )
    return moment


@app.command("list")
@asks_service
def list_events(
    asked: Asked,
    scope: OfScope = None,
    vm: OfVm = None,
    type_: Annotated[
        EventType | None,
        choice(EventType, "--type", metavar="TYPE", help_="Only such events."),
    ] = None,
    source: Annotated[Source | None, choice(Source, metavar="SOURCE", help_="Only what this one asked for.")] = None,
    host: OfHost = None,
) -> None:
    """List the open events, and why each of them waits.

    Example: forewarn event list --vm web-0
    """
    events = list(asked.api.events(scope=scope, vm=vm, host=host, type_=type_, source=source))
    if asked.output is Output.JSON:
        write_json(events)
    elif events:
        write_events(events)
    else:
        say("No open events.")
    mention_hold(asked)


@app.command("show", cls=PlainUsage)
@asks_service
def show(asked: Asked, event: EventId) -> None:
    """Show one event, open or ended. What it waits for, who approved, the work on each VM, and its timeline.

    EVENT is its id, or the beginning of it.

    Example: forewarn event show 3F2A91C0
    """
    _show_story(asked.api.event(find_event(asked.api, event)), asked.output)


@app.command("cancel", cls=PlainUsage)
@asks_service
def cancel(asked: Asked, event: EventId, why: Why = "", key: Key = None) -> None:
    """Take a Scheduled event back. One that is Started goes on to its end.

    Example: forewarn event cancel 3F2A91C0 --why "not today"
    """
    story = asked.api.cancel(find_event(asked.api, event), v1.CancelEvent(why=why), key=key)
    _show_changed(story, asked.output)


@app.command("approve", cls=PlainUsage)
@asks_service
def approve(asked: Asked, event: EventId, vm: OneVm = None, why: Why = "", key: Key = None) -> None:
    """Approve an event on behalf of a VM. It need not wait for its time then.

    Without --vm, on behalf of the only VM that it affects.

    Example: forewarn event approve 3F2A91C0 --vm web-0
    """
    id_ = find_event(asked.api, event)
    story = asked.api.approve(id_, v1.ApproveEvent(vm=vm or _only_vm(asked, id_), why=why), key=key)
    _show_changed(story, asked.output)


def _only_vm(asked: Asked, id_: str) -> str:
    story = asked.api.event(id_)
    if len(story.vms) != 1:
        raise Stop(Exit.USAGE, f"say on behalf of which VM: --vm {' or '.join(story.vms)}")
    return f"{story.scope}/{story.vms[0]}"


@app.command("retry", cls=PlainUsage)
@asks_service
def retry(asked: Asked, event: EventId, vm: OneVm = None, why: Why = "", key: Key = None, wait: Wait = False) -> None:
    """Have failed or unknown work done once more. On one VM, or wherever it is failed or unknown.

    Example: forewarn event retry 3F2A91C0 --vm web-0
    """
    id_ = find_event(asked.api, event)
    story = asked.api.retry(id_, v1.RetryImpact(vm=vm, why=why), key=key)
    if wait:
        _follow(asked, (v1.Made(id=story.id, scope=story.scope),))
    else:
        _show_changed(story, asked.output)


@app.command("resolve", cls=PlainUsage)
@asks_service
def resolve(
    asked: Asked,
    event: EventId,
    done: Annotated[bool, typer.Option("--done", help="It was done after all.")] = False,
    give_up: Annotated[bool, typer.Option("--give-up", help="It was not, and is given up.")] = False,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="What you found out, for the journal.")] = "",
    vm: OneVm = None,
    key: Key = None,
) -> None:
    """End failed or unknown work, as somebody has found it. On one VM, or wherever it is failed or unknown.

    Example: forewarn event resolve 3F2A91C0 --done --why "uptime says it has rebooted"
    """
    if done and give_up:
        raise Stop(Exit.USAGE, "--done and --give-up: say one of them")
    missing = [] if done or give_up else ["how it ends: --done if it was done after all, --give-up if not"]
    missing += [] if why.strip() else ["what you found out: --why TEXT"]
    if missing:
        raise Stop(Exit.USAGE, f"say {'; and '.join(missing)}")
    id_ = find_event(asked.api, event)
    _show_changed(asked.api.resolve(id_, v1.ResolveImpact(done=done, why=why, vm=vm), key=key), asked.output)


@app.command("watch", cls=PlainUsage)
@asks_service
def watch(asked: Asked, events: EventIds) -> None:
    """Follow events to their end, with a countdown. Ctrl-C stops watching, not the events.

    Example: forewarn event watch 3F2A91C0
    """
    stories = [asked.api.event(find_event(asked.api, event)) for event in events]
    _follow(asked, [v1.Made(id=story.id, scope=story.scope) for story in stories])


def _follow(asked: Asked, made: Sequence[v1.Made]) -> None:
    from forewarn.cli.following import follow

    follow(asked, made)


def _show_changed(story: v1.EventStory, output: Output) -> None:
    """Show what has become of an event; how that came to be is left to `event show`."""
    if output is Output.JSON:
        write_json(story)
    elif story.event is not None:
        write_events([story.event])
    else:
        write(f"Event {story.id} in scope {story.scope} is {_ending(story)}.")


def _show_story(story: v1.EventStory, output: Output) -> None:
    if output is Output.JSON:
        write_json(story)
        return
    type_ = "" if story.type is None else story.type.value
    write_details(
        (
            ("event", story.id),
            ("type", type_),
            ("scope", story.scope),
            ("VMs", ", ".join(story.vms)),
            *(_open_details(story.event) if story.event is not None else _ended_details(story)),
        )
    )
    write("")
    write_timeline(story.timeline)


def _ending(story: v1.EventStory) -> str:
    how = "over" if story.outcome is None else story.outcome.value
    return how if story.ended_at is None else f"{how} at {moment_text(story.ended_at)}"


def _ended_details(story: v1.EventStory) -> tuple[tuple[str, str], ...]:
    """Return what the journal still tells of an event that is over."""
    made = next((entry for entry in story.timeline if "source" in entry.facts), None)
    started = next((entry for entry in story.timeline if entry.did is EntryKind.STARTED), None)
    approvals = (
        f"{entry.by} at {moment_text(entry.at)}" for entry in story.timeline if entry.did is EntryKind.APPROVED
    )
    return (
        ("status", _ending(story)),
        ("started at", "" if started is None else moment_text(started.at)),
        ("source", "" if made is None else made.facts["source"]),
        ("made", "" if made is None else f"{moment_text(made.at)} by {made.by}"),
        ("why", "" if made is None else made.why),
        ("approved by", ", ".join(approvals)),
    )


def _open_details(event: v1.Event) -> tuple[tuple[str, str], ...]:
    approvals = (f"{approval.vm} at {moment_text(approval.at)}" for approval in event.approvals)
    return (
        ("status", event.status),
        ("waits for", waits_for(event)),
        ("not before", moment_text(event.not_before)),
        ("started at", "" if event.started_at is None else moment_text(event.started_at)),
        ("duration", event.duration or ""),
        ("description", event.description),
        ("source", f"{event.source.value}, {event.cause.value}"),
        ("host", event.host or ""),
        ("update domain", str(event.update_domain)),
        ("made", f"{moment_text(event.made_at)} by {event.by}"),
        ("campaign", event.campaign or ""),
        ("why", event.why),
        ("announced", "" if event.announced else "no: the scope is not enabled"),
        ("approved by", ", ".join(approvals)),
        *((f"work on {impact.vm}", _work(impact)) for impact in event.impacts),
    )


def _work(impact: v1.Impact) -> str:
    attempt = f", attempt {impact.attempt}" if impact.attempt > 1 else ""
    again = "" if impact.retry_at is None else f", again at {moment_text(impact.retry_at)}"
    return f"{impact.state.value}{attempt}{again}" + (f": {impact.why}" if impact.why else "")
