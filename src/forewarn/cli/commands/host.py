"""`forewarn host …`: list and show the hosts of the fleet's VMs, and give up one that is lost."""

import click

from forewarn.api import v1
from forewarn.cli.options.common import CommandGroup, key_option
from forewarn.cli.options.completion import host_argument
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.output import Output, write_json, write_message
from forewarn.cli.views.event import write_fleet_hold
from forewarn.cli.views.tables import Column, with_cells, write_details, write_table
from forewarn.core.text import count_text

app = CommandGroup()


@app.command("list")
@with_service
def list_hosts(connection: ServiceConnection) -> None:
    """List the hosts, with their VMs and open events.

    Example: forewarn host list
    """
    hosts = list(connection.api.hosts())
    if connection.output is Output.JSON:
        write_json(hosts)
    elif hosts:
        write_table(
            *with_cells(
                hosts,
                (Column("HOST"), Column("VMS"), Column("OPEN EVENTS"), Column("SCOPES", can_fold=True)),
                ((host.name, str(len(host.vms)), str(len(host.open_events)), ", ".join(host.scopes)) for host in hosts),
            )
        )
    else:
        write_message("No VM has a host.")
    write_fleet_hold(connection)


@app.command("show")
@host_argument
@with_service
def show(connection: ServiceConnection, host: str) -> None:
    """Show one host, with its VMs and the open events that affect it.

    Example: forewarn host show hv-0
    """
    found = connection.api.host(host)
    if connection.output is Output.JSON:
        write_json(found)
    else:
        write_details(
            (
                ("host", found.name),
                ("scopes", ", ".join(found.scopes)),
                ("VMs", ", ".join(found.vms)),
                ("open events", ", ".join(found.open_events)),
            )
        )
    write_fleet_hold(connection)


@app.command("gone")
@host_argument
@click.option("--reason", metavar="TEXT", required=True, help="The reason for the journal.")
@key_option
@with_service
def gone(connection: ServiceConnection, host: str, reason: str, key: str | None) -> None:
    """Abandon a lost host: work that it has begun becomes unknown.

    Decide about that work with `forewarn event retry` or `forewarn event resolve`. Stop the host's process first.

    Example: forewarn host gone hv-7 --reason "mainboard replaced"
    """
    result = connection.api.give_up_host(host, v1.AbandonHost(reason=reason), key=key)
    if connection.output is Output.JSON:
        write_json(result)
    else:
        number = count_text(result.unknown_impacts, "impact")
        write_message(f"Host {result.name} is given up: {number} with an unknown outcome.")
