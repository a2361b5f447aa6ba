"""Scenarios of `forewarn scenario run`: the backend, the progress of the steps, and the results.

Processes: for Ctrl-C.
"""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.in_process import run, run_json, run_on_terminal, run_production, run_up
from tests.cli.sample_scenarios import GOOD, WEB
from tests.support.program import GUARD, PROGRAM, Machine


def test_scenario_runs_on_the_core(machine: Machine, stories: Path) -> None:
    (result,) = run_json(machine, "scenario", "run", "good.txt", "--core")
    assert (result["name"], result["backend"], result["verdict"]) == ("good", "the rules", "passed")
    assert [step["text"] for step in result["steps"]] == [
        line.partition(" →")[0] for line in GOOD.splitlines() if not line.startswith("#")
    ]
    assert result["steps"][-1]["facts"][-1] == "E1 Completed after 1m, incarnation 4"


def test_difference_is_shown_and_exits_with_1(machine: Machine, stories: Path) -> None:
    ended = run(machine, "scenario", "run", "good.txt", "different.txt", "--core")
    assert ended.code == 1
    assert [line.split("  ")[0] for line in ended.stdout.splitlines()[:3]] == ["SCENARIO", "good", "different"]
    assert ended.stdout.splitlines()[3:] == [
        "different, line 6: restart web-0",
        "    expected:  E1 Started",
        "    happened:  E1 Scheduled not_before 10:15 by user, incarnation 2",
        "different, line 7: expect E1 Completed within 1m",
        "    expected:  E1 Completed within 1m",
        "    happened:  nothing",
    ]
    assert "  ✗ expect E1 Completed within 1m\n" in ended.stderr


def test_missing_facts_after_the_arrow_are_explained(machine: Machine) -> None:
    (machine.home / "open.txt").write_text(f"{WEB}wait 5m →\n")
    ended = run(machine, "scenario", "run", "open.txt", "--core")
    assert (ended.code, ended.stdout.splitlines()[2:]) == (
        1,
        [
            "open, line 6: wait 5m",
            "    expected:  (no facts after the arrow; write `nothing` if nothing follows)",
            "    happened:  nothing",
        ],
    )


def test_scenario_in_real_time_shows_its_waits_and_their_limits(machine: Machine) -> None:
    """Waits with a manual clock are not shown; a scenario without a title has the name of its file."""
    (machine.home / "slow.txt").write_text(f"{WEB.partition(chr(10))[2]}wait 10m\nexpect nothing within 10m at 10:20\n")
    ended = run(machine, "scenario", "run", "slow.txt", "--speed", "1200")
    assert (ended.code, [line for line in ended.stderr.splitlines() if "vm" not in line]) == (
        0,
        [
            "slow  (up to 2s)",
            "  ✓ platform automatic",
            "  ✓ scope web availability-set  →  web created",
            "  … wait 10m  (up to 1s)",
            "  ✓ wait 10m",
            "  … expect nothing within 10m at 10:20  (up to 1s)",
            "  ✓ expect nothing within 10m at 10:20",
        ],
    )
    at_once = run(machine, "scenario", "run", "slow.txt", "--core")
    assert (at_once.code, at_once.stderr.splitlines()[0], "up to" in at_once.stderr) == (0, "slow", False)


def test_scenario_that_cannot_run_exits_with_1_and_names_the_line(machine: Machine) -> None:
    (machine.home / "refused.txt").write_text(f"{WEB}evict web-0\n")
    (result,) = json.loads(run(machine, "scenario", "run", "refused.txt", "--core", "-o", "json").stdout)
    assert result["verdict"] == "invalid"
    assert result["error"].startswith("line 6, column 7, at 'web-0': web-0 has regular priority")


