"""`forewarn clock`: show the time of the service, and move a manual clock."""

import json
import re
from pathlib import Path

from tests.cli.in_process import run, run_json, run_up
from tests.cli.service_machine import ServiceMachine
from tests.support.program import Machine


def test_clock_is_shown_and_advanced(service_machine: ServiceMachine) -> None:
    run_json(service_machine, "event", "schedule", "Preempt", service_machine.take_vm(), "--in", "3m")
    before = run_json(service_machine, "clock", "show")
    assert before["manual"]
    moved = run(service_machine, "clock", "advance", "--to-next")
    now, following = moved.stdout.splitlines()
    assert now == before["next_change_at"].replace("T", " ")
    assert following.startswith("next: ")
    assert moved.stderr.startswith(f"{now} ")


def test_clock_advance_shows_changes_or_where_to_find_them(machine: Machine) -> None:
    with run_up(machine):
        run(machine, "vm", "restart", "db-0")
        few = run(machine, "clock", "advance", "1h").stderr.splitlines()
        for _ in range(4):
            run(machine, "event", "schedule", "Freeze", "--scope", "web")
        *_, last = many = run(machine, "clock", "advance", "1h").stderr.splitlines()
        since = re.search(r"forewarn journal (.*)", last)
        assert since is not None
        rest = json.loads(run(machine, "journal", *since[1].split(), "--action", "completed", "-o", "json").stdout)
    assert [line.split(" in ")[1] for line in few] == [
        "db-0 started: db-0 (due)",
        "db-0 completed: db-0 (took: 60.000s)",
    ]
    assert (len(many), rest[-1]["record_id"]) == (21, "web")


def test_real_clock_cannot_be_advanced(machine: Machine) -> None:
    with run_up(machine, manual_time=False):
        assert run_json(machine, "clock", "show")["manual"] is False
        refused = run(machine, "clock", "advance", "15m")
    assert (refused.code, refused.stderr) == (
        3,
        "forewarn: the service runs in real time: start it with --manual-time to move its clock\n",
    )


def test_speed_is_kept_over_a_restart_until_the_setting_changes(machine: Machine, tmp_path: Path) -> None:
    where = ("--data", str(data := tmp_path / "data"))
    with run_up(machine, data=data):
        assert run(machine, "clock", "speed", "60", *where).stdout == "speed: 60\n"
    with run_up(machine, data=data):
        assert run_json(machine, "clock", "show", *where)["speed"] == 60
        run(machine, "event", "schedule", "Reboot", "web-0", "--in", "15m", "--unannounced", *where)
        ended = run(machine, "clock", "advance", "16s", *where).stderr
        assert "web completed: web-0 (took: 1.000s)" in ended
    with run_up(machine, data=data, FOREWARN_SPEED="10"):
        assert run_json(machine, "clock", "show", *where)["speed"] == 10


def test_speed_is_a_number_above_zero(machine: Machine) -> None:
    for argument in ("0", "-1", "fast", "1e9"):
        ended = run(machine, "clock", "speed", argument)
        assert (ended.code, ended.stdout) == (2, ""), argument


def test_distance_is_a_duration_or_to_the_next_change(machine: Machine) -> None:
    for arguments in ((), ("1h", "--to-next"), ("-1h",), ("--unknown",), ("soon",)):
        ended = run(machine, "clock", "advance", *arguments)
        assert (ended.code, ended.stdout) == (2, ""), arguments
