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


@pytest.mark.parametrize(
    ("content", "environ", "origin"),
    [
        ('platform = "simulated"\nstore = "sqlite"\n', {}, "{file}:2"),
        ('platform = "simulated"\n', {}, "{file}"),
        ('platform = "simulated"\n', {"FOREWARN_STORE": "sqlite"}, "FOREWARN_STORE"),
        (None, {"FOREWARN_PLATFORM": "simulated"}, "default settings"),
    ],
    ids=["file", "file without it", "variable", "no file"],
)
def test_settings_with_another_store_are_refused_with_their_origin(
    machine: InProcessMachine, tmp_path: Path, content: str | None, environ: dict[str, str], origin: str
) -> None:
    file = tmp_path / "cell.toml"
    if content is not None:
        file.write_text(content)
    refused = run(machine, "cluster", "status", *(() if content is None else ("--config", str(file))), **environ)
    assert refused.code == ExitCode.USAGE
    place = origin.format(file=file)
    advice = 'set store = "nats" and nats.servers in the file of --config'
    assert refused.stderr == f"forewarn: {place}: the store is sqlite; {advice}\n"


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
    assert (status["records"], status["owner"], len(status["replicas"])) == (
        2,
        None,
        1,
    )  # the first token and the policy
    assert "leader" in run(machine, "cluster", "status", "--config", config).stdout
    checked = run(machine, "cluster", "check", "--config", config)
    assert checked.code == ExitCode.DONE
    assert "sync_interval" in checked.stdout
    assert run_json(machine, "cluster", "check", "--config", config)["problems"] == []


def test_policy_is_shown_and_changed(machine: InProcessMachine, config: str) -> None:
    file = Path(config)
    file.write_text(file.read_text().replace("[nats]", "[policy]\nuser_operations = 3\n[nats]"))
    run(machine, "cluster", "init", "--config", config)
    file.write_text(file.read_text().replace("user_operations = 3", "user_operations = 4"))
    shown = run_json(machine, "cluster", "config", "--config", config)
    assert (shown["saved"], shown["changed"], shown["policy"]["user_operations"]) == (True, False, 3)
    changed = run(machine, "cluster", "config", "idle_after=2d", "--reason", "holidays", "--config", config)
    assert "idle_after" in changed.stdout
    assert "All control nodes apply it now." in changed.stderr
    again = run_json(machine, "cluster", "config", "idle_after=48h", "--config", config)
    assert (again["changed"], again["policy"]["idle_after"]) == (False, "2d")
    refused = run(machine, "cluster", "config", "speed=2", "--config", config)
    assert (refused.code, "user_operations" in refused.stderr) == (ExitCode.USAGE, True)
    wrong = run(machine, "cluster", "config", "idle_after=soon", "--config", config)
    assert (wrong.code, "duration" in wrong.stderr) == (ExitCode.USAGE, True)


def test_upgrade_of_a_new_cell_changes_nothing(machine: InProcessMachine, config: str) -> None:
    run(machine, "cluster", "init", "--config", config)
    report = run_json(machine, "cluster", "upgrade", "--config", config)
    assert report == {"settings": False, "policy": False, "format": 1, "switched": False}
    assert "format 1" in run(machine, "cluster", "upgrade", "--config", config).stderr


def test_restored_cell_is_renewed(machine: InProcessMachine, config: str) -> None:
    run(machine, "cluster", "init", "--config", config)
    before = run_json(machine, "cluster", "status", "--config", config)["id"]
    refused = run(machine, "cluster", "renew", "--config", config)
    assert (refused.code, "add --yes" in refused.stderr) == (ExitCode.USAGE, True)
    assert run_json(machine, "cluster", "renew", "--yes", "--config", config)["scopes"] == 0
    assert run_json(machine, "cluster", "status", "--config", config)["id"] != before
    assert (
        "Began new epochs in 0 scopes, and held the fleet."
        in run(machine, "cluster", "renew", "--yes", "--config", config).stderr
    )


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
