"""Following events until they end, live and in lines.

Processes: for Ctrl-C, for a service that is killed, and for one whose platform is a program.
"""

import json
import re
import signal
import sys
from collections.abc import Iterator

import pytest

from tests.cli.in_process import Script, run, run_json, run_live
from tests.cli.lines import lines
from tests.cli.service_machine import FLEET, ServiceMachine
from tests.cli.terminal import Terminal
from tests.support.processes import free_ports
from tests.support.program import Machine

CTRL_C = "\x03"


def _event_of(machine: Machine, vm: str) -> str:
    ((event),) = run_json(machine, "event", "list", "--vm", vm)
    id_: str = event["id"]
    return id_


def test_following_an_event_writes_lines(service_machine: ServiceMachine) -> None:
    vm = service_machine.take_vm()
    ids = []

    def script() -> Script:
        yield "Scheduled"
        ids.append(_event_of(service_machine, vm))
        run_json(service_machine, "clock", "advance", "20m")
        yield "Started"
        run_json(service_machine, "clock", "advance", "1m")

    followed = run_live(
        service_machine, "event", "schedule", "Freeze", vm, "--in", "20m", "--duration", "9s", "--wait", script=script()
    )
    short = ids[0][:8]
    first, second, third = followed.stdout.splitlines()
    assert re.fullmatch(rf"[-0-9: ]+Z  {short}  Freeze of {vm}  Scheduled: not before .+ approves", first)
    assert re.fullmatch(rf"[-0-9: ]+Z  {short}  Freeze of {vm}  Started: the work on {vm}, begun", second)
    assert re.fullmatch(rf"[-0-9: ]+Z  {short}  Freeze of {vm}  completed", third)
    assert (followed.code, followed.stderr) == (0, "")


def test_following_a_cancelled_event_exits_with_1(service_machine: ServiceMachine) -> None:
    vm = service_machine.take_vm()

    def script() -> Script:
        yield "\n"
        run(service_machine, "event", "cancel", _event_of(service_machine, vm))

    followed = run_live(service_machine, "vm", "restart", vm, "--wait", "-o", "json", script=script())
    first, last = map(json.loads, followed.stdout.splitlines())
    assert (first["event"]["status"], first["outcome"], first["vms"]) == ("Scheduled", None, [vm])
    assert (last["id"], last["event"], last["outcome"], followed.code) == (first["id"], None, "canceled", 1)


def test_following_several_events_ends_with_the_last_one(service_machine: ServiceMachine) -> None:
    ids = [
        run_json(service_machine, "event", "schedule", "Freeze", service_machine.take_vm(), "--in", "5m")["created"][0][
            "id"
        ]
        for _ in range(2)
    ]

    def script() -> Script:
        yield "\n"
        yield "\n"
        run_json(service_machine, "clock", "advance", "10m")

    shortened = (id_[:12] for id_ in ids)
    followed = run_live(service_machine, "event", "watch", *shortened, "-o", "json", script=script())
    lines = list(map(json.loads, followed.stdout.splitlines()))
    assert {line["id"] for line in lines[:2]} == set(ids)
    assert (lines[-1]["outcome"], followed.code) == ("completed", 0)


def test_following_an_ended_event_ends_at_once(service_machine: ServiceMachine) -> None:
    id_ = run_json(service_machine, "event", "schedule", "Freeze", service_machine.take_vm())["created"][0]["id"]
    run(service_machine, "event", "cancel", id_)
    ended = run(service_machine, "event", "watch", id_)
    assert (ended.code, ended.stdout.endswith("  canceled\n")) == (1, True)


def test_following_an_eviction_ends_with_the_vm(service_machine: ServiceMachine) -> None:
    vm = service_machine.take_vm()

    def script() -> Script:
        yield "\n"
        run_json(service_machine, "clock", "advance", "5m")

    followed = run_live(service_machine, "vm", "evict", vm, "--in", "30s", "--wait", script=script())
    assert (followed.code, followed.stdout.splitlines()[-1].endswith("completed")) == (0, True)


