"""`forewarn watch`: the full screen, and the lines without a terminal.

Processes: for keys, sizes and Ctrl-C of a real terminal.
"""

import json
import re
import signal

import pytest

from tests.cli.in_process import run, run_json
from tests.cli.lines import lines
from tests.cli.service_machine import ServiceMachine
from tests.cli.terminal import Terminal

CTRL_C = "\x03"


@pytest.mark.process
def test_screen_shows_events_holds_and_journal(service_machine: ServiceMachine) -> None:
    vm = service_machine.take_vm()
    with Terminal(service_machine, "watch", columns=120) as terminal:
        terminal.wait_for("(q quits)")
        made = run_json(service_machine, "event", "schedule", "Reboot", vm, "--in", "17m")["created"][0]
        terminal.wait_for("in 17m")
        terminal.wait_for(made["id"][:8])
        run(service_machine, "hold", "rack 4 burns", "--scope", "batch")
        terminal.wait_for("Scope batch is held by admin since")
        terminal.forget()
        terminal.resize(60, 10)
        terminal.wait_for("(q quits)")
        run(service_machine, "release", "--scope", "batch")
        terminal.wait_for("released")
        terminal.type("q")
        assert terminal.end() == 0
    assert terminal.seen.rstrip().endswith("\x1b[?1049l")


@pytest.mark.process
def test_narrow_screen_shows_what_an_event_waits_for(service_machine: ServiceMachine) -> None:
    run(service_machine, "hold", "rack 4 burns", "--scope", "batch")
    with Terminal(service_machine, "watch", columns=80) as terminal:
        terminal.wait_for("(q quits)")
        made = run_json(service_machine, "event", "schedule", "Redeploy", service_machine.take_vm(), "--in", "17m")[
            "created"
        ][0]
        terminal.wait_for(made["id"][:8])
        terminal.wait_for("the scope is held by admin")
        terminal.type("q")
        assert terminal.end() == 0
    run(service_machine, "release", "--scope", "batch")


@pytest.mark.process
def test_ctrl_c_ends_the_screen_with_exit_code_0(service_machine: ServiceMachine) -> None:
    with Terminal(service_machine, "watch") as terminal:
        terminal.wait_for("(q quits)")
        terminal.type(CTRL_C)
        assert terminal.end() == 0
    assert "\x1b[?1049l" in terminal.seen
    assert "Traceback" not in terminal.seen


@pytest.mark.process
@pytest.mark.parametrize("output", ["table", "json"])
def test_without_a_terminal_journal_entries_are_written_as_lines(service_machine: ServiceMachine, output: str) -> None:
    vm = service_machine.take_vm()
    with lines(service_machine, "watch", "-o", output) as watching:
        assert watching.process.stderr is not None
        begin = watching.process.stderr.readline()
        run_json(service_machine, "event", "schedule", "Freeze", vm)
        line = watching.stdout.readline()
        watching.process.send_signal(signal.SIGINT)
        code, _, said = watching.ended()
    assert (code, said, "press Ctrl-C to stop" in begin) == (0, "", True)
    if output == "json":
        assert (json.loads(line)["action"], json.loads(line)["vms"]) == ("scheduled", [vm])
    else:
        assert re.match(rf"[-0-9: ]+Z  scheduled  batch  {vm}  ", line)
