"""A program that backs up or restores in child processes, each killed at its next step, and checks what is left.

A step is anything that the process does with files: Python's audit events before each of them, and each report of
progress. The program prints what it found after each kill.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from forewarn.clock import SystemClock
from forewarn.compose.backup import back_up
from forewarn.compose.restore import restore_backup
from forewarn.core.restore import RESTORE
from forewarn.store.sqlite.backup import check_backup
from tests.compose.service_data import create_data, open_fleet, read_data

STEPS = frozenset({"open", "os.chmod", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "sqlite3.connect"})
MAX_STEPS = 1000

Work = Callable[[Callable[..., None]], object]
"""The work; its argument is called at steps without an audit event."""


def run_and_kill(work: Work, at: int, below: Path) -> bool:
    """Run the work in a child process that is killed before this step; return whether it ended before."""
    child = os.fork()
    if child == 0:
        seen = 0

        def step(*_: object) -> None:
            nonlocal seen
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            if event in STEPS and str(below) in str(arguments[0]):
                step()

        sys.addaudithook(hook)
        work(step)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    assert os.waitstatus_to_exitcode(status) == 0, "the work failed"
    return True


def run_steps(root: Path, work: Work, check: Callable[[], str], prepare: Callable[[], None]) -> None:
    """Kill the work at each of its steps in turn, and print what the check finds."""
    for at in range(1, MAX_STEPS):
        prepare()
        has_ended = run_and_kill(work, at, root)
        sys.stdout.write(f"{check()}\n")
        if has_ended:
            return
    raise AssertionError("the work has no end")


async def create_crashed_data(directory: Path) -> None:
    """Create a data directory as a killed service leaves it: with saves that are only in the log."""
    await create_data(directory.with_name("running"), "web")
    async with open_fleet(directory.with_name("running")) as fleet:
        await fleet.holds.set(by="ann", reason="an old hold")
        shutil.copytree(directory.with_name("running"), directory)


def kill_restore(root: Path) -> None:
    pristine, data, file = root / "pristine", root / "data", root / "backup.db"
    asyncio.run(create_data(root / "other", "web", "db"))
    (root / "other/preset").write_text("production\n")
    back_up(root / "other", file, replace=False, now=SystemClock().now(), on_progress=lambda *_: None)
    asyncio.run(create_crashed_data(pristine))
    assert (pristine / "forewarn.db-wal").stat().st_size > 0

    def prepare() -> None:
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(pristine, data)

    def check() -> str:
        state = asyncio.run(read_data(data))
        kept = list(data.glob("before-restore-*/forewarn.db"))
        has_preset = (data / "preset").exists()
        assert not list(data.glob("restore.*"))
        assert state.hold is not None
        found = (set(state.scopes), state.hold.by, len(kept), has_preset)
        if found == ({"web"}, "ann", 0, False):
            result = "old"
        else:
            assert found == ({"web", "db"}, RESTORE, 1, True), found
            result = "new"
        # After any kill the same command succeeds.
        asyncio.run(restore_backup(file, data, on_progress=lambda *_: None))
        assert set(asyncio.run(read_data(data)).scopes) == {"web", "db"}
        return result

    run_steps(data, lambda step: asyncio.run(restore_backup(file, data, on_progress=step)), check, prepare)


def kill_backup(root: Path) -> None:
    data, files = root / "data", root / "files"
    file = files / "backup.db"
    asyncio.run(create_data(data, "web"))

    def prepare() -> None:
        shutil.rmtree(files, ignore_errors=True)
        files.mkdir()
        file.write_text("former")

    def check() -> str:
        if file.read_text(errors="replace") == "former":
            return "old"
        assert check_backup(file) is not None
        assert file.stat().st_mode & 0o777 == 0o600
        return "new"

    def work(step: Callable[..., None]) -> None:
        back_up(data, file, replace=True, now=SystemClock().now(), on_progress=step)

    run_steps(root, work, check, prepare)


if __name__ == "__main__":
    {"backup": kill_backup, "restore": kill_restore}[sys.argv[1]](Path(sys.argv[2]))
