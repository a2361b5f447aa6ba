"""Holds from the command line: of a scope, of the whole fleet, and their release."""

import re

from tests.cli.in_process import run, run_json
from tests.cli.service_machine import ServiceMachine


def test_hold_and_release_show_the_holds(service_machine: ServiceMachine) -> None:
    assert run(service_machine, "hold").stderr == "Nothing is held.\n"
    held = run(service_machine, "hold", "the switch is replaced", "--scope", "web")
    assert re.fullmatch(r"Scope web is held by admin since [-0-9: ]+Z: the switch is replaced\n", held.stdout)
    holds = run_json(service_machine, "hold", "all hands off")
    assert (holds[0]["reason"], holds[1]["scope"]) == ("all hands off", "web")
    assert run(service_machine, "hold").stdout.count("\n") == 2
    again = run(service_machine, "hold", "hands off again")
    assert re.fullmatch(r"This replaces the hold of admin since [-0-9: ]+Z: all hands off\n", again.stderr)
    released = run(service_machine, "release", "--reason", "done")
    assert (released.code, released.stdout.startswith("Scope web is held")) == (0, True)
    assert re.fullmatch(
        r"Released: the whole fleet, held by admin since [-0-9: ]+Z: hands off again\n", released.stderr
    )
    assert run(service_machine, "release").stderr == "Nothing to release: the whole fleet was not held.\n"
    assert run_json(service_machine, "release", "--scope", "web") == []
