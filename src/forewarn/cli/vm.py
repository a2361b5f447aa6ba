"""`forewarn vm …`: the inventory."""

from typing import Annotated

import typer

from forewarn.cli.output import Output, write_json
from forewarn.cli.reaching import Asked, asks_service
from forewarn.cli.tables import Column, write_table

app = typer.Typer(no_args_is_help=True, help="See the VMs, and where each finds its endpoint.")


@app.command("list")
@asks_service
def list_vms(
    asked: Asked,
    scope: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this scope.")] = None,
) -> None:
    """List the VMs, with the URL at which each finds its endpoint."""
    vms = asked.api.vms(scope=scope)
    if asked.output is Output.JSON:
        write_json(list(vms))
        return
    write_table(
        (
            Column("VM"),
            Column("SCOPE"),
            Column("KIND", spare=4),
            Column("HOST", spare=1),
            Column("UPDATE DOMAIN", spare=2),
            Column("FAULT DOMAIN", spare=6),
            Column("PRIORITY", spare=5),
            Column("ADDRESS", spare=3),
            Column("GUEST URL"),
        ),
        (
            (
                vm.name,
                vm.scope,
                vm.kind.value,
                vm.host or "",
                str(vm.update_domain),
                str(vm.fault_domain),
                vm.priority.value,
                ", ".join(address.ip for address in vm.addresses),
                vm.guest_url or "",
            )
            for vm in vms
        ),
    )
