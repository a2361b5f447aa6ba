"""`forewarn vm …`: manage VMs, and restart, redeploy, delete, evict or fail them."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from forewarn.api import v1
from forewarn.cli.commands.event import show_scheduled
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import Force, Key, PlainUsage, Reason, Wait, choice_option
from forewarn.cli.options.completion import HostFilter, ScopeFilter, VmName, VmNames, complete_hosts, complete_scopes
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.options.times import read_duration
from forewarn.cli.options.vm import merge_changes, vm_option_details, with_vm_changes, with_vm_options
from forewarn.cli.output import Output, write_json, write_message
from forewarn.cli.views.event import hold_cell, hold_column, hold_text, write_fleet_hold
from forewarn.cli.views.tables import Column, write_details, write_table
from forewarn.core.event import EventType

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
@with_service
def list_vms(
    connection: ServiceConnection,
    scope: ScopeFilter = None,
    host: HostFilter = None,
    name: Annotated[str | None, typer.Option(metavar="PATTERN", help="Only such names: 'web-*'.")] = None,
    tag: Annotated[str | None, typer.Option(metavar="TAG[=VALUE]", help="Only those with this tag.")] = None,
) -> None:
    """List the VMs, with the URL at which each finds its endpoint.

    Example: forewarn vm list --scope web
    """
    vms = list(connection.api.vms(scope=scope, host=host, name=name, tag=tag))
    if connection.output is Output.JSON:
        write_json(vms)
    elif vms:
        write_vms(vms)
    else:
        write_message("No such VMs." if any((scope, host, name, tag)) else "The fleet has no VMs.")
    write_fleet_hold(connection)


def write_vms(vms: Sequence[v1.Vm]) -> None:
    """Write VMs; what holds their scopes has a column where something does."""
    held = hold_column(vm.hold for vm in vms)
    write_table(
        (
            Column("VM"),
            Column("SCOPE"),
            Column("KIND", drop_order=4),
            Column("HOST", drop_order=1),
            Column("UPDATE DOMAIN", drop_order=2),
            Column("FAULT DOMAIN", drop_order=6),
            Column("PRIORITY", drop_order=5),
            Column("ADDRESS", drop_order=3),
            Column("GUEST URL"),
            *held,
        ),
        (
            (
                vm.name,
                vm.scope,
                vm.scope_kind.value,
                vm.host or "",
                str(vm.update_domain),
                str(vm.fault_domain),
                vm.priority.value,
                ", ".join(address.ip for address in vm.addresses),
                vm.guest_url or "",
                *hold_cell(vm.hold, held),
            )
            for vm in vms
        ),
    )


@app.command("show", cls=PlainUsage)
@with_service
def show(connection: ServiceConnection, vm: VmName) -> None:
    """Show everything about one VM. What it does not have of its own is its scope's.

    Example: forewarn vm show web-0
    """
    _show(connection, connection.api.vm(vm))
    write_fleet_hold(connection)


@app.command("add", cls=PlainUsage)
@with_service
@with_vm_options
def add(
    connection: ServiceConnection,
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
    request = v1.AddVm(
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
    _show(connection, connection.api.add_vm(request, key=key))


@app.command("change", cls=PlainUsage)
@with_service
@with_vm_changes("host", "addresses")
def change(
    connection: ServiceConnection,
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
    values = {"host": host, "update_domain": update_domain, "fault_domain": fault_domain, "addresses": addresses}
    request = v1.ChangeVm(**merge_changes(traits, values))
    _show(connection, connection.api.change_vm(vm, request, key=key))


@app.command("remove", cls=PlainUsage)
@with_service
def remove(
    connection: ServiceConnection, vm: VmName, force: Force = False, reason: Reason = "", key: Key = None
) -> None:
    """Take a VM out of the inventory, without an event. To have it deleted with notice, see `forewarn vm delete`.

    Example: forewarn vm remove web-2
    """
    connection.api.remove_vm(vm, force=force, reason=reason, key=key)
    write_message(f"VM {vm} is removed.")


def _addresses(texts: Iterable[str]) -> list[v1.NewAddress]:
    parted = (address.partition("@") for address in texts)
    return [v1.NewAddress(ip=ip, **({"network": network} if network else {})) for ip, _, network in parted]


def _show(connection: ServiceConnection, vm: v1.Vm) -> None:
    if connection.output is Output.JSON:
        write_json(vm)
        return
    write_details(
        (
            ("VM", f"{vm.scope}/{vm.name}"),
            ("kind of scope", vm.scope_kind.value),
            ("vmId", vm.vm_id),
            ("guest URL", vm.guest_url or ""),
            ("host", vm.host or ""),
            ("update domain", str(vm.update_domain)),
            ("fault domain", str(vm.fault_domain)),
            ("priority", vm.priority.value),
            ("addresses", ", ".join(_address_text(address) for address in vm.addresses)),
            *vm_option_details(vm),
            ("scale set", vm.scale_set or ""),
            ("role instance", "yes" if vm.role_instance else ""),
            ("enabled", "yes" if vm.enabled else "no: nobody in its scope has asked for events"),
            ("open events", ", ".join(vm.open_events)),
            ("held", "" if vm.hold is None else hold_text(vm.hold)),
        )
    )


def _address_text(address: v1.Address) -> str:
    return address.ip + (f"@{address.network}" if address.network != "default" else "")


@with_service
def restart(
    connection: ServiceConnection, vm: VmName, reason: Reason = "", key: Key = None, wait: Wait = False
) -> None:
    """Restart a VM for its owner: a Reboot whose source is User.

    Example: forewarn vm restart web-0 --wait
    """
    show_scheduled(connection, connection.api.restart(v1.Operate(vm=vm, reason=reason), key=key), wait=wait)


@with_service
def redeploy(
    connection: ServiceConnection, vm: VmName, reason: Reason = "", key: Key = None, wait: Wait = False
) -> None:
    """Move a VM to another host for its owner: a Redeploy by User.

    Example: forewarn vm redeploy web-0
    """
    show_scheduled(connection, connection.api.redeploy(v1.Operate(vm=vm, reason=reason), key=key), wait=wait)


@with_service
def delete(connection: ServiceConnection, vm: VmName, reason: Reason = "", key: Key = None, wait: Wait = False) -> None:
    """Delete a VM for its owner. If it has a terminate notice, with a Terminate whose source is User, else at once.

    Example: forewarn vm delete web-0 --reason "no longer needed"
    """
    scheduled = connection.api.delete(v1.Operate(vm=vm, reason=reason), key=key)
    show_scheduled(connection, scheduled, wait=wait)
    if not scheduled.created:
        write_message(f"VM {vm} is deleted at once: it has no terminate notice.")


@with_service
def evict(
    connection: ServiceConnection,
    vm: VmName,
    notice: Annotated[str | None, typer.Option("--in", metavar="DURATION", help="After this time: 30s.")] = None,
    reason: Reason = "",
    key: Key = None,
    wait: Wait = False,
) -> None:
    """Take a low-priority VM away: a Preempt. So does a platform that needs the capacity.

    Example: forewarn vm evict batch_3
    """
    request = v1.Evict(vm=vm, notice=read_duration(notice, "--in"), reason=reason)
    show_scheduled(connection, connection.api.evict(request, key=key), wait=wait)


@with_service
def fail(
    connection: ServiceConnection,
    vms: VmNames = None,
    host: Annotated[
        str | None, typer.Option(metavar="NAME", help="All VMs of this host.", autocompletion=complete_hosts)
    ] = None,
    type_: Annotated[
        EventType | None,
        choice_option(
            EventType, "--type", metavar="TYPE", help_="What happens to them: Redeploy (the default) or Reboot."
        ),
    ] = None,
    predicted: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Not now: expected in this time, 3d; a Redeploy is announced."),
    ] = None,
    reason: Reason = "",
    key: Key = None,
    wait: Wait = False,
) -> None:
    """Let the hardware under VMs fail. Their events start at once, without notice.

    Examples: forewarn vm fail web-0; forewarn vm fail --host hv-1 --predicted 3d
    """
    if bool(vms) is (host is not None):
        raise CliError(ExitCode.USAGE, "say what fails: VM… or --host")
    if predicted is None:
        request = v1.Fail(vms=vms or (), host=host, type=type_ or EventType.REDEPLOY, reason=reason)
        show_scheduled(connection, connection.api.fail(request, key=key), wait=wait)
        return
    if type_ is not None:
        raise CliError(ExitCode.USAGE, "--predicted and --type: a predicted failure is always a Redeploy")
    ahead = read_duration(predicted, "--predicted") or ""
    prediction = v1.PredictFailure(notice=ahead, vms=vms or (), host=host, reason=reason)
    show_scheduled(connection, connection.api.predict_failure(prediction, key=key), wait=wait)


OPERATIONS = {"restart": restart, "redeploy": redeploy, "delete": delete, "evict": evict, "fail": fail}

for name, operation in OPERATIONS.items():
    app.command(name, cls=PlainUsage)(operation)
