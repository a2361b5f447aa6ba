"""`forewarn journal`: filters, limits and messages."""

import re
from typing import Any

import pytest

from tests.cli.in_process import CommandResult, run, run_json
from tests.cli.service_machine import ServiceMachine, schedule_event


def _table(ended: CommandResult) -> list[list[str]]:
    return [re.split(r"  +", line) for line in ended.stdout.splitlines()]


def test_journal_shows_why_a_vm_paused(service_machine: ServiceMachine) -> None:
    vm = service_machine.take_vm()
    run_json(service_machine, "clock", "advance", "1h")
    id_ = schedule_event(service_machine, "Freeze", vm, "--in", "20m", "--reason", "new switch")
    run(service_machine, "event", "approve", id_)
    now = run_json(service_machine, "clock", "show")["now"]
    run_json(service_machine, "clock", "advance", "2h")
    ended = run(service_machine, "journal", "--vm", vm, "--at", now[11:16])
    assert ended.code == 0
    assert [row[1] for row in _table(ended)[1:]][:3] == ["scheduled", "approved", "started"]
    assert "new switch" in ended.stdout
    assert f"For details: forewarn event show {id_[:8]}" in ended.stderr
    assert [line["action"] for line in run_json(service_machine, "journal", "--vm", vm, "--since", "1h")] == []
    assert {line["action"] for line in run_json(service_machine, "journal", "--event", id_[:8], "--since", "3h")} >= {
        "started",
        "completed",
    }


@pytest.mark.parametrize(
    ("options", "fits"),
    [
        (("--action", "approved", "--all"), lambda line: line["action"] == "approved"),
        (("--scope", "batch", "--all"), lambda line: line["record_id"] == "batch"),
        (("--actor", "admin", "--all"), lambda line: line["actor"] == "admin"),
    ],
    ids=["did", "scope", "by"],
)
def test_journal_is_filtered(service_machine: ServiceMachine, options: tuple[str, ...], fits: Any) -> None:
    run(service_machine, "event", "approve", schedule_event(service_machine, "Freeze", service_machine.take_vm()))
    everything = run_json(service_machine, "journal", "--all")
    assert run_json(service_machine, "journal", *options) == [line for line in everything if fits(line)] != []


def test_journal_shows_the_newest_entries_in_order(service_machine: ServiceMachine) -> None:
    everything = run_json(service_machine, "journal", "--all")
    assert [line["position"] for line in everything] == sorted(line["position"] for line in everything)
    assert run_json(service_machine, "journal", "--newest", "3") == everything[-3:]
    for _ in range(60 - min(len(everything), 60)):
        run_json(service_machine, "clock", "advance", "1s")
    short = run(service_machine, "journal")
    assert len(short.stdout.splitlines()) == 51
    assert short.stderr.endswith("Showing the newest 50 entries; for more use --since, --newest or --all.\n")


def test_journal_without_matching_entries(service_machine: ServiceMachine) -> None:
    ended = run(service_machine, "journal", "--actor", "nobody")
    assert (ended.code, ended.stdout, ended.stderr) == (0, "", "No matching journal entries.\n")


def test_journal_shows_the_searched_period_without_entries(service_machine: ServiceMachine) -> None:
    run_json(service_machine, "clock", "advance", "1h")
    ended = run(service_machine, "journal", "--since", "30m", "--until", "20m")
    assert ended.code == 0
    assert re.fullmatch(
        r"No matching journal entries\.\n"
        r"Searched from [-0-9: ]+Z until [-0-9: ]+Z; the service's time is [-0-9: ]+Z\.\n",
        ended.stderr,
    )
