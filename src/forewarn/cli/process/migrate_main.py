"""Main program of `forewarn migrate`. Needs the extra `[cluster]`."""

import asyncio
from pathlib import Path

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.output import Output, write_json, write_message
from forewarn.cli.views.progress import StepProgressBars
from forewarn.cli.views.tables import Column, write_table
from forewarn.compose.backup import DatabaseNotFound, WrongOwner
from forewarn.compose.migration import ManualClockUsed, MigrationReport, migrate_to_cell, migrate_to_directory
from forewarn.files import UnsafeDirectory
from forewarn.settings.nats import NatsSettings
from forewarn.store.port import CellInUse, SaveUnknown, StoreError, StoreInUse, StoreMissing, StoreUnavailable

SHOWN_DIGITS = 16
"""How much of a checksum the table shows."""

NEXT = "Nothing was removed; repeat the command to continue."


def run_migrate(source: Path | NatsSettings, target: Path | NatsSettings, restart: bool, output: Output) -> None:
    """Migrate, and show what was copied."""
    with StepProgressBars() as steps:
        try:
            if isinstance(source, Path) and isinstance(target, NatsSettings):
                work = migrate_to_cell(source, target, restart=restart, on_progress=steps.show)
            else:
                assert isinstance(source, NatsSettings) and isinstance(target, Path)  # noqa: S101, PT018 - the command checks it
                work = migrate_to_directory(source, target, restart=restart, on_progress=steps.show)
            report = asyncio.run(work)
        except DatabaseNotFound as error:
            raise CliError(ExitCode.USAGE, f"--from: {error}") from error
        except StoreMissing as error:
            raise CliError(ExitCode.NOT_FOUND, str(error)) from error
        except (StoreInUse, CellInUse) as error:
            raise CliError(ExitCode.REFUSED, str(error)) from error
        except (StoreUnavailable, SaveUnknown) as error:
            raise CliError(ExitCode.UNREACHABLE, f"{error}. {NEXT}") from error
        except (ManualClockUsed, WrongOwner, UnsafeDirectory, StoreError) as error:
            raise CliError(ExitCode.REFUSED, str(error)) from error
        except OSError as error:
            raise CliError(ExitCode.FAILED, str(error)) from error
    _show(report, output)


def _show(report: MigrationReport, output: Output) -> None:
    if output is Output.JSON:
        write_json(report)
    else:
        rows = ((each.kind, f"{each.count:,}", each.checksum[:SHOWN_DIGITS]) for each in report.kinds)
        write_table((Column("KIND"), Column("COUNT"), Column("CHECKSUM")), rows)
    continued = "Continued and completed" if report.resumed else "Migrated"
    write_message(f"{continued}: {report.target} has everything of {report.source}, which is unchanged.")
    if report.emulator:
        write_message("The data is from the emulator: its VMs and events are treated as real ones from now on.")
