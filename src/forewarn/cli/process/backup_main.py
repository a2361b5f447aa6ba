"""Main programs of `forewarn backup` and `forewarn restore`. Need the extra `[server]`."""

import asyncio
from datetime import datetime
from pathlib import Path

import msgspec

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.output import Output, moment_text, write, write_json, write_message
from forewarn.cli.views.progress import KIB, StepProgressBars
from forewarn.cli.views.tables import Column, write_table
from forewarn.clock import SystemClock
from forewarn.compose.backup import BackupExists, DatabaseNotFound, WrongOwner, back_up
from forewarn.compose.restore import BackupNotFound, InvalidBackup, NamedToken, RestoreReport, restore_backup
from forewarn.core.errors import CoreError
from forewarn.files import UnsafeDirectory
from forewarn.fleet.errors import FleetError
from forewarn.store.port import RecordKind, StoreError, StoreInUse

MAX_LISTED = 20
"""How many tokens, holds or events a message lists; JSON has all."""


class BackupReport(msgspec.Struct, frozen=True, kw_only=True):
    """A backup in JSON output."""

    file: str
    data: str
    made_at: datetime
    bytes: int
    scopes: int
    campaigns: int
    tokens: int
    journal: int


def run_backup(directory: Path, file: Path, replace: bool, output: Output) -> None:
    """Write the backup and show what it contains."""
    now = SystemClock().now()
    with StepProgressBars() as steps:
        try:
            content = back_up(directory, file, replace=replace, now=now, on_progress=steps.show)
        except DatabaseNotFound as error:
            raise CliError(ExitCode.USAGE, f"{error}; choose the data directory of a service with --data") from error
        except BackupExists as error:
            raise CliError(ExitCode.USAGE, f"FILE: {error}") from error
        except (WrongOwner, UnsafeDirectory, OSError, StoreError) as error:
            raise CliError(ExitCode.FAILED, f"no backup was written: {error}") from error
    report = BackupReport(
        file=str(file),
        data=str(directory),
        made_at=now,
        bytes=file.stat().st_size,
        scopes=content.count(RecordKind.SCOPE),
        campaigns=content.count(RecordKind.CAMPAIGN),
        tokens=content.count(RecordKind.TOKEN),
        journal=content.journal_rows,
    )
    if output is Output.JSON:
        write_json(report)
        return
    titles = ("FILE", "MADE AT", "KIB", "SCOPES", "CAMPAIGNS", "TOKENS", "JOURNAL")
    counts = (report.scopes, report.campaigns, report.tokens, report.journal)
    row = (report.file, moment_text(now), f"{report.bytes // KIB:,}", *(f"{count:,}" for count in counts))
    write_table(tuple(map(Column, titles)), [row])
    write_message("The backup is complete: SQLite's integrity check passed, and it has every record of the original.")


def run_restore(directory: Path, file: Path, output: Output) -> None:
    """Restore the backup, and show what an operator must look at."""
    with StepProgressBars() as steps:
        try:
            report = asyncio.run(restore_backup(file, directory, on_progress=steps.show))
        except StoreInUse as error:
            message = f"{error.owner} uses {directory}, and a running service would not notice: stop it first"
            raise CliError(ExitCode.REFUSED, f"{message}, for example with `systemctl stop forewarn`") from error
        except (BackupNotFound, InvalidBackup) as error:
            raise CliError(ExitCode.USAGE, f"FILE: {error}") from error
        except (WrongOwner, UnsafeDirectory, OSError, StoreError, CoreError, FleetError) as error:
            raise CliError(ExitCode.FAILED, f"nothing was restored: {error}") from error
    if output is Output.JSON:
        write_json(report)
    else:
        made = "" if report.made_at is None else f", the backup of {moment_text(report.made_at)}"
        write(f"Restored {report.file}{made}, into {report.data}: {report.scopes} scopes, each with a new epoch.")
    for message in _advice(report):
        write_message(message)


def _advice(report: RestoreReport) -> list[str]:
    lines: list[str] = []
    if report.replaced is not None:
        lines.append(f"The replaced data is in {report.replaced}.")
    if report.replaced_problem is not None:
        lines.append(f"It could not be read, so later changes are unknown: {report.replaced_problem}")
    if report.revoked_tokens:
        lines.append(f"Revoked since the backup, and revoked again: {_token_text(report.revoked_tokens)}.")
    if report.unconfirmed_tokens:
        lines.append(
            "The replaced data does not tell whether these tokens were revoked since the backup. They are valid: "
            f"{_token_text(report.unconfirmed_tokens)}. Revoke those that should not be: `forewarn token revoke TOKEN`."
        )
    if report.lost_tokens:
        lines.append(f"Created since the backup, and not valid any more: {_token_text(report.lost_tokens)}.")
    for hold in report.lost_holds[:MAX_LISTED]:
        what = "the whole fleet" if hold.scope is None else f"scope {hold.scope}"
        lines.append(f"The backup does not have the hold of {hold.by} on {what}: {hold.reason}")
    lines += (
        f"Event {work.event} was under way on {work.scope}/{work.vm}, and may have been done since. Find out, then use "
        "`forewarn event resolve` or `forewarn event retry`."
        for work in report.unknown_work[:MAX_LISTED]
    )
    lines += (
        f"Canceled, because a hold does not stop it and it may have happened since: event {work.event} of "
        f"{work.scope}/{work.vm}. Request it again if it is still needed."
        for work in report.canceled_events[:MAX_LISTED]
    )
    lists = (report.lost_holds, report.unknown_work, report.canceled_events)
    if hidden := sum(max(len(each) - MAX_LISTED, 0) for each in lists):
        lines.append(f"{hidden} more are not listed here: `-o json` lists all.")
    lines.append("All planned maintenance is held. Start the service, check the fleet, then run `forewarn release`.")
    return lines


def _token_text(tokens: tuple[NamedToken, ...]) -> str:
    named = [f"{token.name} ({token.id})" for token in tokens[:MAX_LISTED]]
    return ", ".join([*named, f"and {len(tokens) - MAX_LISTED} more"] if len(tokens) > MAX_LISTED else named)
