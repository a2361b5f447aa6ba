"""The main programs of `forewarn cluster`: exit codes by the kind of failure."""

import pytest

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.output import Output
from forewarn.cli.process.cluster_main import _member_row, run_status
from forewarn.compose.cell_status import CellMember
from forewarn.settings.nats import NatsSettings
from forewarn.store.nats.stream import InvalidServer
from forewarn.store.port import StoreError, StoreMissing, StoreUnavailable


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreMissing(("nats://h",), "main"), ExitCode.NOT_FOUND),
        (StoreUnavailable("nats://h", "no server answers"), ExitCode.UNREACHABLE),
        (InvalidServer("2.11.0"), ExitCode.REFUSED),
    ],
)
def test_failure_has_its_exit_code(monkeypatch: pytest.MonkeyPatch, error: StoreError, code: ExitCode) -> None:
    async def fail(settings: NatsSettings) -> None:
        raise error

    monkeypatch.setattr("forewarn.cli.process.cluster_main.read_status", fail)
    with pytest.raises(CliError) as refusal:
        run_status(NatsSettings(), Output.TABLE)
    assert (refusal.value.code, refusal.value.message) == (code, str(error))


@pytest.mark.parametrize(("offset", "text"), [(-0.0001, "+0.000s"), (-0.25, "-0.250s"), (None, "")])
def test_offset_of_a_clock_has_no_negative_zero(offset: float | None, text: str) -> None:
    member = CellMember(
        role="control", host=None, name="c-1", version="1", format=1, clock_offset=offset, last_seen=None
    )
    assert _member_row(member)[4] == text
