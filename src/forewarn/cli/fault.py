"""`forewarn fault …`: what the emulator's endpoint does wrong on purpose."""

from collections.abc import Sequence
from typing import Annotated

import typer

from forewarn.api import v1
from forewarn.cli.exits import Exit, Stop
from forewarn.cli.names import FaultId, complete_vms
from forewarn.cli.options import Key, PlainUsage, Why
from forewarn.cli.output import Output, moment_text, say, write_json
from forewarn.cli.reaching import Asked, asks_service
from forewarn.cli.tables import Column, write_table
from forewarn.core.duration import format_duration, parse_duration
from forewarn.core.errors import Invalid
from forewarn.core.fault import STATUSES, FaultKind, format_signed_duration, parse_fault_kind, parse_signed_duration

app = typer.Typer()

WORDS = tuple(str(STATUSES[kind]) if kind in STATUSES else kind.value for kind in FaultKind)
"""The kinds as people say them."""

COLUMNS = (
    Column("FAULT"),
    Column("KIND"),
    Column("VM", most=32),
    Column("HITS"),
    Column("ENDS", spare=1),
    Column("BY", spare=2),
    Column("SET", spare=3),
)


def _kinds() -> list[str]:
    return list(WORDS)


@app.command("set", cls=PlainUsage)
@asks_service
def set_fault(
    asked: Asked,
    kind: Annotated[str, typer.Argument(metavar="KIND", autocompletion=_kinds, hidden=True)],
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
    why: Why = "",
    key: Key = None,
) -> None:
    """Have the emulator answer a VM, or all, wrongly. Without --for and --times it does so until it is cleared.

    KIND is a status (410, 429, 500), empty-body, slow, hang, reset, truncated, wrong-content-type,
    unknown-event-type, extra-field, late-first-answer or wrong-date.

    Example: forewarn fault set 410 --vm web-0 --times 3
    """
    try:
        ask = v1.SetFault(
            kind=parse_fault_kind(kind),
            vm=vm,
            lasting=None if lasting is None else format_duration(parse_duration(lasting)),
            times=times,
            amount=None if amount is None else format_signed_duration(parse_signed_duration(amount)),
            why=why,
        )
    except Invalid as error:
        raise Stop(Exit.USAGE, str(error)) from None
    fault = asked.api.set_fault(ask, key=key)
    if asked.output is Output.JSON:
        write_json(fault)
    else:
        _write([fault])


@app.command("list")
@asks_service
def list_faults(asked: Asked) -> None:
    """List the faults that are set, in the order in which they were.

    Example: forewarn fault list
    """
    faults = asked.api.faults().faults
    if asked.output is Output.JSON:
        write_json(faults)
    elif faults:
        _write(faults)
    else:
        say("No fault is set.")


@app.command("clear", cls=PlainUsage)
@asks_service
def clear(
    asked: Asked,
    id_: FaultId = None,
    everything: Annotated[bool, typer.Option("--all", help="All faults.")] = False,
    why: Why = "",
    key: Key = None,
) -> None:
    """End a fault, or all of them. Requests that it has made wait are answered.

    FAULT is its id, as `forewarn fault list` shows it.

    Example: forewarn fault clear --all
    """
    if (id_ is None) is not everything:
        raise Stop(Exit.USAGE, "say which fault, like `forewarn fault clear F1`, or --all")
    if id_ is not None:
        asked.api.clear_fault(id_, why=why, key=key)
        say(f"Fault {id_} is cleared.")
        return
    cleared = asked.api.clear_faults(why=why, key=key).faults
    if asked.output is Output.JSON:
        write_json(cleared)
    say(f"Cleared: {', '.join(fault.id for fault in cleared)}." if cleared else "No fault was set.")


def _write(faults: Sequence[v1.Fault]) -> None:
    write_table(
        COLUMNS,
        (
            (
                fault.id,
                _kind(fault),
                fault.vm or "all",
                f"{fault.hits}" if fault.times is None else f"{fault.hits} of {fault.times}",
                "when cleared" if fault.until is None and fault.times is None else _end(fault),
                fault.by,
                moment_text(fault.set_at),
            )
            for fault in faults
        ),
    )


def _kind(fault: v1.Fault) -> str:
    return fault.kind.value if fault.amount is None else f"{fault.kind.value} {fault.amount}"


def _end(fault: v1.Fault) -> str:
    requests = () if fault.times is None else (f"after {fault.times} request{'s' if fault.times != 1 else ''}",)
    return " or ".join((*requests, *(() if fault.until is None else (moment_text(fault.until),))))
