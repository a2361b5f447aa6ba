"""The full screen of `forewarn watch`.

Processes: for keys and sizes of a real terminal.
"""

import pytest

from tests.cli.in_process import run, run_json
from tests.cli.service_machine import ServiceMachine
from tests.cli.terminal import Terminal


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
