"""The commands of the backup guide work on a running service."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from forewarn.api import v1
from forewarn.core.event import EventType
from tests.support.program import GUARD, PROGRAM
from tests.support.serve_process import isolated_environment, run_serve

pytestmark = pytest.mark.process

GUIDE = Path(__file__).parents[2] / "docs/howto/back-up-and-restore.md"
BACKUP, RESTORE = re.findall(r"^ *```sh\n *(.*?)\n *```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def run_line(line: str, directory: Path) -> None:
    """Run a command of the guide where the settings file of the service is."""
    line = line.replace("/backup/forewarn.db", "backup.db")
    program = f'forewarn() {{ "{PROGRAM}" "$@"; }}; {line}'
    subprocess.run(
        ["sh", "-e", "-c", program], cwd=directory, env=isolated_environment(directory), timeout=GUARD, check=True
    )


def test_backup_of_a_running_service_can_be_restored(tmp_path: Path) -> None:
    ask = v1.ScheduleEvents(type=EventType.REBOOT, vms=("db",), notice="1h", unannounced=True)
    with run_serve(tmp_path) as service:
        (kept,) = service.api.schedule(ask).created
        run_line(BACKUP, tmp_path)
        (lost,) = service.api.schedule(ask).created
        assert {event.id for event in service.api.events()} == {kept.id, lost.id}
        assert service.stop(signal.SIGTERM) == 0
    run_line(RESTORE, tmp_path)
    with run_serve(tmp_path) as service:
        assert [event.id for event in service.api.events()] == [kept.id]
        assert [hold.created_by for hold in service.api.holds().holds] == ["restore"]


def test_backup_is_repeated_while_the_service_writes(tmp_path: Path) -> None:
    with run_serve(tmp_path) as service:
        for number in range(3):
            service.api.hold(v1.CreateHold(reason=f"round {number}"))
            run_line(BACKUP, tmp_path)
            service.api.release(v1.ReleaseHold())
        assert service.stop(signal.SIGTERM) == 0
    run_line(RESTORE, tmp_path)
    with run_serve(tmp_path) as service:
        (hold,) = service.api.holds().holds
        assert "round 2" in hold.reason
