"""Following events to their end, live and in lines, and the screen that shows everything.

Processes: for Ctrl-C, for keys and sizes of a real terminal, for a service that is killed, and for one whose work is a
program.
"""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from tests.cli.in_process import Script, run, run_json, run_live
from tests.cli.service_machine import FLEET, ServiceMachine, run_service_machine
from tests.cli.terminal import Terminal
from tests.support.program import GUARD, PROGRAM, Machine

CTRL_C = "\x03"


@pytest.fixture(scope="module")
def service_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceMachine]:
    with run_service_machine(tmp_path_factory.mktemp("following")) as machine:
        yield machine


class Lines:
    """A command that writes lines as things happen."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    @property
    def stdout(self) -> IO[str]:
        """What it writes."""
        assert self.process.stdout is not None
        return self.process.stdout

    def ended(self) -> tuple[int, str, str]:
        """Wait for its end; return the exit status and what it has written since."""
        stdout, stderr = self.process.communicate(timeout=GUARD)
        return self.process.returncode, stdout, stderr


@contextmanager
def lines(machine: Machine, *arguments: str) -> Iterator[Lines]:
    process = subprocess.Popen(
        [PROGRAM, *arguments],
        cwd=machine.home,
        env=machine.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        yield Lines(process)
        process.kill()


def _event_of(machine: Machine, vm: str) -> str:
    ((event),) = run_json(machine, "event", "list", "--vm", vm)
    id_: str = event["id"]
    return id_


def test_event_is_followed_in_lines(service_machine: ServiceMachine) -> None:
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


def test_cancelled_event_ends_the_following_with_1(service_machine: ServiceMachine) -> None:
    vm = service_machine.take_vm()

    def script() -> Script:
        yield "\n"
        run(service_machine, "event", "cancel", _event_of(service_machine, vm))

    followed = run_live(service_machine, "vm", "restart", vm, "--wait", "-o", "json", script=script())
    first, last = map(json.loads, followed.stdout.splitlines())
    assert (first["event"]["status"], first["outcome"], first["vms"]) == ("Scheduled", None, [vm])
    assert (last["id"], last["event"], last["outcome"], followed.code) == (first["id"], None, "canceled", 1)


def test_several_events_are_followed_until_the_last_has_ended(service_machine: ServiceMachine) -> None:
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


def test_event_that_has_ended_is_followed_no_longer(service_machine: ServiceMachine) -> None:
    id_ = run_json(service_machine, "event", "schedule", "Freeze", service_machine.take_vm())["created"][0]["id"]
    run(service_machine, "event", "cancel", id_)
    ended = run(service_machine, "event", "watch", id_)
    assert (ended.code, ended.stdout.endswith("  canceled\n")) == (1, True)


def test_evicted_vm_is_followed_to_its_end(service_machine: ServiceMachine) -> None:
    vm = service_machine.take_vm()

    def script() -> Script:
        yield "\n"
        run_json(service_machine, "clock", "advance", "5m")

    followed = run_live(service_machine, "vm", "evict", vm, "--in", "30s", "--wait", script=script())
    assert (followed.code, followed.stdout.splitlines()[-1].endswith("completed")) == (0, True)


def test_live_view_counts_down_by_the_clock_of_the_service(service_machine: ServiceMachine) -> None:
    vm = service_machine.take_vm()

    def script() -> Script:
        yield "in 20m"
        yield "Time stands still: `forewarn clock advance` moves it."
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
def test_ctrl_c_ends_the_watching_and_not_the_event(service_machine: ServiceMachine) -> None:
    vm = service_machine.take_vm()
    with Terminal(service_machine, "event", "schedule", "Reboot", vm, "--in", "20m", "--wait") as terminal:
        terminal.wait_for("in 20m")
        terminal.type(CTRL_C)
        assert terminal.end() == 130
    id_ = _event_of(service_machine, vm)
    assert f"To watch again: forewarn event watch {id_}" in terminal.seen
    assert "\x1b[?25h" in terminal.seen


@pytest.mark.process
def test_following_goes_on_when_the_service_is_restarted(machine: Machine) -> None:
    (machine.home / "fleet.toml").write_text(FLEET)
    with machine.up("--data", "data", "--manual-time", "--fleet", "fleet.toml") as service:
        port = service.ready["operator_url"].rpartition(":")[2]
        made = run_json(machine, "event", "schedule", "Freeze", "web-0", "--data", "data")["created"][0]
        following = lines(machine, "event", "watch", made["id"], "--data", "data")
        with following as followed:
            followed.stdout.readline()
            service.stop(signal.SIGKILL)
            assert followed.process.stderr is not None
            lost = followed.process.stderr.readline()
            with machine.up("--data", "data", "--manual-time", "--operator", f"127.0.0.1:{port}"):
                back = followed.process.stderr.readline()
                run(machine, "event", "cancel", made["id"], "--data", "data")
                code, rest, _ = followed.ended()
    assert lost.startswith("The service cannot be reached; trying again. ")
    assert back == "The service is back.\n"
    assert (code, rest.endswith("canceled\n")) == (1, True)


@pytest.mark.process
def test_screen_shows_events_holds_and_the_journal(service_machine: ServiceMachine) -> None:
    vm = service_machine.take_vm()
    with Terminal(service_machine, "watch", columns=120) as terminal:
        terminal.wait_for("(q ends)")
        made = run_json(service_machine, "event", "schedule", "Reboot", vm, "--in", "17m")["created"][0]
        terminal.wait_for("in 17m")
        terminal.wait_for(made["id"][:8])
        run(service_machine, "hold", "rack 4 burns", "--scope", "batch")
        terminal.wait_for("Scope batch is held by admin since")
        terminal.forget()
        terminal.resize(60, 10)
        terminal.wait_for("(q ends)")
        run(service_machine, "release", "--scope", "batch")
        terminal.wait_for("released")
        terminal.type("q")
        assert terminal.end() == 0
    assert terminal.seen.rstrip().endswith("\x1b[?1049l")


@pytest.mark.process
def test_narrow_screen_still_says_what_an_event_waits_for(service_machine: ServiceMachine) -> None:
    run(service_machine, "hold", "rack 4 burns", "--scope", "batch")
    with Terminal(service_machine, "watch", columns=80) as terminal:
        terminal.wait_for("(q ends)")
        made = run_json(service_machine, "event", "schedule", "Redeploy", service_machine.take_vm(), "--in", "17m")[
            "created"
        ][0]
        terminal.wait_for(made["id"][:8])
        terminal.wait_for("the scope is held by admin")
        terminal.type("q")
        assert terminal.end() == 0
    run(service_machine, "release", "--scope", "batch")


@pytest.mark.process
def test_ctrl_c_is_a_usual_end_of_the_screen(service_machine: ServiceMachine) -> None:
    with Terminal(service_machine, "watch") as terminal:
        terminal.wait_for("(q ends)")
        terminal.type(CTRL_C)
        assert terminal.end() == 0
    assert "\x1b[?1049l" in terminal.seen
    assert "Traceback" not in terminal.seen


@pytest.mark.process
@pytest.mark.parametrize("output", ["table", "json"])
def test_journal_is_written_line_by_line_where_no_terminal_is(service_machine: ServiceMachine, output: str) -> None:
    vm = service_machine.take_vm()
    with lines(service_machine, "watch", "-o", output) as watching:
        assert watching.process.stderr is not None
        begin = watching.process.stderr.readline()
        run_json(service_machine, "event", "schedule", "Freeze", vm)
        line = watching.stdout.readline()
        watching.process.send_signal(signal.SIGINT)
        code, _, said = watching.ended()
    assert (code, said, "Ctrl-C ends it" in begin) == (0, "", True)
    if output == "json":
        assert (json.loads(line)["action"], json.loads(line)["vms"]) == ("scheduled", [vm])
    else:
        assert re.match(rf"[-0-9: ]+Z  scheduled  batch  {vm}  ", line)


@pytest.fixture
def failing(machine: Machine) -> Iterator[Machine]:
    """A service whose own program fails for every impact."""
    (machine.home / "fleet.toml").write_text(FLEET)
    program = json.dumps([sys.executable, "-c", "import sys; print('no such domain'); sys.exit(1)"])
    settings = machine.home / "forewarn.toml"
    settings.write_text(f'platform = "command"\n[command]\nprogram = {program}\nattempts = 1\n')
    with machine.up("--ephemeral", "--fleet", "fleet.toml"):
        yield machine


@pytest.mark.process
def test_following_ends_with_the_next_step_where_only_a_person_can_go_on(failing: Machine) -> None:
    made = failing.run("event", "schedule", "Reboot", "web-0", "web-1", "--in", "0s", "--wait")
    (stuck,) = [event for event in run_json(failing, "event", "list") if event["status"] == "Started"]
    id_ = stuck["id"][:8]
    assert made.returncode == 1
    assert made.stderr == (
        f"The work on {stuck['vms'][0]} waits for a person: `forewarn event retry {id_}` has it done once more, "
        f"`forewarn event resolve {id_}` ends it.\n"
    )
    again = failing.run("event", "watch", stuck["id"])
    assert (again.returncode, again.stderr) == (1, made.stderr)
    # The other update domain cannot have its turn before that.
    (waiting,) = [event for event in run_json(failing, "event", "list") if event["status"] == "Scheduled"]
    behind = failing.run("event", "watch", waiting["id"])
    assert (behind.returncode, behind.stderr) == (1, made.stderr)
