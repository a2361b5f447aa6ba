"""`forewarn host …`: the machines, as seen from the VMs on them."""

import typer

from forewarn.cli.names import HostName
from forewarn.cli.options import PlainUsage
from forewarn.cli.output import Output, say, write_json
from forewarn.cli.reaching import Asked, asks_service
from forewarn.cli.showing import mention_hold
from forewarn.cli.tables import Column, write_details, write_table

app = typer.Typer()


@app.command("list")
@asks_service
def list_hosts(asked: Asked) -> None:
    """List the hosts, with their VMs and open events.

    Example: forewarn host list
    """
    hosts = list(asked.api.hosts())
    if asked.output is Output.JSON:
        write_json(hosts)
    elif hosts:
        write_table(
            (Column("HOST"), Column("VMS"), Column("OPEN EVENTS"), Column("SCOPES", goes_below=True)),
            ((host.name, str(len(host.vms)), str(len(host.open_events)), ", ".join(host.scopes)) for host in hosts),
        )
    else:
        say("No VM says on which host it is.")
    mention_hold(asked)


@app.command("show", cls=PlainUsage)
@asks_service
def show(asked: Asked, host: HostName) -> None:
    """Show one host, with its VMs and the open events that affect it.

    Example: forewarn host show hv-0
    """
    found = asked.api.host(host)
    if asked.output is Output.JSON:
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
    mention_hold(asked)
