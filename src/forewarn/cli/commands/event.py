"""`forewarn event …`: schedule, list, show, approve, cancel, retry, resolve and follow events."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import click
import msgspec

from forewarn.api import v1
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import FROM_0, ChoiceType, CommandGroup, key_option, reason_option, wait_option
from forewarn.cli.options.completion import (
    complete_hosts,
    complete_scopes,
    complete_vms,
    event_argument,
    events_argument,
    host_filter,
    scope_filter,
    vm_filter,
    vms_argument,
)
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.options.consent import now_option, send_with_consent, unannounced_option
from forewarn.cli.options.lookup import find_event
from forewarn.cli.options.times import read_duration, read_future
from forewarn.cli.output import Output, moment_text, write, write_json, write_message
from forewarn.cli.views.event import blockers_text, event_json, write_events, write_fleet_hold, write_timeline
from forewarn.cli.views.tables import write_details
from forewarn.core.event import EventType, Source
from forewarn.core.event_type import RELEASED_TYPES, UNRELEASED_TYPES
from forewarn.core.journal import EntryKind
from forewarn.core.text import join_choices


def show_scheduled(connection: ServiceConnection, scheduled: v1.ScheduleResponse, *, wait: bool) -> None:
    """Warn about events that are not announced, then show the created events, or follow them until they end."""
    for event in scheduled.events:
        if not event.announced:
            write_message(_unannounced_text(event))
    if wait and scheduled.created:
        from forewarn.cli.live.event_follow import follow

        follow(connection, scheduled.created)
        return
    if connection.output is Output.JSON:
        write_json(scheduled)
    elif scheduled.events:
        write_events(scheduled.events)
    still_open = {event.id for event in scheduled.events}
    for made in scheduled.created:
        if made.id not in still_open:
            write_message(f"Event {made.id} in scope {made.scope} has already ended.")
    write_fleet_hold(connection)


def _unannounced_text(event: v1.Event) -> str:
    when = "has started" if event.status == "Started" else f"starts at {moment_text(event.not_before)}"
    return (
        f"Event {event.id}, which {when}, is not announced: no VM of scope {event.scope} polls for events. "
        f"To find out why: forewarn doctor {event.scope}/{event.vms[0]}"
    )


app = CommandGroup()

CLOCK_TOLERANCE = timedelta(minutes=1)
"""--at may be this far in the past, because typing takes time; the service accepts it too."""

on_vm_option = click.option("--vm", metavar="VM", help="On this VM.", shell_complete=complete_vms)


SCHEDULE_HELP = f"""\
Schedule maintenance of VMs. Without --in, --at and --now, the notice is the minimum of the event type.

TYPE is {join_choices(RELEASED_TYPES)}, or one that Azure does not have yet: {join_choices(UNRELEASED_TYPES)}. VM is a
name, or scope/name if the name is ambiguous. Specify one or more VMs, or --host, or --scope, optionally with
--update-domain.

With `announce = when-enabled`, the default of `serve`, VMs of a scope that does not poll will not hear of it: the
command asks on a terminal, and elsewhere needs --unannounced.

