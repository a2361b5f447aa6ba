"""Test harness of the agent: fake service, recording handlers and a manual clock around a real agent."""

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
    """Return a Reboot of web_0 alone, announced with 15 minutes notice."""
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


class FakeService:
    """A service whose document the test sets with `show`; watchers get the change immediately."""

    endpoint = "http://169.254.169.254"

    def __init__(self, *events: Event, name: str = "web_0") -> None:
        self.trouble: ClientError | None = None
        self.approvals: list[str] = []
        self.approval_errors: list[Exception] = []
        """Exceptions that the next approvals raise."""
        self.watch_errors: list[Exception] = []
        """Exceptions that the next watches raise."""
        self._name = name
        self._document = Document(incarnation=1, events=events)
        self._changed = asyncio.Event()

    def show(self, *events: Event) -> None:
        self._document = Document(incarnation=(self._document.incarnation or 0) + 1, events=events)
        self._changed.set()

    def show_empty_body(self) -> None:
        """Answer with an empty body, like a service that is not enabled yet."""
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
            if self.watch_errors:
                raise self.watch_errors.pop(0)
            before, seen = seen, self._document
            for change in compare_events(before.affecting(self._name).events, seen.affecting(self._name).events):
                yield change
            await self._changed.wait()

    async def approve(self, event: Event) -> None:
        self.approvals.append(event.id)
        if self.approval_errors:
            raise self.approval_errors.pop(0)


class RecordingHandler:
    """A handler that records its calls; the test sets their results and, with `gate`, when they end."""

    def __init__(
        self, name: str, diary: list[str], *, importance: int = 0, time_limit: float = 30, **more: Any
    ) -> None:
        self.name, self.importance, self.time_limit = name, importance, seconds(time_limit)
        self.retries: int = more.get("retries", 0)
        self.pause = seconds(more.get("pause", 1))
        self.ready_despite_failure: bool = more.get("ready_despite_failure", False)
        self.recovers_at_most_once: bool = more.get("recovers_at_most_once", False)
        self.contexts: list[HandlerContext] = []
        self.notifications: list[HandlerContext] = []
        self.results: list[CallResult | Exception] = []
        """The results of the next calls; Done when the list is empty."""
        self.gate = asyncio.Event()
        self.gate.set()
        self._diary = diary

    async def prepare(self, context: HandlerContext) -> CallResult:
        return await self._record_call(context)

    async def recover(self, context: HandlerContext) -> CallResult:
        return await self._record_call(context)

    async def notify(self, context: HandlerContext) -> CallResult:
        self.notifications.append(context)
        return Done()

    async def check(self) -> list[str]:
        return []

    async def _record_call(self, context: HandlerContext) -> CallResult:
        self.contexts.append(context)
        self._diary.append(f"{self.name} {context.call} {context.attempt}")
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self._diary.append(f"{self.name} {context.call} cut")
            raise
        end = self.results.pop(0) if self.results else Done()
        if isinstance(end, Exception):
            self._diary.append(f"{self.name} {context.call} raises")
            raise end
        self._diary.append(f"{self.name} {context.call} ends")
        return end

    def attempts(self, call: HandlerCall) -> list[int]:
        return [context.attempt for context in self.contexts if context.call is call]


class AgentHarness:
    """Runs one agent at a time with the same state directory and service."""

    def __init__(
        self, directory: Path, service: FakeService, handlers: Sequence[RecordingHandler], **more: Any
    ) -> None:
        self.directory, self.service, self.more = directory, service, more
        self.handlers = {handler.name: handler for handler in handlers}
        self.clock = ManualClock(NOON)
        self.agent: Agent | None = None

    @asynccontextmanager
    async def run_agent(self) -> AsyncIterator[Agent]:
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
            await self.settle()
            yield self.agent

    async def show(self, *events: Event) -> None:
        self.service.show(*events)
        await self.settle()

    async def advance(self, time: timedelta) -> None:
        """Advance the clock, stopping at every timer."""
        end = self.clock.now() + time
        while (moment := self.clock.next_timer_at) is not None and moment <= end:
            self.clock.set(max(moment, self.clock.now()))
            await self.settle()
        self.clock.set(end)
        await self.settle()

    async def settle(self) -> None:
        """Run the event loop until all tasks are idle: nothing here waits for I/O."""
        for _ in range(60):
            await asyncio.sleep(0)


async def until(fact: Callable[[], bool], turn: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0.005)) -> None:
    """Wait for a condition that changes outside of this event loop."""
    async with asyncio.timeout(60):
        while not fact():
            await turn()
