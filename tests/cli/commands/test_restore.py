"""`forewarn restore` on the command line: what it refuses, reports and leaves to the operator."""

from pathlib import Path

import pytest

from tests.cli.in_process import run, run_json, run_up
from tests.support.program import Machine


@pytest.fixture
def data(machine: Machine) -> Path:
    return machine.home / "data"


def at(data: Path) -> tuple[str, str]:
    return ("--data", str(data))


def test_restored_fleet_is_held_until_the_release(machine: Machine, data: Path) -> None:
    with run_up(machine, data=data):
        (event,) = run_json(machine, "event", "schedule", "Reboot", "web-0", "--in", "15m", *at(data))["created"]
        run(machine, "backup", "monday.db", *at(data))
        run(machine, "event", "cancel", event["id"], *at(data))
    ended = run(machine, "restore", "monday.db", *at(data))
    assert (ended.code, "each with a new epoch" in ended.stdout) == (0, True)
    assert "forewarn release" in ended.stderr
    with run_up(machine, data=data):
        run(machine, "clock", "advance", "1h", *at(data))
        (shown,) = run_json(machine, "event", "list", *at(data))
        assert (shown["id"], shown["status"]) == (event["id"], "Scheduled")
        (hold,) = run_json(machine, "hold", *at(data))
        assert (hold["scope"], hold["created_by"]) == (None, "restore")
        assert run(machine, "release", *at(data)).code == 0
        run(machine, "clock", "advance", "1s", *at(data))
        (shown,) = run_json(machine, "event", "list", *at(data))
        assert shown["status"] == "Started"


def test_restore_is_refused_while_a_service_runs(machine: Machine, data: Path) -> None:
    with run_up(machine, data=data):
        run(machine, "backup", "monday.db", *at(data))
        before = run_json(machine, "journal", *at(data))
        ended = run(machine, "restore", "monday.db", *at(data))
        assert (ended.code, "stop it first" in ended.stderr) == (3, True)
        assert run_json(machine, "journal", *at(data)) == before


def test_tokens_revoked_since_the_backup_are_listed_and_stay_revoked(machine: Machine, data: Path) -> None:
    with run_up(machine, data=data):
        made = run_json(machine, "token", "create", "mallory", *at(data))
        run(machine, "backup", "monday.db", *at(data))
        run(machine, "token", "revoke", made["token"]["id"], *at(data))
    report = run_json(machine, "restore", "monday.db", *at(data))
    assert report["revoked_tokens"] == [{"id": made["token"]["id"], "name": "mallory"}]
    assert Path(report["replaced"]).parent == data
    with run_up(machine, data=data):
        refused = run(machine, "vm", "list", *at(data), FOREWARN_TOKEN=made["secret"])
    assert refused.code == 3


def test_restore_on_another_machine_lists_the_tokens_that_are_valid(machine: Machine, data: Path) -> None:
    with run_up(machine, data=data):
        run(machine, "token", "create", "ann", *at(data))
        run(machine, "backup", "monday.db", *at(data))
    ended = run(machine, "restore", "monday.db", "--data", "elsewhere")
    assert ended.code == 0
    assert "ann (tk_" in ended.stderr
    assert "forewarn token revoke" in ended.stderr


@pytest.mark.parametrize("content", [None, "no database"])
def test_wrong_file_is_refused_and_nothing_is_created(machine: Machine, data: Path, content: str | None) -> None:
    file = machine.home / "monday.db"
    if content is not None:
        file.write_text(content)
    ended = run(machine, "restore", "monday.db", *at(data))
    assert (ended.code, str(file) in ended.stderr, data.exists()) == (2, True, False)