def test_terminal_shows_the_running_step_cut_to_the_width(machine: Machine, stories: Path) -> None:
    lines = run_on_terminal(machine, "scenario", "run", "good.txt", "--core", columns=60)
    assert [line.removeprefix("\x1b[K") for line in lines if "expect" in line] == [
        "  … expect E1 Completed within 20m",
        "  ✓ expect E1 Completed within 20m  →  E1 Started (due), i…",
    ]
    assert [line.split()[:3] for line in lines[-1:]] == [["good", "\x1b[32mpassed\x1b[0m", "6"]]


def test_terminal_shows_the_time_limit_even_if_the_line_is_cut(machine: Machine) -> None:
    (machine.home / "slow.txt").write_text(f"{WEB}expect nothing within 10m at +0d 10:00\n")
    lines = run_on_terminal(machine, "scenario", "run", "slow.txt", "--speed", "1200", columns=40)
    assert "\x1b[K  … expect nothing within …  (up to 1s)" in lines


def test_without_a_service_scenarios_run_in_a_private_one(machine: Machine, stories: Path) -> None:
    ended = run(machine, "scenario", "run", "service-off-for-a-day", "good.txt", "eviction-8s")
    assert ended.code == 0, ended.stderr
    table = [line.split() for line in ended.stdout.splitlines()]
    assert [row[0] for row in table] == ["SCENARIO", "service-off-for-a-day", "good", "eviction-8s"]
    assert all(line.endswith("a private service") for line in ended.stdout.splitlines()[1:])
    assert "✓ expect web disabled within 1d  →  web disabled (no request for 1d)" in ended.stderr


def test_scenarios_run_in_the_running_service(machine: Machine, stories: Path) -> None:
    """Its own fleet also has a scope web."""
    with run_up(machine) as up:
        before = run_json(machine, "vm", "list")
        results = run_json(machine, "scenario", "run", "good.txt", "service-off-for-a-day", "cancelled-event")
        assert [(each["backend"], each["verdict"]) for each in results] == [
            (up.ready["operator_url"], "passed"),
            ("a private service", "passed"),
            (up.ready["operator_url"], "passed"),
        ]
        assert run_json(machine, "vm", "list") == before
        (result,) = run_json(machine, "scenario", "run", "good.txt", "--private")
        assert (result["backend"], result["verdict"]) == ("a private service", "passed")


def test_scenario_that_the_speed_would_change_runs_in_a_private_service(machine: Machine) -> None:
    with run_up(machine, manual_time=False, FOREWARN_SPEED="60"):
        ended = run(machine, "scenario", "run", "eviction-8s")
    assert ended.code == 0
    assert "eviction-8s runs in a private service: an event with a notice of 8s would start too late" in ended.stderr


def test_service_for_real_vms_refuses_scenarios(machine: Machine, stories: Path) -> None:
    with run_production(machine.home) as service:
        before = list(service.api.scopes())
        where = {"FOREWARN_DATA": str(machine.home / "data")}
        ended = run(machine, "scenario", "run", "good.txt", **where)
        assert (ended.code, ended.stdout) == (3, "")
        assert "is a service for real VMs; scenarios run only in an emulator" in ended.stderr
        assert list(service.api.scopes()) == before
        assert run(machine, "scenario", "run", "good.txt", "--private", **where).code == 0


@pytest.mark.process
def test_interrupted_scenario_removes_its_scopes(machine: Machine) -> None:
    (machine.home / "long.txt").write_text(f"{WEB}schedule Reboot web-0 in 1d\nexpect E1 Started within 2d\n")
    with machine.up("--ephemeral", "--fleet", _no_fleet(machine)):
        playing = subprocess.Popen(
            [PROGRAM, "scenario", "run", "long.txt"],
            cwd=machine.home,
            env=machine.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert playing.stderr is not None
        for line in playing.stderr:
            if "schedule" in line:
                break
        playing.send_signal(signal.SIGINT)
        playing.communicate(timeout=GUARD)
        assert playing.returncode == 130
        assert run_json(machine, "scope", "list") == []


def _no_fleet(machine: Machine) -> str:
    file = machine.home / "fleet.toml"
    file.write_text("scopes = []\n")
    return str(file)
