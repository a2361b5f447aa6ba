"""`forewarn migrate`: from a data directory into a cell and back, with clear errors."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from forewarn.cli.errors import ExitCode
from tests.cli.in_process import InProcessMachine, run, run_json
from tests.compose.migrated_data import fill_directory, read_directory
from tests.support.nats_servers import NatsCluster, run_nats

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    with run_nats(tmp_path_factory.mktemp("nats")) as cluster:
        yield cluster


@pytest.fixture
def machine(tmp_path: Path) -> InProcessMachine:
    return InProcessMachine(tmp_path)


def test_fleet_moves_there_and_back(machine: InProcessMachine, nats_server: NatsCluster, tmp_path: Path) -> None:
    before = asyncio.run(fill_directory(tmp_path / "old"))
    config = tmp_path / "forewarn.toml"
    config.write_text("[nats]\nreplicas = 1\n")
    url, cell = nats_server.servers[0].url, f"c-{token_hex(4)}"
    common = ("--cell", cell, "--config", str(config))
    there = run_json(machine, "migrate", "--from", str(tmp_path / "old"), "--to", url, *common)
    assert {each["kind"]: each["count"] for each in there["kinds"]} == {
        "campaign": 1,
        "fleet": 1,
        "journal": len(before.journal),
        "scope": 2,
        "token": 1,
    }
    assert (there["source"], there["target"]) == (str(tmp_path / "old"), f"cell {cell} at {url}")
    back = run(machine, "migrate", "--from", url, "--to", str(tmp_path / "new"), *common)
    assert back.code == ExitCode.DONE, back.stderr
    assert there["kinds"][0]["checksum"][:16] in back.stdout
    assert "is unchanged" in back.stderr
    after = asyncio.run(read_directory(tmp_path / "new"))
    assert (after.records, after.journal) == (before.records, before.journal)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--from", "a", "--to", "b"), ExitCode.USAGE, "one of --from and --to must be a directory"),
        (("--from", "nats://h", "--to", "nats://h"), ExitCode.USAGE, "one of --from and --to must be a directory"),
        (("--from", "nothing", "--to", "nats://127.0.0.1:1"), ExitCode.USAGE, "has no forewarn.db"),
        (("--from", "a", "--to", "nats://user:secret@h"), ExitCode.USAGE, "--to"),
        (("--from", "a", "--to", "nats://h", "--cell", "a.b"), ExitCode.USAGE, "--cell"),
    ],
)
def test_wrong_usage_is_explained(
    machine: InProcessMachine, arguments: tuple[str, ...], code: ExitCode, message: str
) -> None:
    refused = run(machine, "migrate", *arguments)
    assert refused.code == code
    assert message in refused.stderr
