"""`forewarn fault`: set, list and clear; refused by a service for real VMs."""

import http.client
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.core.fault import FaultKind, parse_fault_kind
from tests.cli.in_process import UpService, run, run_json, run_production, run_table, run_up
from tests.support.program import Machine


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machine, UpService]]:
    machine = Machine(tmp_path_factory.mktemp("emulator"))
    with run_up(machine) as up:
        yield machine, up


@pytest.fixture
def machine(emulator: tuple[Machine, UpService]) -> Machine:
    """Clear the faults that earlier tests left."""
    run(emulator[0], "fault", "clear", "--all")
    return emulator[0]


def status(url: str) -> int:
    """Poll for events as a VM does."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    try:
        connection.request("GET", "/metadata/scheduledevents?api-version=2020-07-01", headers={"Metadata": "true"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_fault_applies_to_the_given_number_of_requests(emulator: tuple[Machine, UpService], machine: Machine) -> None:
    _, up = emulator
    title, row = run_table(machine, "fault", "set", "410", "--vm", "web-0", "--times", "2")
    assert title == ["FAULT", "KIND", "VM", "HITS", "ENDS", "BY", "SET"]
    assert row[1:6] == ["status-410", "web/web-0", "0 of 2", "after 2 requests", "admin"]
    assert [status(up.guest_urls["web/web-0"]) for _ in range(3)] == [410, 410, 200]
    ended = run_json(machine, "journal", "--vm", "web-0", "--action", "fault-ended")
    assert ended[-1]["facts"] == {
        "fault": row[0],
        "kind": "status-410",
        "vm": "web/web-0",
        "times": "2",
        "hits": "2",
    }


def test_faults_are_listed_and_cleared(machine: Machine) -> None:
    assert run(machine, "fault", "list").stderr == "No fault is set.\n"
    first = run_json(machine, "fault", "set", "wrong-date", "--amount", "-1h30m")
    second = run_json(machine, "fault", "set", "SLOW", "--for", "90s", "--reason", "patience")
    assert run_json(machine, "fault", "list") == [first, second]
    assert [row[:3] for row in run_table(machine, "fault", "list")[1:]] == [
        [first["id"], "wrong-date -1h30m", "all"],
        [second["id"], "slow 5s", "all"],
    ]
    assert run(machine, "fault", "clear", first["id"].lower()).code == 0
    assert run(machine, "fault", "clear", "--all").stderr == f"Cleared: {second['id']}.\n"
    assert run(machine, "fault", "clear", "--all").stderr == "No fault was set.\n"


def test_reference_and_help_name_every_fault(machine: Machine) -> None:
    page = (Path(__file__).parents[3] / "docs/howto/inject-faults.md").read_text()
    named = re.findall(r"^\| `([a-z0-9-]+)` \|", page, re.MULTILINE)
    assert [parse_fault_kind(word) for word in named] == list(FaultKind)
    said = " ".join(run(machine, "fault", "set", "--help").stdout.split())
    assert [word for word in named if not re.search(rf"\b{word}\b", said)] == []


WRONG = {
    "unknown kind": (("set", "411"), 2, "unknown fault '411': use status-410, status-429"),
    "invalid duration": (("set", "slow", "--for", "soon"), 2, "'soon' is not a duration"),
    "amount without a delay": (("set", "reset", "--amount", "1s"), 3, "reset has no amount"),
    "zero time": (("set", "slow", "--times", "0"), 2, "--times"),
    "unknown VM": (("set", "slow", "--vm", "web-99"), 4, "there is no VM web-99"),
    "unknown fault": (("clear", "F99"), 4, "there is no fault F99, or it has ended"),
    "which": (("clear",), 2, "specify FAULT, such as `forewarn fault clear F1`, or --all"),
    "both": (("clear", "F1", "--all"), 2, "specify FAULT"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_is_reported(machine: Machine, case: str) -> None:
    arguments, code, sentence = WRONG[case]
    ended = run(machine, "fault", *arguments)
    assert (ended.code, sentence in ended.stderr) == (code, True), ended.stderr


def test_service_for_real_vms_refuses_faults(machine: Machine, tmp_path: Path) -> None:
    with run_production(tmp_path):
        ended = run(machine, "fault", "set", "410", "--data", str(tmp_path / "data"))
    assert (ended.code, "faults can be set only in the emulator" in ended.stderr) == (3, True)
