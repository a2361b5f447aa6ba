"""`forewarn vm …`: the VMs, and what happens to them."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from forewarn.api import v1
from forewarn.cli import operations
from forewarn.cli.names import OfHost, OfScope, VmName, complete_hosts, complete_scopes
from forewarn.cli.options import Force, Key, PlainUsage, Why
from forewarn.cli.output import Output, say, write_json
from forewarn.cli.reaching import Asked, asks_service
from forewarn.cli.showing import hold_cell, hold_column, hold_sentence, mention_hold
from forewarn.cli.tables import Column, write_details, write_table
from forewarn.cli.traits import changed, takes_changed_traits, takes_traits, traits_details

app = typer.Typer()

NewName = Annotated[str, typer.Argument(metavar="NAME", hidden=True)]
Host = Annotated[
    str | None, typer.Option("--host", metavar="NAME", help="Where it runs.", autocompletion=complete_hosts)
]
UpdateDomain = Annotated[int | None, typer.Option("--update-domain", metavar="NUMBER", min=0, help="From 0 on.")]
FaultDomain = Annotated[int | None, typer.Option("--fault-domain", metavar="NUMBER", min=0, help="From 0 on.")]
Addresses = Annotated[
    list[str] | None,
    typer.Option("--address", metavar="IP[@NETWORK]", help="An address that the endpoint knows it by; repeatable."),
]


@app.command("list")
@asks_service
def list_vms(
    asked: Asked,
    scope: OfScope = None,
    host: OfHost = None,
    name: Annotated[str | None, typer.Option(metavar="PATTERN", help="Only such names: 'web-*'.")] = None,
    tag: Annotated[str | None, typer.Option(metavar="TAG[=VALUE]", help="Only those with this tag.")] = None,
) -> None:
    """List the VMs, with the URL at which each finds its endpoint.

    Example: forewarn vm list --scope web
    """
    vms = list(asked.api.vms(scope=scope, host=host, name=name, tag=tag))
    if asked.output is Output.JSON:
        write_json(vms)
    elif vms:
        write_vms(vms)
    else:
        say("No such VMs." if any((scope, host, name, tag)) else "The fleet has no VMs.")
    mention_hold(asked)


def write_vms(vms: Sequence[v1.Vm]) -> None:
    """Write VMs; what holds their scopes has a column where something does."""
    held = hold_column(vm.held for vm in vms)
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
            *held,
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
                *hold_cell(vm.held, held),
            )
            for vm in vms
        ),
    )


@app.command("show", cls=PlainUsage)
@asks_service
def show(asked: Asked, vm: VmName) -> None:
    """Show everything about one VM. What it does not have of its own is its scope's.

    Example: forewarn vm show web-0
    """
    _show(asked, asked.api.vm(vm))
    mention_hold(asked)


@app.command("add", cls=PlainUsage)
@asks_service
@takes_traits
def add(
    asked: Asked,
    traits: dict[str, Any],
    name: NewName,
    scope: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The scope to which it comes; none: one of its own.", autocompletion=complete_scopes
        ),
    ] = None,
    host: Host = None,
    update_domain: UpdateDomain = None,
    fault_domain: FaultDomain = None,
    address: Addresses = None,
    vm_id: Annotated[str | None, typer.Option(metavar="GUID", help="Its vmId; none: one is made.")] = None,
    role_instance: Annotated[
        bool, typer.Option("--role-instance", help="Its events name it as role instances of cloud services are named.")
    ] = False,
    key: Key = None,
) -> None:
    """Add a VM to a scope, or standalone.

    Example: forewarn vm add web-2 --scope web --host hv-1 --update-domain 1 --address 10.0.0.3
    """
    ask = v1.AddVm(
        name=name,
        scope=scope,
        vm_id=vm_id,
        host=host,
        update_domain=update_domain or 0,
        fault_domain=fault_domain or 0,
        role_instance=role_instance,
        addresses=_addresses(address or ()),
        **traits,
    )
    _show(asked, asked.api.add_vm(ask, key=key))


@app.command("change", cls=PlainUsage)
@asks_service
@takes_changed_traits("host", "addresses")
def change(
    asked: Asked,
    traits: dict[str, Any],
    vm: VmName,
    host: Host = None,
    update_domain: UpdateDomain = None,
    fault_domain: FaultDomain = None,
    address: Addresses = None,
    key: Key = None,
) -> None:
    """Change what is said about a VM. What is not named stays; --clear takes away what it has of its own.

    Addresses that are named replace all that it had.

    Example: forewarn vm change web-2 --host hv-0 --clear zone
    """
    addresses = _addresses(address) if address else None
    said = {"host": host, "update_domain": update_domain, "fault_domain": fault_domain, "addresses": addresses}
    ask = v1.ChangeVm(**changed(traits, said))
    _show(asked, asked.api.change_vm(vm, ask, key=key))


@app.command("remove", cls=PlainUsage)
@asks_service
def remove(asked: Asked, vm: VmName, force: Force = False, why: Why = "", key: Key = None) -> None:
    """Take a VM out of the inventory, without an event. To have it deleted with notice, see `forewarn vm delete`.

    Example: forewarn vm remove web-2
    """
    asked.api.remove_vm(vm, force=force, why=why, key=key)
    say(f"VM {vm} is removed.")


def _addresses(said: Iterable[str]) -> list[v1.NewAddress]:
    parted = (address.partition("@") for address in said)
    return [v1.NewAddress(ip=ip, **({"network": network} if network else {})) for ip, _, network in parted]


def _show(asked: Asked, vm: v1.Vm) -> None:
    if asked.output is Output.JSON:
        write_json(vm)
        return
    write_details(
        (
            ("VM", f"{vm.scope}/{vm.name}"),
            ("kind of scope", vm.kind.value),
            ("vmId", vm.vm_id),
            ("guest URL", vm.guest_url or ""),
            ("host", vm.host or ""),
            ("update domain", str(vm.update_domain)),
            ("fault domain", str(vm.fault_domain)),
            ("priority", vm.priority.value),
            ("addresses", ", ".join(_address_text(address) for address in vm.addresses)),
            *traits_details(vm),
            ("scale set", vm.scale_set or ""),
            ("role instance", "yes" if vm.role_instance else ""),
            ("enabled", "yes" if vm.enabled else "no: nobody in its scope has asked for events"),
            ("open events", ", ".join(vm.open_events)),
            ("held", "" if vm.held is None else hold_sentence(vm.held)),
        )
    )


def _address_text(address: v1.Address) -> str:
    return address.ip + (f"@{address.network}" if address.network != "default" else "")


for name, operation in operations.ALL.items():
    app.command(name, cls=PlainUsage)(operation)
