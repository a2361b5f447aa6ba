"""`forewarn fault …`: fault injection in the emulator's guest endpoint."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from forewarn.api import v1
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import FROM_1, CommandGroup, complete_words, key_option, reason_option
from forewarn.cli.options.completion import complete_vms, fault_argument
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.options.times import read_duration
from forewarn.cli.output import Output, moment_text, write_json, write_message
from forewarn.cli.views.tables import Column, write_table
from forewarn.core.errors import Invalid
from forewarn.core.fault import STATUSES, FaultKind, format_signed_duration, parse_fault_kind, parse_signed_duration

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

app = CommandGroup()

KIND_NAMES = tuple(str(STATUSES[kind]) if kind in STATUSES else kind.value for kind in FaultKind)
"""The kinds as users type them."""

COLUMNS = (
    Column("FAULT"),
    Column("KIND"),
    Column("VM", max_width=32),
    Column("HITS"),
    Column("ENDS", drop_order=1),
    Column("BY", drop_order=2),
    Column("SET", drop_order=3),
)


def _complete_kinds(_: click.Context, __: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    return complete_words(KIND_NAMES, incomplete)


@app.command("set")
@click.argument("kind", metavar="KIND", shell_complete=_complete_kinds)
@click.option("--vm", metavar="VM", help="Affect only requests of this VM.", shell_complete=complete_vms)
@click.option("--for", "lasting", metavar="DURATION", help="End after this time of the service's clock: 30s, 5m.")
@click.option("--times", type=FROM_1, metavar="NUMBER", help="End after this many requests.")
@click.option("--amount", metavar="DURATION", help="The delay, or the offset of the date: 5s, 2m, 1h, -1h.")
@reason_option
@key_option
@with_service
def set_fault(
    connection: ServiceConnection,
    kind: str,
    vm: str | None,
    lasting: str | None,
    times: int | None,
    amount: str | None,
    reason: str,
    key: str | None,
) -> None:
    """Set a fault: wrong answers to a VM or to all VMs. Without --for and --times it lasts until it is cleared.

    KIND is a status (410, 429, 500), empty-body, slow, hang, reset, truncated, wrong-content-type,
    unknown-event-type, extra-field, late-first-answer or wrong-date.

    Example: forewarn fault set 410 --vm web-0 --times 3
    """
    try:
        known_kind = parse_fault_kind(kind)
    except Invalid as error:
        raise CliError(ExitCode.USAGE, f"KIND: {error}") from None
    try:
        its_amount = None if amount is None else format_signed_duration(parse_signed_duration(amount))
    except Invalid as error:
        raise CliError(ExitCode.USAGE, f"--amount: {error}") from None
    request = v1.SetFault(
        kind=known_kind,
        vm=vm,
        duration=read_duration(lasting, "--for"),
        times=times,
        amount=its_amount,
        reason=reason,
    )
    fault = connection.api.set_fault(request, key=key)
    if connection.output is Output.JSON:
        write_json(fault)
    else:
        _write_faults([fault])


@app.command("list")
@with_service
def list_faults(connection: ServiceConnection) -> None:
    """List the faults, oldest first.

    Example: forewarn fault list
    """
    faults = connection.api.faults().faults
    if connection.output is Output.JSON:
        write_json(faults)
    elif faults:
        _write_faults(faults)
    else:
        write_message("No fault is set.")


@app.command("clear")
@fault_argument
@click.option("--all", "all_", is_flag=True, help="Clear all faults.")
@reason_option
@key_option
@with_service
def clear(connection: ServiceConnection, fault: str | None, all_: bool, reason: str, key: str | None) -> None:
    """Clear a fault, or all faults. Delayed requests are then answered.

    FAULT is its id, as `forewarn fault list` shows it.

    Example: forewarn fault clear --all
    """
    if (fault is None) is not all_:
        raise CliError(ExitCode.USAGE, "specify FAULT, such as `forewarn fault clear F1`, or --all")
    if fault is not None:
        connection.api.clear_fault(fault, reason=reason, key=key)
        write_message(f"Fault {fault} is cleared.")
        return
    cleared = connection.api.clear_faults(reason=reason, key=key).faults
    if connection.output is Output.JSON:
        write_json(cleared)
    write_message(f"Cleared: {', '.join(each.id for each in cleared)}." if cleared else "No fault was set.")


def _write_faults(faults: Sequence[v1.Fault]) -> None:
    write_table(
        COLUMNS,
        (
            (
                fault.id,
                _kind_text(fault),
                fault.vm or "all",
                f"{fault.hits}" if fault.times is None else f"{fault.hits} of {fault.times}",
                "when cleared" if fault.until is None and fault.times is None else _end_text(fault),
                fault.created_by,
                moment_text(fault.created_at),
            )
            for fault in faults
        ),
    )


def _kind_text(fault: v1.Fault) -> str:
    return fault.kind.value if fault.amount is None else f"{fault.kind.value} {fault.amount}"


def _end_text(fault: v1.Fault) -> str:
    requests = () if fault.times is None else (f"after {fault.times} request{'s' if fault.times != 1 else ''}",)
    return " or ".join((*requests, *(() if fault.until is None else (moment_text(fault.until),))))
