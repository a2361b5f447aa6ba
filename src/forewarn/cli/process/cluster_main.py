"""Main programs of `forewarn cluster`. Need the extra `[cluster]`."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.output import Output, write, write_json, write_message
from forewarn.cli.views.tables import Column, write_details, write_table
from forewarn.compose.cell import check_cell, init_cell, read_status
from forewarn.settings.nats import NatsSettings
from forewarn.store.port import StoreError, StoreMissing, StoreUnavailable

T = TypeVar("T")


def run_init(settings: NatsSettings, output: Output) -> None:
    """Create the cell."""
    is_new = _run(init_cell(settings))
    if output is Output.JSON:
        write_json({"cell": settings.cell, "created": is_new})
    elif is_new:
        write_message(f"Created cell {settings.cell} with {settings.replicas} replicas.")
    else:
        write_message(f"Cell {settings.cell} exists; nothing was changed.")


def run_status(settings: NatsSettings, output: Output) -> None:
    """Show the cell."""
    status = _run(read_status(settings))
    if output is Output.JSON:
        write_json(status)
        return
    write_details(
        (
            ("cell", status.cell),
            ("id", status.id),
            ("stream", status.stream),
            ("NATS", status.server_version),
            ("service", status.owner or "none"),
            ("records", str(status.records)),
            ("journal", f"{status.journal_messages} messages"),
            ("last", str(status.last_sequence)),
            ("size", f"{status.size} bytes"),
        )
    )
    write("")
    rows = (
        (each.name, "leader" if each.is_leader else "follower", "yes" if each.is_current else "no", str(each.lag))
        for each in status.replicas
    )
    write_table((Column("SERVER"), Column("ROLE"), Column("CURRENT"), Column("LAG")), rows)


def run_check(settings: NatsSettings, output: Output) -> None:
    """Check the cell; end with code 1 if it has problems."""
    report = _run(check_cell(settings))
    if output is Output.JSON:
        write_json(report)
    else:
        for problem in report.problems:
            write(f"problem: {problem}")
        for warning in report.warnings:
            write(f"note: {warning}")
    if report.problems:
        raise SystemExit(ExitCode.FAILED)
    write_message(f"Cell {settings.cell} can be used.")


def _run(work: Coroutine[None, None, T]) -> T:
    try:
        return asyncio.run(work)
    except StoreMissing as error:
        raise CliError(ExitCode.NOT_FOUND, str(error)) from error
    except StoreUnavailable as error:
        raise CliError(ExitCode.UNREACHABLE, str(error)) from error
    except StoreError as error:
        raise CliError(ExitCode.REFUSED, str(error)) from error
