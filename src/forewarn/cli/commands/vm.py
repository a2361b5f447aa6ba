"""`forewarn vm …`: manage VMs, and restart, redeploy, delete, evict or fail them."""

from collections.abc import Iterable, Sequence
from typing import Any

import click

from forewarn.api import v1
from forewarn.cli.commands.event import check_start, show_scheduled
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import (
    FROM_0,
    ChoiceType,
    CommandGroup,
    force_option,
    key_option,
    reason_option,
    wait_option,
)
from forewarn.cli.options.completion import (
    complete_hosts,
    complete_scopes,
    host_filter,
    scope_filter,
    vm_argument,
    vms_argument,
)
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.options.consent import now_option, send_with_consent, unannounced_option
from forewarn.cli.options.times import read_duration
from forewarn.cli.options.vm import merge_changes, vm_option_details, with_vm_changes, with_vm_options
from forewarn.cli.output import Output, write_json, write_message
from forewarn.cli.views.event import hold_cell, hold_column, hold_text, write_fleet_hold
from forewarn.cli.views.tables import Column, with_cells, write_details, write_table
from forewarn.core.event import EventType
from forewarn.core.event_type import DEFAULT_FAILURE_TYPE, FAILURE_TYPES, PREDICTED_FAILURE_TYPE
from forewarn.core.text import join_choices

app = CommandGroup()

host_option = click.option("--host", metavar="NAME", help="The host that runs the VM.", shell_complete=complete_hosts)
update_domain_option = click.option("--update-domain", type=FROM_0, metavar="NUMBER", help="The update domain, from 0.")
fault_domain_option = click.option("--fault-domain", type=FROM_0, metavar="NUMBER", help="The fault domain, from 0.")
address_option = click.option(
    "--address",
    "addresses",
    metavar="IP[@NETWORK]",
    multiple=True,
    help="An address by which the endpoint identifies the VM; repeatable.",
)
notice_option = click.option(
    "--in", "notice", metavar="DURATION", help="Start after this duration: 20m; default: the notice of the event type."
)


