"""`forewarn simulate`: a table, JSON, the seed, and refused numbers."""

from pathlib import Path

import pytest

from forewarn.cli.errors import ExitCode
from tests.cli.in_process import InProcessMachine, run, run_json

SMALL = ("simulate", "--vms", "500", "--cells", "2", "--hours", "3")


@pytest.fixture
def machine(tmp_path: Path) -> InProcessMachine:
    return InProcessMachine(tmp_path)


def test_table_names_the_busiest_machines_and_the_seed(machine: InProcessMachine) -> None:
    shown = run(machine, *SMALL, "--seed", "7")
    assert shown.code == ExitCode.DONE
    assert "500 in 62 scopes, on 10 hosts, in 2 cells" in shown.stdout
    assert "The busiest host" in shown.stdout
    assert "The control node of the busiest cell" in shown.stdout
    assert "--seed 7" in shown.stderr


def test_json_is_the_same_for_the_same_seed(machine: InProcessMachine) -> None:
    first, second = (run_json(machine, *SMALL, "--seed", "7") for _ in range(2))
    assert first["busiest_control"]["saves"] > 0
    assert {**first, "measured": None} == {**second, "measured": None}
    assert run_json(machine, *SMALL)["seed"] >= 0


def test_wrong_numbers_are_refused(machine: InProcessMachine) -> None:
    none = run(machine, "simulate", "--vms", "0")
    assert none.code == ExitCode.USAGE
    assert none.stderr.endswith("Invalid value for '--vms': '0' is not allowed: use an integer of at least 1.\n")
    refused = run(machine, "simulate", "--vms", "2", "--cells", "3")
    assert refused.code == ExitCode.USAGE
    assert "3 cells" in refused.stderr
