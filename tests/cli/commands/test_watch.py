"""`forewarn watch`: lines without a terminal, and Ctrl-C.

Processes: for Ctrl-C, with and without a terminal.
"""

import json
import re
import signal

import pytest

from tests.cli.in_process import run_json
from tests.cli.lines import lines
from tests.cli.service_machine import ServiceMachine
from tests.cli.terminal import Terminal

CTRL_C = "\x03"


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
