"""Main programs of `forewarn cluster`. Need the extra `[cluster]`."""

import asyncio
import getpass
import os
import socket
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TypeVar

from forewarn.api.local_service import TOKEN_FILE
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.output import Output, moment_text, write, write_json, write_message
from forewarn.cli.views.tables import Column, write_details, write_table
from forewarn.compose.cell import (
    change_policy,
    init_cell,
    prepare_cell,
    read_policy,
    renew_cell,
    upgrade_cell,
)
from forewarn.compose.cell_status import CellMember, check_cell, read_status
from forewarn.compose.host_permissions import check_host_user
from forewarn.settings.loader import iter_values
from forewarn.settings.nats import NatsSettings
from forewarn.settings.paths import user_data_directory
from forewarn.settings.schema import Settings
from forewarn.settings.types import format_value
from forewarn.store.port import StoreError, StoreMissing, StoreUnavailable

T = TypeVar("T")

TOOK_POLICY = "Took the policy of the cell from the settings; `forewarn cluster config` changes it."


def run_init(settings: Settings, output: Output) -> None:
    """Create the cell, and its first token and policy if it has none."""
    cell, directory = settings.nats.cell, _directory(settings)
    is_new = _run(init_cell(settings.nats))
    has_new_token, has_new_policy = _run(prepare_cell(settings, directory))
    file = directory / TOKEN_FILE if has_new_token else None
    if output is Output.JSON:
        write_json({"cell": cell, "created": is_new, "token_file": None if file is None else str(file)})
        return
    if is_new:
        write_message(f"Created cell {cell} with {settings.nats.replicas} replicas.")
    if file is not None:
        write_message(f"Wrote the first admin token to {file}; it is valid at all control nodes.")
    if has_new_policy:
        write_message(TOOK_POLICY)
    if not (is_new or has_new_token or has_new_policy):
        write_message(f"Cell {cell} exists; nothing was changed.")


def run_config(settings: Settings, values: Mapping[str, object], why: str, output: Output) -> None:
    """Show the policy of the cell, or change some values of it."""
    if values:
        by = f"{getpass.getuser()} at {socket.gethostname()}"
        is_changed, policy = _run(change_policy(settings, values, by=by, why=why))
        is_saved = True
    else:
        found = _run(read_policy(settings))
        is_changed, is_saved, policy = False, found is not None, found or settings.policy
    shown = {key: format_value(value) for key, value in iter_values(policy)}
    if output is Output.JSON:
        write_json({"cell": settings.nats.cell, "saved": is_saved, "changed": is_changed, "policy": shown})
        return
    write_details(
        tuple((key, str(value).lower() if isinstance(value, bool) else str(value)) for key, value in shown.items())
    )
    if values:
        write_message("All control nodes apply it now." if is_changed else "Nothing was changed.")
    elif not is_saved:
        write_message(
            "The cell has no policy, so each control node applies its own settings, such as these: "
            "`forewarn cluster upgrade` saves them."
        )


def run_upgrade(settings: Settings, output: Output) -> None:
    """Bring the cell to what this version needs and knows."""
    report = _run(upgrade_cell(settings, _directory(settings)))
    if output is Output.JSON:
        write_json(report)
        return
    if report.settings:
        write_message("Corrected the settings of the stream.")
    if report.policy:
        write_message(TOOK_POLICY)
    if report.switched:
        write_message(f"All processes save records in format {report.format} now.")
    else:
        write_message(f"Records are in format {report.format}, the newest one that this version knows.")


def run_renew(settings: NatsSettings, output: Output) -> None:
    """Begin new epochs in a cell whose stream was restored."""
    scopes = _run(renew_cell(settings))
    if output is Output.JSON:
        write_json({"cell": settings.cell, "scopes": scopes})
        return
    write_message(
        f"Began new epochs in {scopes} {'scope' if scopes == 1 else 'scopes'}, and held the fleet. All processes of "
        f"cell {settings.cell} start again. Check the fleet, then run `forewarn release`."
    )


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
            ("format", str(status.format)),
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
    if status.members:
        write("")
        write_table(
            (
                Column("ROLE"),
                Column("HOST"),
                Column("PROCESS"),
                Column("VERSION"),
                Column("CLOCK"),
                Column("LAST SEEN"),
            ),
            map(_member_row, status.members),
        )
    if status.leases:
        write("")
        leases = ((each.name, each.holder, str(each.term), "yes" if each.is_held else "no") for each in status.leases)
        write_table((Column("LEASE"), Column("HOLDER"), Column("TERM"), Column("HELD")), leases)


def _member_row(member: CellMember) -> tuple[str, ...]:
    clock = "" if member.clock_offset is None else f"{member.clock_offset:+z.3f}s"
    seen = "not yet" if member.last_seen is None else moment_text(member.last_seen)
    return member.role, member.host or "", member.name, member.version, clock, seen


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


def _directory(settings: Settings) -> Path:
    return (settings.data or user_data_directory(os.environ)).absolute()


def _run(work: Coroutine[None, None, T]) -> T:
    try:
        return asyncio.run(work)
    except StoreMissing as error:
        raise CliError(ExitCode.NOT_FOUND, str(error)) from error
    except StoreUnavailable as error:
        raise CliError(ExitCode.UNREACHABLE, str(error)) from error
    except StoreError as error:
        raise CliError(ExitCode.REFUSED, str(error)) from error
