"""The commands of the backup guide work on a running service."""

import re
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

from forewarn.api import v1
from forewarn.core.event import EventType
from tests.support.program import GUARD
from tests.support.serve_process import isolated_environment, run_serve

pytestmark = pytest.mark.process

GUIDE = Path(__file__).parents[2] / "docs/howto/back-up-and-restore.md"


def back_up(data: Path, backup: Path) -> None:
    """Run the guide's commands, in the variant that needs only Python."""
    whole, python, *_ = re.findall(r"^```sh\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for line in whole.splitlines() if not line.startswith(("DATA=", "BACKUP="))]
    script = "\n".join(python.strip() if line.startswith("sqlite3 ") else line for line in lines)
    assert python.strip() in script
    environ = isolated_environment(data.parent, DATA=str(data), BACKUP=str(backup.parent))
    subprocess.run(["sh", "-e", "-c", script], env=environ, timeout=GUARD, check=True)


def test_backup_of_a_running_service_can_be_restored(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup/forewarn.db"
    ask = v1.ScheduleEvents(type=EventType.REBOOT, vms=("db",), notice="1h")
    with run_serve(tmp_path) as service:
        (kept,) = service.api.schedule(ask).created
        back_up(data, backup)
        (lost,) = service.api.schedule(ask).created
        assert {event.id for event in service.api.events()} == {kept.id, lost.id}
        assert service.stop(signal.SIGTERM) == 0
    with sqlite3.connect(backup) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    copy.close()
    assert backup.stat().st_mode & 0o777 == 0o600
    for name in ("forewarn.db", "forewarn.db-wal"):
        (data / name).unlink(missing_ok=True)
    backup.rename(data / "forewarn.db")
    with run_serve(tmp_path) as service:
        assert [event.id for event in service.api.events()] == [kept.id]


def test_backup_is_complete_while_the_service_writes(tmp_path: Path) -> None:
    """The backup contains every change that was confirmed before it, and the service keeps running."""
    data, backup = tmp_path / "data", tmp_path / "backup/forewarn.db"
    with run_serve(tmp_path) as service:
        for number in range(5):
            service.api.hold(v1.CreateHold(reason=f"round {number}"))
            backup.unlink(missing_ok=True)
            back_up(data, backup)
            service.api.release(v1.ReleaseHold())
            with sqlite3.connect(backup) as copy:
                (saved,) = copy.execute("SELECT count(*) FROM journal").fetchone()
            copy.close()
            assert saved >= 2 * number + 1
