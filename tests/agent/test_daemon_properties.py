"""Random runs of whole agents: events appear and disappear, handlers fail and hang, agents stop and restart."""

import random
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from forewarn.agent.handlers.base import CallResult, Done, Failed, Retry
from forewarn.client import Event
from tests.agent.harness import ID, OTHER_ID, AgentHarness, FakeService, RecordingHandler, event, seconds, started

STEPS = 60


class RandomRun:
    """One agent after another with the same state directory and a service whose document changes at random."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.diary: list[str] = []
        self.handlers = [
            RecordingHandler("drain", self.diary, importance=9, retries=2, time_limit=20),
            RecordingHandler("stop", self.diary, importance=5, time_limit=60, ready_despite_failure=True),
            RecordingHandler("log", self.diary, importance=5),
        ]
        self.harness = AgentHarness(directory, FakeService(), self.handlers)
        self.events: dict[str, Event] = {}

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.harness.run_agent())
            for _ in range(STEPS):
                await self.step(stack)
            for handler in self.handlers:
                handler.results = []
                handler.gate.set()
            self.events = {}
            await self.harness.show()
            await self.harness.advance(timedelta(hours=1))
            assert self.harness.agent is not None
            assert not self.harness.agent.workflows
        assert not list((self.harness.directory / "journal").iterdir())

    async def step(self, stack: AsyncExitStack) -> None:
        match self.chance.choice(["event", "event", "gate", "gate", "end", "end", "time", "time", "restart"]):
            case "event":
                self.change_document()
                await self.harness.show(*self.events.values())
            case "gate":
                gate = self.chance.choice(self.handlers).gate
                (gate.clear if gate.is_set() else gate.set)()
                await self.harness.settle()
            case "end":
                ends: list[CallResult | Exception] = [Done(), Retry("busy"), Failed("broken"), RuntimeError("a bug")]
                self.chance.choice(self.handlers).results.append(self.chance.choice(ends))
            case "time":
                await self.harness.advance(seconds(self.chance.choice([1, 7, 40, 300])))
            case _:
                await stack.aclose()
                self.harness.more["boot"] = self.chance.choice(["", "first", "second"])
                self.change_document()
                self.harness.service.show(*self.events.values())
                await stack.enter_async_context(self.harness.run_agent())

    def change_document(self) -> None:
        id_ = self.chance.choice([ID, OTHER_ID])
        known = self.events.get(id_)
        if known is None:
            notice = self.chance.choice([5, 30, 900])
            self.events[id_] = event(id_, at=self.harness.clock.now() + seconds(notice))
        elif known.is_started or self.chance.random() < 0.5:
            del self.events[id_]
        else:
            self.events[id_] = started(known)


@pytest.mark.parametrize("seed", range(25))
async def test_everything_is_recovered_and_handlers_never_run_two_calls_at_once(tmp_path: Path, seed: int) -> None:
    life = RandomRun(tmp_path, seed)
    await life.run()
    for handler in life.handlers:
        own = [line.split() for line in life.diary if line.startswith(f"{handler.name} ")]
        assert not own or own[-1] == [handler.name, "recover", "ends"], own
        under_way: str | None = None
        for _, call, what in own:
            if what.isdecimal():
                assert under_way is None, own
                under_way = call
            else:
                assert under_way == call, own
                under_way = None
