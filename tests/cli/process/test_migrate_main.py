"""The main program of `forewarn migrate`: exit codes by the kind of failure, and what it reports."""

from pathlib import Path

import pytest

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.output import Output
from forewarn.cli.process import migrate_main
from forewarn.compose.backup import DatabaseNotFound
from forewarn.compose.migration import ManualClockUsed, MigrationReport
from forewarn.core.base_error import BaseError
from forewarn.settings.nats import NatsSettings
from forewarn.store.migration import KindSummary, TargetUsed
from forewarn.store.port import CellInUse, SaveUnknown, StoreInUse, StoreMissing, StoreUnavailable

OLD = Path("/old")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DatabaseNotFound(OLD), ExitCode.USAGE),
        (StoreMissing(("nats://h",), "main"), ExitCode.NOT_FOUND),
        (StoreInUse(OLD, 7), ExitCode.REFUSED),
        (CellInUse("main", "process 7"), ExitCode.REFUSED),
        (ManualClockUsed("/old", "2030-01-01 00:00:00Z"), ExitCode.REFUSED),
        (TargetUsed("cell main", "it has 7 messages"), ExitCode.REFUSED),
        (StoreUnavailable("nats://h", "no server answers"), ExitCode.UNREACHABLE),
        (SaveUnknown("nats://h", "no answer"), ExitCode.UNREACHABLE),
        (OSError("no space left"), ExitCode.FAILED),
    ],
)
def test_failure_has_its_exit_code(monkeypatch: pytest.MonkeyPatch, error: BaseError | OSError, code: ExitCode) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(migrate_main, "migrate_to_cell", fail)
    with pytest.raises(CliError) as refusal:
        migrate_main.run_migrate(OLD, NatsSettings(), restart=False, output=Output.TABLE)
    assert refusal.value.code == code


def test_report_names_both_sides_and_the_emulator(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kinds = (KindSummary(kind="scope", count=5_000, checksum="0123456789abcdef" * 4),)
    report = MigrationReport(source="/old", target="cell main", resumed=True, emulator=True, kinds=kinds)

    async def succeed(*_: object, **__: object) -> MigrationReport:
        return report

    monkeypatch.setattr(migrate_main, "migrate_to_directory", succeed)
    migrate_main.run_migrate(NatsSettings(), OLD, restart=False, output=Output.TABLE)
    shown = capfd.readouterr()
    assert shown.out.split() == ["KIND", "COUNT", "CHECKSUM", "scope", "5,000", "0123456789abcdef"]
    assert shown.err.startswith("Continued and completed: cell main has everything of /old")
    assert "emulator" in shown.err
