"""`forewarn cluster`: create, show and check a cell."""

from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from forewarn.cli.errors import ExitCode
from forewarn.store.nats import connection
from tests.cli.in_process import InProcessMachine, run, run_json
from tests.support.nats_servers import NatsCluster, run_nats

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    with run_nats(tmp_path_factory.mktemp("nats")) as cluster:
        yield cluster


@pytest.fixture
def machine(tmp_path: Path) -> InProcessMachine:
    return InProcessMachine(tmp_path)


@pytest.fixture
def config(nats_server: NatsCluster, tmp_path: Path) -> str:
    file = tmp_path / "forewarn.toml"
    url = nats_server.servers[0].url
    cell = f"c-{token_hex(4)}"
    file.write_text(
        f'store = "nats"\nplatform = "simulated"\n[nats]\nservers = ["{url}"]\ncell = "{cell}"\nreplicas = 1\n'
    )
    return str(file)


def test_cell_is_created_shown_and_checked(machine: InProcessMachine, config: str) -> None:
    missing = run(machine, "cluster", "status", "--config", config)
    assert missing.code == ExitCode.NOT_FOUND
    assert "forewarn cluster init" in missing.stderr
    created = run(machine, "cluster", "init", "--config", config).stderr
    assert "Created cell" in created
    assert "Wrote the first admin token to" in created
    again = run_json(machine, "cluster", "init", "--config", config)
    assert (again["created"], again["token_file"]) == (False, None)
    status = run_json(machine, "cluster", "status", "--config", config)
    assert (status["records"], status["owner"], len(status["replicas"])) == (1, None, 1)  # the first token
    assert "leader" in run(machine, "cluster", "status", "--config", config).stdout
    checked = run(machine, "cluster", "check", "--config", config)
    assert checked.code == ExitCode.DONE
    assert "sync_interval" in checked.stdout
    assert run_json(machine, "cluster", "check", "--config", config)["problems"] == []


def test_check_with_problems_fails(machine: InProcessMachine, config: str) -> None:
    run(machine, "cluster", "init", "--config", config)
    file = Path(config)
    file.write_text(file.read_text().replace("replicas = 1", "replicas = 3"))
    checked = run(machine, "cluster", "check", "--config", config)
    assert checked.code == ExitCode.FAILED
    assert "num_replicas = 1" in checked.stdout


def test_unreachable_servers_are_named(
    machine: InProcessMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.5)
    file = tmp_path / "forewarn.toml"
    file.write_text('store = "nats"\nplatform = "simulated"\n[nats]\nservers = ["nats://127.0.0.1:1"]\n')
    refused = run(machine, "cluster", "status", "--config", str(file))
    assert refused.code == ExitCode.UNREACHABLE
    assert "nats://127.0.0.1:1" in refused.stderr


def test_other_store_is_refused(machine: InProcessMachine, tmp_path: Path) -> None:
    file = tmp_path / "forewarn.toml"
    file.write_text('platform = "simulated"\n')
    refused = run(machine, "cluster", "init", "--config", str(file))
    assert refused.code == ExitCode.USAGE
    assert 'store = "nats"' in refused.stderr