@app.command("list")
@scope_filter
@host_filter
@click.option("--name", metavar="PATTERN", help="Only VMs with names like this: 'web-*'.")
@click.option("--tag", metavar="TAG[=VALUE]", help="Only VMs with this tag.")
@with_service
def list_vms(
    connection: ServiceConnection, scope: str | None, host: str | None, name: str | None, tag: str | None
) -> None:
    """List the VMs with their endpoint URLs.

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
    """Write VMs as a table, with a column for holds if a scope is held."""
    held = hold_column(vm.hold for vm in vms)
    write_table(
        *with_cells(
            vms,
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
    )


@app.command("show")
@vm_argument
@with_service
def show(connection: ServiceConnection, vm: str) -> None:
    """Show everything about one VM. Properties that it does not set come from its scope.

    Example: forewarn vm show web-0
    """
    _show(connection, connection.api.vm(vm))
    write_fleet_hold(connection)


@app.command("add")
@click.argument("name", metavar="VM")
@click.option(
    "--scope", metavar="NAME", help="Its scope; default: a new standalone scope.", shell_complete=complete_scopes
)
@host_option
@update_domain_option
@fault_domain_option
@address_option
@click.option("--vm-id", metavar="GUID", help="Its vmId; default: generated.")
@click.option("--role-instance", is_flag=True, help="Name it in events like a role instance of a cloud service.")
@key_option
@with_vm_options
@with_service
def add(
    connection: ServiceConnection,
    properties: dict[str, Any],
    name: str,
    scope: str | None,
    host: str | None,
    update_domain: int | None,
    fault_domain: int | None,
    addresses: Sequence[str],
    vm_id: str | None,
    role_instance: bool,
    key: str | None,
) -> None:
    """Add a VM to a scope, or standalone. VM is its name, or scope/name instead of --scope.

    Example: forewarn vm add web/web-2 --host hv-1 --update-domain 1 --address 10.0.0.3
    """
    its_scope, slash, its_name = name.rpartition("/")
    if slash and scope is not None and scope != its_scope:
        raise CliError(ExitCode.USAGE, f"VM {name} and --scope {scope} name different scopes; use one of them")
    request = v1.AddVm(
        name=its_name,
        scope=its_scope if slash else scope,
        vm_id=vm_id,
        host=host,
        update_domain=update_domain or 0,
        fault_domain=fault_domain or 0,
        role_instance=role_instance,
        addresses=_addresses(addresses),
        **properties,
    )
    _show(connection, connection.api.add_vm(request, key=key))


@app.command("change")
@vm_argument
@host_option
@update_domain_option
@fault_domain_option
@address_option
@key_option
@with_vm_changes("host", "addresses")
@with_service
def change(
    connection: ServiceConnection,
    properties: dict[str, Any],
    vm: str,
    host: str | None,
    update_domain: int | None,
    fault_domain: int | None,
    addresses: Sequence[str],
    key: str | None,
) -> None:
    """Change properties of a VM. Other properties stay unchanged; --clear removes one that the VM sets.

    --address replaces all addresses of the VM.

    Example: forewarn vm change web-2 --host hv-0 --clear zone
    """
    values = {
        "host": host,
        "update_domain": update_domain,
        "fault_domain": fault_domain,
        "addresses": _addresses(addresses) or None,
    }
    request = v1.ChangeVm(**merge_changes(properties, values))
    _show(connection, connection.api.change_vm(vm, request, key=key))


@app.command("remove")
@vm_argument
@force_option
@reason_option
@key_option
@with_service
def remove(connection: ServiceConnection, vm: str, force: bool, reason: str, key: str | None) -> None:
    """Remove a VM from the inventory, without an event. To delete it with notice, use `forewarn vm delete`.

    Example: forewarn vm remove web-2
    """
    connection.api.remove_vm(vm, force=force, reason=reason, key=key)
    write_message(f"VM {vm} is removed.")


def _addresses(texts: Iterable[str]) -> list[v1.NewAddress]:
    parted = (address.partition("@") for address in texts)
    return [v1.NewAddress(ip=ip, network=network or "default") for ip, _, network in parted]


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
            ("enabled", "yes" if vm.enabled else "no: no VM of its scope polls for events"),
            ("open events", ", ".join(vm.open_events)),
            ("held", "" if vm.hold is None else hold_text(vm.hold)),
        )
    )


def _address_text(address: v1.Address) -> str:
    return address.ip + (f"@{address.network}" if address.network != "default" else "")


@app.command("restart")
@vm_argument
@notice_option
@now_option
@unannounced_option
@reason_option
@key_option
@wait_option
@with_service
def restart(
    connection: ServiceConnection,
    vm: str,
    notice: str | None,
    now: bool,
    unannounced: bool,
    reason: str,
    key: str | None,
    wait: bool,
) -> None:
    """Restart a VM for its owner: a Reboot with source User.

    Example: forewarn vm restart web-0 --in 20m --wait
    """
    ahead = read_duration(notice, "--in")
    scheduled = send_with_consent(
        lambda consent: connection.api.restart(
            v1.Restart(vm=vm, reason=reason, notice=ahead, now=now, unannounced=consent), key=key
        ),
        unannounced=unannounced,
    )
    show_scheduled(connection, scheduled, wait=wait)


@app.command("redeploy")
@vm_argument
@notice_option
@now_option
@unannounced_option
@reason_option
@key_option
@wait_option
@with_service
def redeploy(
    connection: ServiceConnection,
    vm: str,
    notice: str | None,
    now: bool,
    unannounced: bool,
    reason: str,
    key: str | None,
    wait: bool,
) -> None:
    """Redeploy a VM to another host for its owner, with source User.

    Example: forewarn vm redeploy web-0
    """
    ahead = read_duration(notice, "--in")
    scheduled = send_with_consent(
        lambda consent: connection.api.redeploy(
            v1.Restart(vm=vm, reason=reason, notice=ahead, now=now, unannounced=consent), key=key
        ),
        unannounced=unannounced,
    )
    show_scheduled(connection, scheduled, wait=wait)


@app.command("delete")
@vm_argument
@now_option
@unannounced_option
@reason_option
@key_option
@wait_option
@with_service
def delete(
    connection: ServiceConnection, vm: str, now: bool, unannounced: bool, reason: str, key: str | None, wait: bool
) -> None:
    """Delete a VM for its owner. With a terminate notice: a Terminate with source User; without: at once.

    Example: forewarn vm delete web-0 --reason "no longer needed"
    """
    scheduled = send_with_consent(
        lambda consent: connection.api.delete(v1.Operate(vm=vm, reason=reason, now=now, unannounced=consent), key=key),
        unannounced=unannounced,
    )
    show_scheduled(connection, scheduled, wait=wait)
    if not scheduled.created:
        write_message(f"VM {vm} is deleted at once: it has no terminate notice.")


@app.command("evict")
@vm_argument
@notice_option
@now_option
@unannounced_option
@reason_option
@key_option
@wait_option
@with_service
def evict(
    connection: ServiceConnection,
    vm: str,
    notice: str | None,
    now: bool,
    unannounced: bool,
    reason: str,
    key: str | None,
    wait: bool,
) -> None:
    """Evict a low-priority VM with a Preempt. Platforms do this when they need the capacity.

    Example: forewarn vm evict batch_3
    """
    check_start(now=now, **{"--in": notice})
    ahead = read_duration(notice, "--in")
    scheduled = send_with_consent(
        lambda consent: connection.api.evict(
            v1.Evict(vm=vm, notice=ahead, reason=reason, now=now, unannounced=consent), key=key
        ),
        unannounced=unannounced,
    )
    show_scheduled(connection, scheduled, wait=wait)


@app.command("fail")
@vms_argument
@click.option("--host", metavar="NAME", help="All VMs on this host.", shell_complete=complete_hosts)
@click.option(
    "--type",
    "type_",
    type=ChoiceType(EventType),
    metavar="TYPE",
    help=f"The event type: {join_choices(FAILURE_TYPES)}; default: {DEFAULT_FAILURE_TYPE.value}.",
)
@click.option(
    "--predicted",
    metavar="DURATION",
    help=f"Predict the failure instead, in this time: 3d. Announces a {PREDICTED_FAILURE_TYPE.value}.",
)
@unannounced_option
@reason_option
@key_option
@wait_option
@with_service
def fail(
    connection: ServiceConnection,
    vms: Sequence[str],
    host: str | None,
    type_: EventType | None,
    predicted: str | None,
    unannounced: bool,
    reason: str,
    key: str | None,
    wait: bool,
) -> None:
    """Simulate a hardware failure of VMs. Their events start at once, without notice.

    Examples: forewarn vm fail web-0; forewarn vm fail --host hv-1 --predicted 3d
    """
    if bool(vms) is (host is not None):
        raise CliError(ExitCode.USAGE, "specify either VM or --host")
    if predicted is None:
        request = v1.Fail(vms=vms, host=host, type=type_ or DEFAULT_FAILURE_TYPE, reason=reason)
        show_scheduled(connection, connection.api.fail(request, key=key), wait=wait)
        return
    if type_ is not None:
        raise CliError(
            ExitCode.USAGE,
            "--predicted and --type are mutually exclusive: "
            f"a predicted failure is always a {PREDICTED_FAILURE_TYPE.value}",
        )
    ahead = read_duration(predicted, "--predicted") or ""
    scheduled = send_with_consent(
        lambda consent: connection.api.predict_failure(
            v1.PredictFailure(notice=ahead, vms=vms, host=host, reason=reason, unannounced=consent), key=key
        ),
        unannounced=unannounced,
    )
    show_scheduled(connection, scheduled, wait=wait)
