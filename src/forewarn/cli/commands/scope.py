"""`forewarn scope …`: list, show, add, change and remove scopes."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from forewarn.api import v1
from forewarn.cli.options.common import Force, Key, PlainUsage, Reason, choice_option, choice_parser
from forewarn.cli.options.completion import ScopeName
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.options.vm import merge_changes, vm_option_details, with_vm_changes, with_vm_options
from forewarn.cli.output import Output, moment_text, write_json, write_message
from forewarn.cli.views.event import hold_cell, hold_column, hold_text, write_fleet_hold
from forewarn.cli.views.tables import Column, write_details, write_table
from forewarn.core.event import EventType
from forewarn.core.scope import ApprovalRule, ScopeKind

app = typer.Typer()

NewName = Annotated[str, typer.Argument(metavar="NAME", hidden=True)]
Kind = choice_option(ScopeKind, metavar="KIND", help_="standalone, cloud-service, availability-set or placement-group.")
Approval = Annotated[
    ApprovalRule | None,
    choice_option(
        ApprovalRule,
        "--approval",
        metavar="RULE",
        help_="Who lets an event start early: any VM of the scope (the default), or all that it affects.",
    ),
]
AutoApprove = Annotated[
    list[str] | None,
    typer.Option(
        "--auto-approve", metavar="TYPE", help="User-made events of this type start at once: Reboot, Redeploy."
    ),
]


@app.command("list")
@with_service
def list_scopes(
    connection: ServiceConnection,
    kind: Annotated[ScopeKind | None, Kind] = None,
    held: Annotated[bool | None, typer.Option("--held/--not-held", help="Only those that are held, or not.")] = None,
) -> None:
    """List the scopes, and what holds them. A scope is enabled while its VMs ask for events.

    Example: forewarn scope list --held
    """
    scopes = list(connection.api.scopes(kind=kind and kind.value, held=held))
    if connection.output is Output.JSON:
        write_json(scopes)
    elif scopes:
        _write_scopes(scopes)
    else:
        write_message("No such scopes." if kind or held is not None else "The fleet has no scopes.")
    write_fleet_hold(connection)


def _write_scopes(scopes: Sequence[v1.Scope]) -> None:
    held = hold_column(scope.hold for scope in scopes)
    write_table(
        (
            Column("SCOPE"),
            Column("KIND", drop_order=1),
            Column("VMS"),
            Column("OPEN EVENTS"),
            Column("ENABLED"),
            Column("LAST SEEN", drop_order=2),
            *held,
        ),
        (
            (
                scope.id,
                scope.kind.value,
                str(scope.vm_count),
                str(len(scope.open_events)),
                "yes" if scope.enabled else "no",
                "" if scope.last_seen_at is None else moment_text(scope.last_seen_at),
                *hold_cell(scope.hold, held),
            )
            for scope in scopes
        ),
    )


@app.command("show", cls=PlainUsage)
@with_service
def show(connection: ServiceConnection, scope: ScopeName) -> None:
    """Show everything about one scope.

    Example: forewarn scope show web
    """
    _show(connection, connection.api.scope(scope))
    write_fleet_hold(connection)


@app.command("add", cls=PlainUsage)
@with_service
@with_vm_options
def add(
    connection: ServiceConnection,
    traits: dict[str, Any],
    name: NewName,
    kind: Annotated[ScopeKind, Kind],
    approval: Approval = None,
    auto_approve: AutoApprove = None,
    scale_set: Annotated[str | None, typer.Option(metavar="NAME", help="The scale set of its VMs.")] = None,
    placement_group: Annotated[str | None, typer.Option(metavar="GUID", help="The id of the placement group.")] = None,
    key: Key = None,
) -> None:
    """Add a scope, without VMs.

    Example: forewarn scope add web --kind availability-set --tag team=web
    """
    request = v1.AddScope(
        id=name,
        kind=kind,
        approval=approval or ApprovalRule.ANY,
        auto_approve=_event_types(auto_approve) or (),
        scale_set=scale_set,
        placement_group=placement_group,
        **traits,
    )
    _show(connection, connection.api.add_scope(request, key=key))


@app.command("change", cls=PlainUsage)
@with_service
@with_vm_changes("auto_approve")
def change(
    connection: ServiceConnection,
    traits: dict[str, Any],
    scope: ScopeName,
    approval: Approval = None,
    auto_approve: AutoApprove = None,
    key: Key = None,
) -> None:
    """Change what is said about a scope. What is not named stays; --clear takes it away.

    Example: forewarn scope change web --approval all
    """
    values = {"approval": approval, "auto_approve": _event_types(auto_approve)}
    request = v1.ChangeScope(**merge_changes(traits, values))
    _show(connection, connection.api.change_scope(scope, request, key=key))


def _event_types(texts: list[str] | None) -> list[EventType] | None:
    return [choice_parser(EventType)(each) for each in texts] if texts else None


@app.command("remove", cls=PlainUsage)
@with_service
def remove(
    connection: ServiceConnection, scope: ScopeName, force: Force = False, reason: Reason = "", key: Key = None
) -> None:
    """Remove a scope with all its VMs, without events.

    Example: forewarn scope remove web
    """
    connection.api.remove_scope(scope, force=force, reason=reason, key=key)
    write_message(f"Scope {scope} is removed, with its VMs.")


def _show(connection: ServiceConnection, scope: v1.Scope) -> None:
    if connection.output is Output.JSON:
        write_json(scope)
        return
    write_details(
        (
            ("scope", scope.id),
            ("kind", scope.kind.value),
            ("VMs", str(scope.vm_count)),
            ("update domains", ", ".join(map(str, scope.update_domains))),
            ("approval", f"{scope.approval.value} VM{'s' if scope.approval is ApprovalRule.ALL else ''}"),
            ("starts at once", ", ".join(type_.value for type_ in scope.auto_approve)),
            ("scale set", scope.scale_set or ""),
            ("placement group", scope.placement_group or ""),
            ("priority", "" if scope.priority is None else scope.priority.value),
            *vm_option_details(scope),
            ("incarnation", str(scope.incarnation)),
            ("enabled", "yes" if scope.enabled else "no: none of its VMs has asked for events"),
            ("last seen", "" if scope.last_seen_at is None else moment_text(scope.last_seen_at)),
            ("last changed", moment_text(scope.changed_at)),
            ("open events", ", ".join(scope.open_events)),
            ("held", "" if scope.hold is None else hold_text(scope.hold)),
        )
    )
