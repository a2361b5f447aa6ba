"""`forewarn fault …`: fault injection in the emulator's guest endpoint."""

from collections.abc import Sequence
from typing import Annotated

import typer

from forewarn.api import v1
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import Key, PlainUsage, Reason
from forewarn.cli.options.completion import FaultId, complete_vms
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.output import Output, moment_text, write_json, write_message
from forewarn.cli.views.tables import Column, write_table
from forewarn.core.duration import format_duration, parse_duration
from forewarn.core.errors import Invalid
from forewarn.core.fault import STATUSES, FaultKind, format_signed_duration, parse_fault_kind, parse_signed_duration

app = typer.Typer()

KIND_NAMES = tuple(str(STATUSES[kind]) if kind in STATUSES else kind.value for kind in FaultKind)
"""The kinds as people say them."""

COLUMNS = (
    Column("FAULT"),
    Column("KIND"),
    Column("VM", max_width=32),
    Column("HITS"),
    Column("ENDS", drop_order=1),
    Column("BY", drop_order=2),
    Column("SET", drop_order=3),
)


def _complete_kinds() -> list[str]:
    return list(KIND_NAMES)


@app.command("set", cls=PlainUsage)
@with_service
def set_fault(
    connection: ServiceConnection,
    kind: Annotated[str, typer.Argument(metavar="KIND", autocompletion=_complete_kinds, hidden=True)],
    vm: Annotated[
        str | None,
        typer.Option(
            "--vm", metavar="VM", help="This VM's requests alone, not those of all.", autocompletion=complete_vms
        ),
    ] = None,
    lasting: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="For so long by the service's clock: 30s, 5m.")
    ] = None,
    times: Annotated[int | None, typer.Option(metavar="NUMBER", min=1, help="For so many requests.")] = None,
    amount: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How slow, how late, or how far from the right date: 5s, 2m, 1h, -1h."),
    ] = None,
    reason: Reason = "",
    key: Key = None,
) -> None:
    """Have the emulator answer a VM, or all, wrongly. Without --for and --times it does so until it is cleared.

    KIND is a status (410, 429, 500), empty-body, slow, hang, reset, truncated, wrong-content-type,
    unknown-event-type, extra-field, late-first-answer or wrong-date.

    Example: forewarn fault set 410 --vm web-0 --times 3
    """
    try:
        request = v1.SetFault(
            kind=parse_fault_kind(kind),
            vm=vm,
            duration=None if lasting is None else format_duration(parse_duration(lasting)),
            times=times,
            amount=None if amount is None else format_signed_duration(parse_signed_duration(amount)),
            reason=reason,
        )
    except Invalid as error:
        raise CliError(ExitCode.USAGE, str(error)) from None
    fault = connection.api.set_fault(request, key=key)
    if connection.output is Output.JSON:
        write_json(fault)
    else:
        _write_faults([fault])


@app.command("list")
@with_service
def list_faults(connection: ServiceConnection) -> None:
    """List the faults that are set, in the order in which they were.

    Example: forewarn fault list
    """
    faults = connection.api.faults().faults
    if connection.output is Output.JSON:
        write_json(faults)
    elif faults:
        _write_faults(faults)
    else:
        write_message("No fault is set.")


@app.command("clear", cls=PlainUsage)
@with_service
def clear(
    connection: ServiceConnection,
    id_: FaultId = None,
    everything: Annotated[bool, typer.Option("--all", help="All faults.")] = False,
    reason: Reason = "",
    key: Key = None,
) -> None:
    """End a fault, or all of them. Requests that it has made wait are answered.

    FAULT is its id, as `forewarn fault list` shows it.

    Example: forewarn fault clear --all
    """
    if (id_ is None) is not everything:
        raise CliError(ExitCode.USAGE, "say which fault, like `forewarn fault clear F1`, or --all")
    if id_ is not None:
        connection.api.clear_fault(id_, reason=reason, key=key)
        write_message(f"Fault {id_} is cleared.")
        return
    cleared = connection.api.clear_faults(reason=reason, key=key).faults
    if connection.output is Output.JSON:
        write_json(cleared)
    write_message(f"Cleared: {', '.join(fault.id for fault in cleared)}." if cleared else "No fault was set.")


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