def test_live_view_counts_down_with_the_services_clock(service_machine: ServiceMachine) -> None:
    vm = service_machine.take_vm()

    def script() -> Script:
        yield "in 20m"
        yield "The clock is manual: `forewarn clock advance` moves it."
        run_json(service_machine, "clock", "advance", "8m")
        yield "in 12m"
        run_json(service_machine, "clock", "advance", "12m")
        yield "Started"
        run_json(service_machine, "clock", "advance", "2m")

    command = ("event", "schedule", "Reboot", vm, "--in", "20m", "--wait")
    followed = run_live(service_machine, *command, columns=100, script=script())
    assert (followed.code, "\x1b[32mcompleted" in followed.stdout) == (0, True)
    assert followed.stdout.rstrip().endswith("\x1b[?25h")


@pytest.mark.process
def test_ctrl_c_stops_watching_but_not_the_event(service_machine: ServiceMachine) -> None:
    vm = service_machine.take_vm()
    with Terminal(service_machine, "event", "schedule", "Reboot", vm, "--in", "20m", "--wait") as terminal:
        terminal.wait_for("in 20m")
        terminal.type(CTRL_C)
        assert terminal.end() == 130
    id_ = _event_of(service_machine, vm)
    assert f"To watch again: forewarn event watch {id_}" in terminal.seen
    assert "\x1b[?25h" in terminal.seen


@pytest.mark.process
def test_following_continues_after_a_restart_of_the_service(machine: Machine) -> None:
    (machine.home / "fleet.toml").write_text(FLEET)
    (port,) = free_ports(1)
    same = ("--data", "data", "--manual-time", "--operator", f"127.0.0.1:{port}")
    with machine.up(*same, "--fleet", "fleet.toml") as service:
        made = run_json(machine, "event", "schedule", "Freeze", "web-0", "--data", "data")["created"][0]
        following = lines(machine, "event", "watch", made["id"], "--data", "data")
        with following as followed:
            followed.stdout.readline()
            service.stop(signal.SIGKILL)
            assert followed.process.stderr is not None
            lost = followed.process.stderr.readline()
            with machine.up(*same):
                back = followed.process.stderr.readline()
                run(machine, "event", "cancel", made["id"], "--data", "data")
                code, rest, _ = followed.ended()
    assert lost.startswith("The service cannot be reached; trying again. ")
    assert back == "The service can be reached again.\n"
    assert (code, rest.endswith("canceled\n")) == (1, True)


@pytest.fixture
def failing(machine: Machine) -> Iterator[Machine]:
    """Run a service whose platform program always fails."""
    (machine.home / "fleet.toml").write_text(FLEET)
    program = json.dumps([sys.executable, "-c", "import sys; print('no such domain'); sys.exit(1)"])
    settings = machine.home / "forewarn.toml"
    settings.write_text(f'platform = "command"\n[command]\nprogram = {program}\nattempts = 1\n')
    with machine.up("--ephemeral", "--fleet", "fleet.toml"):
        yield machine


@pytest.mark.process
def test_following_ends_with_the_next_step_if_an_operator_is_needed(failing: Machine) -> None:
    made = failing.run("event", "schedule", "Reboot", "web-0", "web-1", "--in", "0s", "--wait")
    (stuck,) = [event for event in run_json(failing, "event", "list") if event["status"] == "Started"]
    id_ = stuck["id"][:8]
    assert made.returncode == 1
    assert made.stderr == (
        f"The work on {stuck['vms'][0]} needs an operator: `forewarn event retry {id_}` retries it, "
        f"`forewarn event resolve {id_}` records its outcome.\n"
    )
    again = failing.run("event", "watch", stuck["id"])
    assert (again.returncode, again.stderr) == (1, made.stderr)
    # The other update domain must wait for this event.
    (waiting,) = [event for event in run_json(failing, "event", "list") if event["status"] == "Scheduled"]
    behind = failing.run("event", "watch", waiting["id"])
    assert (behind.returncode, behind.stderr) == (1, made.stderr)