Example: forewarn event schedule Reboot web-0 web-1 --in 20m --reason "new kernel"
"""


@app.command("schedule", help=SCHEDULE_HELP)
@click.argument("type_", type=ChoiceType(EventType), metavar="TYPE")
@vms_argument
@click.option("--host", metavar="NAME", help="All VMs on this host.", shell_complete=complete_hosts)
@click.option("--scope", metavar="NAME", help="All VMs in this scope.", shell_complete=complete_scopes)
@click.option("--update-domain", type=FROM_0, metavar="NUMBER", help="With --scope: only VMs in this update domain.")
@click.option("--in", "notice", metavar="DURATION", help="Start after this duration: 20m.")
@click.option("--at", metavar="TIME", help="Start at this time: 2026-01-31T10:15Z, 03:12.")
@now_option
@unannounced_option
@click.option("--duration", metavar="DURATION", help="How long the VMs will be interrupted: 9s.")
@click.option("--description", metavar="TEXT", default="", help="The description that the VMs see.")
@click.option(
    "--source",
    type=ChoiceType(Source),
    metavar="SOURCE",
    default=Source.PLATFORM.value,
    show_default=True,
    help="Who requested it: Platform or User.",
)
@click.option("--user", is_flag=True, help="Short for --source User.")
@click.option("--failure", is_flag=True, help="Report a hardware failure: the event starts at once.")
@reason_option
@key_option
@wait_option
@with_service
def schedule(
    connection: ServiceConnection,
    type_: EventType,
    vms: Sequence[str],
    host: str | None,
    scope: str | None,
    update_domain: int | None,
    notice: str | None,
    at: str | None,
    now: bool,
    unannounced: bool,
    duration: str | None,
    description: str,
    source: Source,
    user: bool,
    failure: bool,
    reason: str,
    key: str | None,
    wait: bool,
) -> None:
    """Schedule maintenance of VMs."""
    check_start(now=now, **{"--in": notice, "--at": at})
    _check_selection(vms, host, scope, update_domain)
    request = v1.ScheduleEvents(
        type=type_,
        vms=vms,
        host=host,
        scope=scope,
        update_domain=update_domain,
        notice=read_duration(notice, "--in"),
        not_before=_start_time(connection, at, key),
        duration=read_duration(duration, "--duration"),
        description=description,
        source=Source.USER if user else source,
        failure=failure,
        reason=reason,
        now=now,
    )
    scheduled = send_with_consent(
        lambda consent: connection.api.schedule(msgspec.structs.replace(request, unannounced=consent), key=key),
        unannounced=unannounced,
    )
    show_scheduled(connection, scheduled, wait=wait)


def check_start(*, now: bool, **given: str | None) -> None:
    """Check that the start is given in at most one way; the keys are the options."""
    options = [option for option, value in {"--now": now or None, **given}.items() if value is not None]
    if len(options) > 1:
        raise CliError(ExitCode.USAGE, f"{' and '.join(options)} are mutually exclusive")


def _check_selection(vms: Sequence[str], host: str | None, scope: str | None, update_domain: int | None) -> None:
    """Check that VMs are selected in exactly one way: by name, by host or by scope."""
    if update_domain is not None and scope is None:
        raise CliError(ExitCode.USAGE, "--update-domain requires --scope")
    given_options = [word for word, given in (("VM", vms), ("--host", host), ("--scope", scope)) if given]
    if not given_options:
        raise CliError(ExitCode.USAGE, "specify VM, --host or --scope")
    if len(given_options) > 1:
        raise CliError(ExitCode.USAGE, f"{' and '.join(given_options)} are mutually exclusive")


def _start_time(connection: ServiceConnection, at: str | None, key: str | None) -> datetime | None:
    """Read --at. With --key the time may have passed, because the request may be a repetition."""
    if at is None:
        return None
    now = connection.api.clock().now
    moment = read_future(at, "--at", now=now)
    if moment is not None and moment < now - CLOCK_TOLERANCE and key is None:
        raise CliError(
            ExitCode.USAGE,
            f"--at: {moment_text(moment)} has passed (the service's time is {moment_text(now)}); "
            "to start at once, use --now",
        )
    return moment


@app.command("list")
@scope_filter
@vm_filter
@click.option("--type", "type_", type=ChoiceType(EventType), metavar="TYPE", help="Only events of this type.")
@click.option("--source", type=ChoiceType(Source), metavar="SOURCE", help="Only events of this source.")
@host_filter
@with_service
def list_events(
    connection: ServiceConnection,
    scope: str | None,
    vm: str | None,
    type_: EventType | None,
    source: Source | None,
    host: str | None,
) -> None:
    """List the open events and what each waits for.

    Example: forewarn event list --vm web-0
    """
    events = list(connection.api.events(scope=scope, vm=vm, host=host, type_=type_, source=source))
    if connection.output is Output.JSON:
        write_json(events)
    elif events:
        write_events(events)
    else:
        write_message("No open events.")
    write_fleet_hold(connection)


@app.command("show")
@event_argument
@with_service
def show(connection: ServiceConnection, event: str) -> None:
    """Show one event, open or ended. Includes what it waits for, approvals, the work on each VM, and its timeline.

    EVENT is its id or a prefix of it.

    Example: forewarn event show 3F2A91C0
    """
    _show_detail(connection.api.event(find_event(connection.api, event)), connection.output)


@app.command("cancel")
@event_argument
@reason_option
@key_option
@with_service
def cancel(connection: ServiceConnection, event: str, reason: str, key: str | None) -> None:
    """Cancel a Scheduled event. A Started event cannot be canceled.

    Example: forewarn event cancel 3F2A91C0 --reason "not today"
    """
    detail = connection.api.cancel(find_event(connection.api, event), v1.CancelEvent(reason=reason), key=key)
    _show_changed(detail, connection.output)


@app.command("approve")
@event_argument
@on_vm_option
@reason_option
@key_option
@with_service
def approve(connection: ServiceConnection, event: str, vm: str | None, reason: str, key: str | None) -> None:
    """Approve an event on behalf of a VM. It can then start early.

    Without --vm, on behalf of the only VM that the event affects.

    Example: forewarn event approve 3F2A91C0 --vm web-0
    """
    id_ = find_event(connection.api, event)
    detail = connection.api.approve(id_, v1.ApproveEvent(vm=vm or _only_vm(connection, id_), reason=reason), key=key)
    _show_changed(detail, connection.output)


def _only_vm(connection: ServiceConnection, id_: str) -> str:
    detail = connection.api.event(id_)
    if len(detail.vms) != 1:
        raise CliError(ExitCode.USAGE, f"specify the VM that approves: --vm {' or '.join(detail.vms)}")
    return f"{detail.scope}/{detail.vms[0]}"


@app.command("retry")
@event_argument
@on_vm_option
@reason_option
@key_option
@wait_option
@with_service
def retry(connection: ServiceConnection, event: str, vm: str | None, reason: str, key: str | None, wait: bool) -> None:
    """Retry failed or unknown work. With --vm on one VM, else on every VM where it failed or is unknown.

    Example: forewarn event retry 3F2A91C0 --vm web-0
    """
    id_ = find_event(connection.api, event)
    detail = connection.api.retry(id_, v1.RetryImpact(vm=vm, reason=reason), key=key)
    if wait:
        _follow(connection, (v1.CreatedEvent(id=detail.id, scope=detail.scope),))
    else:
        _show_changed(detail, connection.output)


@app.command("resolve")
@event_argument
@click.option("--done", is_flag=True, help="Record that the work was done after all.")
@click.option("--give-up", is_flag=True, help="Record that the work was not done and will not be.")
@click.option("--reason", metavar="TEXT", default="", help="What you found out, for the journal; required.")
@on_vm_option
@key_option
@with_service
def resolve(
    connection: ServiceConnection,
    event: str,
    done: bool,
    give_up: bool,
    reason: str,
    vm: str | None,
    key: str | None,
) -> None:
    """Resolve failed or unknown work by hand. With --vm on one VM, else on every VM where it failed or is unknown.

    Example: forewarn event resolve 3F2A91C0 --done --reason "uptime says it has rebooted"
    """
    if done and give_up:
        raise CliError(ExitCode.USAGE, "--done and --give-up are mutually exclusive")
    missing_options = (
        [] if done or give_up else ["the outcome: --done if the work was done after all, --give-up if not"]
    )
    missing_options += [] if reason.strip() else ["what you found out: --reason TEXT"]
    if missing_options:
        raise CliError(ExitCode.USAGE, f"specify {'; and '.join(missing_options)}")
    id_ = find_event(connection.api, event)
    _show_changed(
        connection.api.resolve(id_, v1.ResolveImpact(done=done, reason=reason, vm=vm), key=key), connection.output
    )


@app.command("watch")
@events_argument
@with_service
def watch(connection: ServiceConnection, events: Sequence[str]) -> None:
    """Follow events until they end, with a countdown. Ctrl-C stops watching, not the events.

    Example: forewarn event watch 3F2A91C0
    """
    details = [connection.api.event(find_event(connection.api, event)) for event in events]
    _follow(connection, [v1.CreatedEvent(id=detail.id, scope=detail.scope) for detail in details])


def _follow(connection: ServiceConnection, created: Sequence[v1.CreatedEvent]) -> None:
    from forewarn.cli.live.event_follow import follow

    follow(connection, created)


def _show_changed(detail: v1.EventDetail, output: Output) -> None:
    """Show a changed event in one line; `event show` shows its history."""
    if output is Output.JSON:
        write_json(event_json(detail))
    elif detail.event is not None:
        write_events([detail.event])
    else:
        write(f"Event {detail.id} in scope {detail.scope} is {_outcome_text(detail)}.")


def _show_detail(detail: v1.EventDetail, output: Output) -> None:
    if output is Output.JSON:
        write_json(event_json(detail))
        return
    type_ = "" if detail.type is None else detail.type.value
    write_details(
        (
            ("event", detail.id),
            ("type", type_),
            ("scope", detail.scope),
            ("VMs", ", ".join(detail.vms)),
            *(_open_details(detail.event) if detail.event is not None else _ended_details(detail)),
        )
    )
    write("")
    write_timeline(detail.journal)


def _outcome_text(detail: v1.EventDetail) -> str:
    how = "over" if detail.outcome is None else detail.outcome.value
    return how if detail.ended_at is None else f"{how} at {moment_text(detail.ended_at)}"


def _ended_details(detail: v1.EventDetail) -> tuple[tuple[str, str], ...]:
    """Return the details of an ended event, which come from its journal entries."""
    created = next((entry for entry in detail.journal if "source" in entry.facts), None)
    started = next((entry for entry in detail.journal if entry.action is EntryKind.STARTED), None)
    approvals = (
        f"{entry.actor} at {moment_text(entry.at)}" for entry in detail.journal if entry.action is EntryKind.APPROVED
    )
    return (
        ("status", _outcome_text(detail)),
        ("started at", "" if started is None else moment_text(started.at)),
        ("source", "" if created is None else created.facts["source"]),
        ("created", "" if created is None else f"{moment_text(created.at)} by {created.actor}"),
        ("reason", "" if created is None else created.reason),
        ("approved by", ", ".join(approvals)),
    )


def _open_details(event: v1.Event) -> tuple[tuple[str, str], ...]:
    approvals = (f"{approval.vm} at {moment_text(approval.approved_at)}" for approval in event.approvals)
    return (
        ("status", event.status),
        ("waits for", blockers_text(event)),
        ("not before", moment_text(event.not_before)),
        ("started at", "" if event.started_at is None else moment_text(event.started_at)),
        ("duration", event.duration or ""),
        ("description", event.description),
        ("source", f"{event.source.value}, {event.cause.value}"),
        ("host", event.host or ""),
        ("update domain", str(event.update_domain)),
        ("created", f"{moment_text(event.created_at)} by {event.created_by}"),
        ("campaign", event.campaign or ""),
        ("reason", event.reason),
        ("announced", "" if event.announced else "no: the scope is not enabled"),
        ("approved by", ", ".join(approvals)),
        *((f"work on {impact.vm}", _impact_text(impact)) for impact in event.impacts),
    )


def _impact_text(impact: v1.Impact) -> str:
    attempt = f", attempt {impact.attempt}" if impact.attempt > 1 else ""
    again = "" if impact.retry_at is None else f", again at {moment_text(impact.retry_at)}"
    return f"{impact.state.value}{attempt}{again}" + (f": {impact.reason}" if impact.reason else "")
