"""A service, handlers and a clock that do exactly what a test says, and an agent between them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from forewarn.agent.context import AgentContext
from forewarn.agent.daemon import Agent
from forewarn.agent.handlers.base import CallResult, Done, HandlerCall, HandlerContext
from forewarn.client import Change, ClientError, Document, Event, EventType, Source, Status
from forewarn.client.changes import compare_events
from forewarn.clock import ManualClock

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
ID = "602D9444-D2CD-49C7-8624-8643E7171297"
OTHER_ID = "17D37A96-3E4B-4C5F-9C2D-0A1B2C3D4E5F"


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def event(id_: str = ID, *, at: datetime | None = NOON + timedelta(minutes=15), **changes: Any) -> Event:
    """Return a Reboot of web_0 alone, announced a quarter of an hour ahead."""
    facts: dict[str, Any] = {
        "id": id_,
        "status": Status.SCHEDULED,
        "type": EventType.REBOOT,
        "resources": ("web_0",),
        "not_before": at,
        "description": "host maintenance",
        "source": Source.PLATFORM,
    }
    return Event(**facts | changes)


def started(announced: Event) -> Event:
    return msgspec.structs.replace(announced, status=Status.STARTED, not_before=None)


class Service:
    """What the agent hears; `show` changes it, and the agent hears of that at once."""

    endpoint = "http://169.254.169.254"

    def __init__(self, *events: Event, name: str = "web_0") -> None:
        self.trouble: ClientError | None = None
        self.approvals: list[str] = []
        self.fails_with: list[Exception] = []
        """What the next approvals end with."""
        self.breaks_with: list[Exception] = []
        """What the next watches end with."""
        self._name = name
        self._document = Document(incarnation=1, events=events)
        self._changed = asyncio.Event()

    def show(self, *events: Event) -> None:
        self._document = Document(incarnation=(self._document.incarnation or 0) + 1, events=events)
        self._changed.set()

    def say_nothing(self) -> None:
        """Answer with an empty body, as a service does that is not enabled yet."""
        self._document = Document()

    async def name(self) -> str:
        return self._name

    async def get(self) -> Document:
        return self._document

    async def watch(self, *, mine: bool = False, since: Document | None = None) -> AsyncIterator[Change]:
        assert mine
        seen = since or Document()
        while True:
            self._changed.clear()
            if self.breaks_with:
                raise self.breaks_with.pop(0)
            before, seen = seen, self._document
            for change in compare_events(before.affecting(self._name).events, seen.affecting(self._name).events):
                yield change
            await self._changed.wait()

    async def approve(self, event: Event) -> None:
        self.approvals.append(event.id)
        if self.fails_with:
            raise self.fails_with.pop(0)


class Recorded:
    """A handler that writes down what it was sent for, and ends as the test says: at once, or when it says so."""

    def __init__(
        self, name: str, diary: list[str], *, importance: int = 0, time_limit: float = 30, **more: Any
    ) -> None:
        self.name, self.importance, self.time_limit = name, importance, seconds(time_limit)
        self.retries: int = more.get("retries", 0)
        self.pause = seconds(more.get("pause", 1))
        self.ready_despite_failure: bool = more.get("ready_despite_failure", False)
        self.errands: list[HandlerContext] = []
        self.told: list[HandlerContext] = []
        self.ends: list[CallResult | Exception] = []
        """What the next halves end with; Done when there is nothing more."""
        self.gate = asyncio.Event()
        self.gate.set()
        self._diary = diary

    async def prepare(self, errand: HandlerContext) -> CallResult:
        return await self._half(errand)

    async def recover(self, errand: HandlerContext) -> CallResult:
        return await self._half(errand)

    async def notify(self, errand: HandlerContext) -> CallResult:
        self.told.append(errand)
        return Done()

    async def check(self) -> list[str]:
        return []

    async def _half(self, errand: HandlerContext) -> CallResult:
        self.errands.append(errand)
        self._diary.append(f"{self.name} {errand.call} {errand.attempt}")
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self._diary.append(f"{self.name} {errand.call} cut")
            raise
        end = self.ends.pop(0) if self.ends else Done()
        if isinstance(end, Exception):
            self._diary.append(f"{self.name} {errand.call} raises")
            raise end
        self._diary.append(f"{self.name} {errand.call} ends")
        return end

    def halves(self, half: HandlerCall) -> list[int]:
        return [errand.attempt for errand in self.errands if errand.call is half]


class Stage:
    """One agent at a time, on one disk, before one service."""

    def __init__(self, directory: Path, service: Service, handlers: Sequence[Recorded], **more: Any) -> None:
        self.directory, self.service, self.more = directory, service, more
        self.handlers = {handler.name: handler for handler in handlers}
        self.clock = ManualClock(NOON)
        self.agent: Agent | None = None

    @asynccontextmanager
    async def agent_running(self) -> AsyncIterator[Agent]:
        equipment = AgentContext(
            client=self.service,
            handlers=self.handlers,
            choose=lambda _: tuple(self.handlers),
            state_directory=self.directory,
            clock=self.clock,
            **self.more,
        )
        async with AsyncExitStack() as stack:
            self.agent = await stack.enter_async_context(Agent(equipment).running())
            await self.settled()
            yield self.agent

    async def show(self, *events: Event) -> None:
        self.service.show(*events)
        await self.settled()

    async def pass_time(self, time: timedelta) -> None:
        """Let time pass, stopping at every moment that somebody waits for."""
        end = self.clock.now() + time
        while (moment := self.clock.next_timer_at) is not None and moment <= end:
            self.clock.set(max(moment, self.clock.now()))
            await self.settled()
        self.clock.set(end)
        await self.settled()

    async def settled(self) -> None:
        """Give everybody the turns that they need: nothing here waits for the outside."""
        for _ in range(60):
            await asyncio.sleep(0)


async def until(fact: Callable[[], bool], turn: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0.005)) -> None:
    """Wait for something that happens outside of this loop."""
    async with asyncio.timeout(60):
        while not fact():
            await turn()
