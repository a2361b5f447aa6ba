"""`forewarn scope …`: list, show, add, change and remove scopes."""

from collections.abc import Sequence
from typing import Any

import click

from forewarn.api import v1
from forewarn.cli.options.common import ChoiceType, CommandGroup, force_option, key_option, reason_option
from forewarn.cli.options.completion import scope_argument
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.options.vm import merge_changes, vm_option_details, with_vm_changes, with_vm_options
from forewarn.cli.output import Output, moment_text, write_json, write_message
from forewarn.cli.views.event import hold_cell, hold_column, hold_text, write_fleet_hold
from forewarn.cli.views.tables import Column, with_cells, write_details, write_table
from forewarn.core.event import EventType
from forewarn.core.event_type import USER_TYPES
from forewarn.core.scope import ApprovalRule, ScopeKind

app = CommandGroup()

KIND = ChoiceType(ScopeKind)
KIND_HELP = "The kind: standalone, cloud-service, availability-set or placement-group."

approval_option = click.option(
    "--approval",
    type=ChoiceType(ApprovalRule),
    metavar="RULE",
    help="Whose approval starts an event early: any VM of the scope (default), or all affected VMs.",
)
auto_approve_option = click.option(
    "--auto-approve",
    type=ChoiceType(EventType),
    metavar="TYPE",
    multiple=True,
    help=f"Start user events of this type at once: {', '.join(USER_TYPES)}; repeatable.",
)


@app.command("list")
@click.option("--kind", type=KIND, metavar="KIND", help=KIND_HELP)
@click.option("--held/--not-held", default=None, help="Only scopes that are held, or not held.")
@with_service
def list_scopes(connection: ServiceConnection, kind: ScopeKind | None, held: bool | None) -> None:
    """List the scopes and their holds. A scope is enabled while its VMs poll for events.

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
        *with_cells(
            scopes,
            (
                Column("SCOPE"),
                Column("KIND", drop_order=2),
                Column("VMS"),
                Column("OPEN EVENTS"),
                Column("ENABLED"),
                Column("LAST SEEN", drop_order=1),
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
    )


@app.command("show")
@scope_argument
@with_service
def show(connection: ServiceConnection, scope: str) -> None:
    """Show everything about one scope.

    Example: forewarn scope show web
    """
    _show(connection, connection.api.scope(scope))
    write_fleet_hold(connection)


@app.command("add")
@click.argument("name", metavar="NAME")
@click.option("--kind", type=KIND, metavar="KIND", required=True, help=KIND_HELP)
@approval_option
@auto_approve_option
@click.option("--scale-set", metavar="NAME", help="The scale set of its VMs.")
@click.option("--placement-group", metavar="GUID", help="The id of the placement group.")
@key_option
@with_vm_options
@with_service
def add(
    connection: ServiceConnection,
    properties: dict[str, Any],
    name: str,
    kind: ScopeKind,
    approval: ApprovalRule | None,
    auto_approve: Sequence[EventType],
    scale_set: str | None,
    placement_group: str | None,
    key: str | None,
) -> None:
    """Add a scope, without VMs.

    Example: forewarn scope add web --kind availability-set --tag team=web
    """
    request = v1.AddScope(
        id=name,
        kind=kind,
        approval=approval or ApprovalRule.ANY,
        auto_approve=auto_approve,
        scale_set=scale_set,
        placement_group=placement_group,
        **properties,
    )
    _show(connection, connection.api.add_scope(request, key=key))


@app.command("change")
@scope_argument
@approval_option
@auto_approve_option
@key_option
@with_vm_changes("auto_approve")
@with_service
def change(
    connection: ServiceConnection,
    properties: dict[str, Any],
    scope: str,
    approval: ApprovalRule | None,
    auto_approve: Sequence[EventType],
    key: str | None,
) -> None:
    """Change properties of a scope. Other properties stay unchanged; --clear removes one.

    Example: forewarn scope change web --approval all
    """
    values = {"approval": approval, "auto_approve": auto_approve or None}
    request = v1.ChangeScope(**merge_changes(properties, values))
    _show(connection, connection.api.change_scope(scope, request, key=key))


@app.command("remove")
@scope_argument
@force_option
@reason_option
@key_option
@with_service
def remove(connection: ServiceConnection, scope: str, force: bool, reason: str, key: str | None) -> None:
    """Remove a scope and its VMs from the inventory, without events.

    Example: forewarn scope remove web
    """
    connection.api.remove_scope(scope, force=force, reason=reason, key=key)
    write_message(f"Scope {scope} and its VMs are removed.")


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
            ("enabled", "yes" if scope.enabled else "no: none of its VMs polls for events"),
            ("last seen", "" if scope.last_seen_at is None else moment_text(scope.last_seen_at)),
            ("last changed", moment_text(scope.changed_at)),
            ("open events", ", ".join(scope.open_events)),
            ("held", "" if scope.hold is None else hold_text(scope.hold)),
        )
    )
