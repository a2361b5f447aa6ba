"""An agent process that kills itself with SIGKILL at a given write of its workflow store.

    python crashing_agent.py ENDPOINT STATE_DIRECTORY DIARY WRITE WHERE

WRITE 0 means never. WHERE is `before` the write, `within` it (the new file exists, the old one is not
replaced yet) or `after` it. Each handler call appends a line to the diary when it begins and ends."""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from forewarn.agent.context import AgentContext
from forewarn.agent.daemon import Agent
from forewarn.agent.handlers.base import CallResult, Done, HandlerContext
from forewarn.agent.workflow import store
from forewarn.agent.workflow.state import EventWorkflow
from forewarn.client import AsyncScheduledEvents


class RecordingHandler:
    """A handler that appends to the diary."""

    time_limit, pause = timedelta(seconds=60), timedelta(seconds=1)
    retries, ready_despite_failure, recovers_at_most_once = 0, False, False

    def __init__(self, name: str, importance: int, diary: Path) -> None:
        self.name, self.importance, self._diary = name, importance, diary

    async def prepare(self, context: HandlerContext) -> CallResult:
        return await self._record_call(context)

    async def recover(self, context: HandlerContext) -> CallResult:
        return await self._record_call(context)

    async def notify(self, context: HandlerContext) -> CallResult:
        return Done()

    async def check(self) -> list[str]:
        return []

    async def _record_call(self, context: HandlerContext) -> CallResult:
        self._append(f"{self.name} {context.call} {context.attempt} begins")
        await asyncio.sleep(0)
        self._append(f"{self.name} {context.call} {context.attempt} ends")
        return Done()

    def _append(self, line: str) -> None:
        with self._diary.open("a") as file:
            file.write(line + "\n")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def install_crash(write: int, where: str) -> None:
    """Make the process kill itself at the given write."""
    count = 0
    whole, replacing = store.WorkflowStore._write, Path.replace

    def writing(self: store.WorkflowStore, id_: str, workflow: EventWorkflow | None) -> None:
        nonlocal count
        count += 1
        if count == write and where == "before":
            die()
        whole(self, id_, workflow)
        if count == write and where == "after":
            die()

    def replace(self: Path, target: Path) -> Path:
        if count == write and where == "within":
            die()
        return replacing(self, target)

    store.WorkflowStore._write = writing  # type: ignore[method-assign]  # to die in the midst of it
    Path.replace = replace  # type: ignore[method-assign,assignment]  # likewise


async def main(endpoint: str, state: Path, diary: Path) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    handlers = {name: RecordingHandler(name, importance, diary) for importance, name in enumerate(("stop", "drain"))}
    async with AsyncScheduledEvents(endpoint, interval=0.02) as client:
        equipment = AgentContext(
            client=client, handlers=handlers, choose=lambda _: tuple(handlers), state_directory=state
        )
        async with Agent(equipment).running():
            await stop.wait()


if __name__ == "__main__":
    install_crash(int(sys.argv[4]), sys.argv[5])
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
