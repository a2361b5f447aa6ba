"""The systemd handler, against a fake systemctl that records its arguments."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from forewarn.agent.handlers.base import Done, Retry
from forewarn.agent.handlers.systemd import SystemdHandler
from forewarn.agent.settings import SystemdSettings
from tests.agent.handlers.handler_contexts import NO_NOTES, PREPARE, RECOVER

pytestmark = pytest.mark.process

SYSTEMCTL = """\
#!/bin/sh
# Units are files in $UNITS, which hold their state.
[ "$1 $2" = "--no-ask-password --no-pager" ] || exit 64
shift 2
verb=$1
shift
echo "$verb $*" >> "$UNITS/../asked"
case $verb in
show)
    if [ -e "$UNITS/../silent" ]; then echo "Failed to connect to bus" >&2; exit 1; fi
    property=${1#--property=}
    if [ ! -e "$UNITS/$2" ]; then load=not-found; state=inactive; else load=loaded; state=$(cat "$UNITS/$2"); fi
    if [ "$property" = LoadState ]; then echo "LoadState=$load"; else echo "ActiveState=$state"; fi ;;
stop | start)
    if [ -e "$UNITS/../broken" ]; then echo "Failed to $verb: Access denied" >&2; exit 4; fi
    for unit; do if [ "$verb" = stop ]; then echo inactive; else echo active; fi > "$UNITS/$unit"; done ;;
esac
"""


class Machine:
    """A machine with systemd units."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.units = home / "units"
        self.units.mkdir()
        program = home / "bin" / "systemctl"
        program.parent.mkdir()
        program.write_text(SYSTEMCTL)
        program.chmod(0o755)

    def set(self, **states: str) -> None:
        for unit, state in states.items():
            (self.units / f"{unit}.service").write_text(f"{state}\n")

    @property
    def states(self) -> dict[str, str]:
        return {path.stem: path.read_text().strip() for path in sorted(self.units.iterdir())}

    @property
    def did(self) -> list[str]:
        """The commands that change something."""
        path = self.home / "asked"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if not line.startswith("show ")]

    def handler(self, *units: str) -> SystemdHandler:
        """Create the handler, like a newly started agent."""
        environ = {"PATH": f"{self.home / 'bin'}:{os.environ['PATH']}", "UNITS": str(self.units)}
        settings = SystemdSettings(name="stop", units=tuple(f"{unit}.service" for unit in units))
        return SystemdHandler(settings, self.home / "state" / "handlers", NO_NOTES, environ=environ)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


async def test_running_units_are_stopped_and_started_again(machine: Machine) -> None:
    machine.set(web="active", worker="activating")
    handler = machine.handler("web", "worker")
    assert await handler.prepare(PREPARE) == Done()
    assert machine.states == {"web": "inactive", "worker": "inactive"}
    assert await handler.recover(RECOVER) == Done()
    assert machine.states == {"web": "active", "worker": "active"}
    assert machine.did == ["stop web.service worker.service", "start web.service worker.service"]


async def test_unit_that_was_stopped_before_is_not_started(machine: Machine) -> None:
    machine.set(web="active", batch="inactive", broken="failed")
    handler = machine.handler("web", "batch", "broken")
    assert await handler.prepare(PREPARE) == Done()
    assert await handler.recover(RECOVER) == Done()
    assert machine.states == {"batch": "inactive", "broken": "failed", "web": "active"}


async def test_running_units_are_remembered_across_crash_and_reboot(machine: Machine) -> None:
    machine.set(web="active", batch="inactive")
    assert await machine.handler("web", "batch").prepare(PREPARE) == Done()
    assert await machine.handler("web", "batch").prepare(PREPARE) == Done(), "repeated by the next agent"
    assert await machine.handler("web", "batch").recover(RECOVER) == Done()
    assert machine.states == {"batch": "inactive", "web": "active"}


