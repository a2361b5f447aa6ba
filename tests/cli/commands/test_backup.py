"""`forewarn backup` on the command line: what it writes, shows and refuses."""

import stat
from pathlib import Path

import pytest

from forewarn.store.sqlite.backup import check_backup
from tests.cli.in_process import run, run_json, run_table, run_up
from tests.support.program import Machine


@pytest.fixture
def data(machine: Machine) -> Path:
    return machine.home / "data"


def test_backup_of_a_running_service_is_verified_and_private(machine: Machine, data: Path) -> None:
    with run_up(machine, data=data):
        file = machine.home / "monday.db"
        made = run_json(machine, "backup", "monday.db", "--data", str(data))
        tokens = run_json(machine, "token", "list", "--data", str(data))
        scopes = run_json(machine, "scope", "list", "--data", str(data))
    assert (made["file"], made["data"], made["bytes"]) == (str(file), str(data), file.stat().st_size)
    assert (made["scopes"], made["tokens"], made["campaigns"]) == (len(scopes), len(tokens), 0)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert check_backup(file) is not None


def test_backup_of_a_stopped_service_shows_what_it_contains(machine: Machine, data: Path) -> None:
    with run_up(machine, data=data):
        pass
    title, row = run_table(machine, "backup", "monday.db", "--data", str(data))
    assert title == ["FILE", "MADE AT", "KIB", "SCOPES", "CAMPAIGNS", "TOKENS", "JOURNAL"]
    assert (row[0], row[3], row[5]) == (str(machine.home / "monday.db"), "4", "1")


def test_existing_file_needs_replace(machine: Machine, data: Path) -> None:
    with run_up(machine, data=data):
        pass
    (machine.home / "monday.db").write_text("the only copy")
    ended = run(machine, "backup", "monday.db", "--data", str(data))
    assert (ended.code, "--replace" in ended.stderr) == (2, True)
    assert (machine.home / "monday.db").read_text() == "the only copy"
    assert run(machine, "backup", "monday.db", "--replace", "--data", str(data)).code == 0


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_data_on_nats_is_refused(machine: Machine, data: Path, command: str) -> None:
    """Former data in the directory must not pass for that of the cell."""
    with run_up(machine, data=data):
        pass
    run(machine, "backup", "monday.db", "--data", str(data))
    (machine.home / "forewarn.toml").write_text(f'store = "nats"\ndata = "{data}"\n')
    options = (command, "monday.db", "--replace" if command == "backup" else "--output=json")
    for given in ((), ("--data", str(data))):
        ended = run(machine, *options, *given)
        assert (ended.code, 'store = "nats"' in ended.stderr, "nats stream backup" in ended.stderr) == (2, True, True)
    assert list(data.glob("before-restore-*")) == []


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_copy_of_a_cell_in_another_directory_is_accepted(machine: Machine, data: Path, command: str) -> None:
    with run_up(machine, data=data):
        pass
    run(machine, "backup", "monday.db", "--data", str(data))
    (machine.home / "forewarn.toml").write_text('store = "nats"\ndata = "of-the-control-node"\n')
    options = (command, "monday.db", "--replace" if command == "backup" else "--output=json")
    ended = run(machine, *options, "--data", str(data))
    assert ended.code == 0, ended.stderr


def test_missing_data_and_a_missing_target_are_named(machine: Machine, data: Path) -> None:
    ended = run(machine, "backup", "monday.db", "--data", str(data))
    assert (ended.code, str(data) in ended.stderr, "--data" in ended.stderr) == (2, True, True)
    with run_up(machine, data=data):
        ended = run(machine, "backup", "/nowhere/monday.db", "--data", str(data))
    assert (ended.code, "no backup was written" in ended.stderr, "/nowhere" in ended.stderr) == (1, True, True)
