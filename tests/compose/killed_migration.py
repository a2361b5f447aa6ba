"""A program that migrates in child processes, each killed at its next request or file operation, until one ends.

Each killed migration is continued by a new one, which must end with exactly what the source has.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from secrets import token_hex

from forewarn.compose.migration import MigrationReport, migrate_to_cell, migrate_to_directory
from forewarn.settings.nats import NatsSettings
from forewarn.store.nats import migration as nats_migration
from forewarn.store.nats.connection import NatsConnection
from forewarn.store.sqlite import migration as sqlite_migration
from forewarn.store.sqlite.writer import Writer
from tests.compose.migrated_data import fill_directory, read_cell, read_directory

STRIDE = 3
"""How many steps one kill is after the other."""

Work = Callable[[], Coroutine[None, None, MigrationReport]]


def run_and_kill(work: Work, at: int) -> bool:
    """Run the work in a child process that is killed at this step; return whether it ended before."""
    child = os.fork()
    if child == 0:
        count_steps(at)
        asyncio.run(work())
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    assert os.waitstatus_to_exitcode(status) == 0, "the migration failed"
    return True


def count_steps(at: int) -> None:
    """Kill this process before or after a request to NATS, or a transaction of SQLite."""
    seen = 0

    def step() -> None:
        nonlocal seen
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)

    request, commit, append = NatsConnection.request, Writer.commit, Writer.append

    async def counted_request(*arguments: object, **named: object) -> object:
        step()
        answer = await request(*arguments, **named)  # type: ignore[arg-type]  # passed on
        step()
        return answer

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            step()
            result = function(*arguments, **named)
            step()
            return result

        return call

    NatsConnection.request = counted_request  # type: ignore[assignment,method-assign]  # the same arguments
    Writer.commit = counted(commit)  # type: ignore[assignment,method-assign]  # the same arguments
    Writer.append = counted(append)  # type: ignore[assignment,method-assign]  # the same arguments


def kill_at_each_step(work: Callable[[int], Work], check: Callable[[int], None]) -> int:
    """Kill a new migration at each step in turn, continue it, and return how many were killed."""
    for killed, at in enumerate(range(1, 10_000, STRIDE)):
        if run_and_kill(work(at), at):
            check(at)
            return killed
        report = asyncio.run(work(at)())
        assert report.kinds
        check(at)
    raise AssertionError("the migration has no end")


def main(direction: str, root: Path, server: str) -> None:
    for module in (nats_migration, sqlite_migration):
        setattr(module, "PAGE_ITEMS", 4)  # noqa: B010 - a constant that the module imports
    before = asyncio.run(fill_directory(root / "old", rounds=2))
    prefix = token_hex(3)

    def cell(number: int) -> NatsSettings:
        return NatsSettings(servers=(server,), cell=f"{prefix}-{number}", replicas=1)

    def to_cell(number: int) -> Work:
        return lambda: migrate_to_cell(root / "old", cell(number), restart=False, on_progress=lambda *_: None)

    def check_cell(number: int) -> None:
        found = asyncio.run(read_cell(cell(number), root / f"index-{number}"))
        assert (found.records, found.journal) == (before.records, before.journal)

    if direction == "to-cell":
        sys.stdout.write(f"{kill_at_each_step(to_cell, check_cell)}\n")
        return
    asyncio.run(to_cell(0)())
    moved = asyncio.run(read_cell(cell(0), root / "index"))

    def to_directory(number: int) -> Work:
        return lambda: migrate_to_directory(cell(0), root / f"new-{number}", restart=False, on_progress=lambda *_: None)

    def check_directory(number: int) -> None:
        assert asyncio.run(read_directory(root / f"new-{number}")) == moved

    sys.stdout.write(f"{kill_at_each_step(to_directory, check_directory)}\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
