"""The main programs of `forewarn cluster`: exit codes by the kind of failure."""

import pytest

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.output import Output
from forewarn.cli.process.cluster_main import run_status
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
