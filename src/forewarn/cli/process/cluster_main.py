"""Main programs of `forewarn cluster`. Need the extra `[cluster]`."""

import asyncio
import os
from collections.abc import Coroutine
from typing import TypeVar

from forewarn.api.local_service import TOKEN_FILE
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.output import Output, write, write_json, write_message
from forewarn.cli.views.tables import Column, write_details, write_table
from forewarn.compose.cell import check_cell, create_first_token, init_cell, read_status
from forewarn.compose.host_permissions import check_host_user
from forewarn.settings.nats import NatsSettings
from forewarn.settings.paths import user_data_directory
from forewarn.settings.schema import Settings
from forewarn.store.port import StoreError, StoreMissing, StoreUnavailable

T = TypeVar("T")


def run_init(settings: Settings, output: Output) -> None:
    """Create the cell, and its first token if it has none."""
    cell, directory = settings.nats.cell, (settings.data or user_data_directory(os.environ)).absolute()
    is_new = _run(init_cell(settings.nats))
    file = directory / TOKEN_FILE if _run(create_first_token(settings, directory)) else None
    if output is Output.JSON:
        write_json({"cell": cell, "created": is_new, "token_file": None if file is None else str(file)})
        return
    if is_new:
        write_message(f"Created cell {cell} with {settings.nats.replicas} replicas.")
    if file is not None:
        write_message(f"Wrote the first admin token to {file}; it is valid at all control nodes.")
    elif not is_new:
        write_message(f"Cell {cell} exists; nothing was changed.")


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


def run_check(settings: NatsSettings, output: Output, host: str | None = None) -> None:
    """Check the cell, or the permissions of the user of a host; end with code 1 if there are problems."""
    report = _run(check_cell(settings) if host is None else check_host_user(settings, host))
    if output is Output.JSON:
        write_json(report)
    else:
        for problem in report.problems:
            write(f"problem: {problem}")
        for warning in report.warnings:
            write(f"note: {warning}")
    if report.problems:
        raise SystemExit(ExitCode.FAILED)
    if host is None:
        write_message(f"Cell {settings.cell} can be used.")
    else:
        write_message(f"The user of host {host} may do only what the host needs.")


def _run(work: Coroutine[None, None, T]) -> T:
    try:
        return asyncio.run(work)
    except StoreMissing as error:
        raise CliError(ExitCode.NOT_FOUND, str(error)) from error
    except StoreUnavailable as error:
        raise CliError(ExitCode.UNREACHABLE, str(error)) from error
    except StoreError as error:
        raise CliError(ExitCode.REFUSED, str(error)) from error