async def test_recover_is_idempotent(machine: Machine) -> None:
    machine.set(web="active", batch="inactive")
    assert await machine.handler("web", "batch").prepare(PREPARE) == Done()
    for _ in range(2):
        assert await machine.handler("web", "batch").recover(RECOVER) == Done()
    assert machine.did == ["stop web.service", "start web.service", "start web.service"]


async def test_next_event_reads_the_unit_states_again(machine: Machine) -> None:
    machine.set(web="active", batch="inactive")
    handler = machine.handler("web", "batch")
    assert await handler.prepare(PREPARE) == Done()
    assert await handler.recover(RECOVER) == Done()
    machine.set(web="inactive", batch="active")
    assert await handler.prepare(PREPARE) == Done()
    assert await handler.recover(RECOVER) == Done()
    assert machine.states == {"batch": "active", "web": "inactive"}


async def test_all_units_are_started_without_saved_state(machine: Machine) -> None:
    machine.set(web="inactive", batch="inactive")
    assert await machine.handler("web", "batch").recover(RECOVER) == Done()
    assert machine.states == {"batch": "active", "web": "active"}


Spoil = Callable[[Path], int | None]
SPOILT: dict[str, Spoil] = {
    "not json": lambda note: note.write_text("{"),
    "something else": lambda note: note.write_text(json.dumps({"running": 7})),
    "a directory": lambda note: note.rename(note.with_suffix(".away")).with_suffix(".json").mkdir(),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
async def test_unreadable_saved_state_counts_as_missing(machine: Machine, spoil: Spoil) -> None:
    machine.set(web="active")
    assert await machine.handler("web").prepare(PREPARE) == Done()
    spoil(machine.home / "state/handlers/stop.json")
    assert await machine.handler("web").recover(RECOVER) == Done()
    assert machine.states == {"web": "active"}


async def test_failed_save_of_the_state_does_not_stop_the_call(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    (machine.home / "state").write_text("in the way")
    machine.set(web="active", batch="inactive")
    handler = machine.handler("web", "batch")
    assert await handler.prepare(PREPARE) == Done()
    assert "cannot save handler state" in caplog.text
    assert await handler.recover(RECOVER) == Done()
    assert machine.states == {"batch": "inactive", "web": "active"}


async def test_systemctl_error_is_reported_and_retried(machine: Machine) -> None:
    machine.set(web="active")
    (machine.home / "broken").touch()
    handler = machine.handler("web")
    why = "ended with 4: Failed to {}: Access denied"
    assert await handler.prepare(PREPARE) == Retry(f"systemctl stop web.service {why.format('stop')}")
    assert await handler.recover(RECOVER) == Retry(f"systemctl start web.service {why.format('start')}")
    (machine.home / "broken").unlink()
    assert (await handler.prepare(PREPARE), await handler.recover(RECOVER)) == (Done(), Done())
    assert machine.states == {"web": "active"}


async def test_check_queries_every_unit_and_changes_nothing(machine: Machine) -> None:
    machine.set(web="active")
    assert await machine.handler("web", "wbe").check() == ["systemd has no unit wbe.service: not-found"]
    assert await machine.handler("web").check() == []
    assert machine.did == []


async def test_missing_systemctl_is_reported(tmp_path: Path) -> None:
    settings = SystemdSettings(name="stop", units=("a.service",))
    handler = SystemdHandler(settings, tmp_path, NO_NOTES, environ={"PATH": ""})
    why = "systemctl is not on the PATH"
    assert await handler.check() == [why]
    assert (await handler.recover(RECOVER), await handler.prepare(PREPARE)) == (Retry(why), Retry(why))


async def test_unit_with_unknown_state_is_not_taken_as_stopped(machine: Machine) -> None:
    machine.set(web="active")
    (machine.home / "silent").touch()
    why = "systemctl show --property=ActiveState web.service ended with 1: Failed to connect to bus"
    assert await machine.handler("web").prepare(PREPARE) == Retry(why)
    (machine.home / "silent").unlink()
    machine.set(web="inactive")
    assert await machine.handler("web").recover(RECOVER) == Done()
    assert machine.did == [], "nothing was stopped, so nothing is started"
