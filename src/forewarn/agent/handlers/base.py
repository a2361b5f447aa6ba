"""Handler interface and base class: prepare, recover, notify and check, their context and their results."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Generic, Protocol, TypeVar

import msgspec

from forewarn.agent.phases import HandlerCall, Phase
from forewarn.agent.settings import HandlerSettings
from forewarn.client.document import Event
from forewarn.clock import Clock, SystemClock, wait_until

__all__ = ["CallResult", "Done", "Failed", "Handler", "HandlerCall", "HandlerContext", "Phase", "Retry"]


class HandlerContext(msgspec.Struct, frozen=True, kw_only=True):
    """The event, the call and the time limit that a handler gets. Nothing in it is secret."""

    event: Event
    """As it was last seen."""
    name: str
    """This VM's own resource name."""
    phase: Phase
    call: HandlerCall | None = None
    """None: the handler is only notified of the phase."""
    attempt: int = 1
    """Goes up with every try, and after a crash: the same may have been done before, whole or in part."""
    deadline: datetime | None = None
    """The event's own; None if it has started, or if nobody knows."""
    time_limit: timedelta
    """The slice that this try has; whoever needs longer is cancelled."""
    is_leader: bool = False

    def time_left(self, now: datetime) -> timedelta | None:
        """Return how much time there is until the deadline; None where there is no deadline."""
        return None if self.deadline is None else max(timedelta(0), self.deadline - now)


class Done(msgspec.Struct, frozen=True):
    """It is done, or there was nothing to do."""


class Retry(msgspec.Struct, frozen=True):
    """It could not be done now; another try may succeed. Out of tries, or of time, it counts as failed."""

    reason: str


class Failed(msgspec.Struct, frozen=True):
    """It was not done, and trying again will not help."""

    reason: str


CallResult = Done | Retry | Failed


class Handler(Protocol):
    """Reacts to events. Each call is one attempt; the daemon applies the time limit and the retries.

    Calls may be cancelled at any moment; a handler then stops what it began, programs with all their children.
    Every call must be idempotent: it can be repeated after it has been done.
    Nothing raises but CancelledError. `reason` is logged: no secrets.
    """

    @property
    def name(self) -> str:
        """What rules call it."""
        ...

    @property
    def importance(self) -> int:
        """Higher is prepared first, recovered last, and skipped last when time is short."""
        ...

    @property
    def time_limit(self) -> timedelta:
        """How long one attempt of a call may take."""
        ...

    @property
    def retries(self) -> int:
        """How many more tries follow the first."""
        ...

    @property
    def pause(self) -> timedelta:
        """How long to wait before another try."""
        ...

    @property
    def ready_despite_failure(self) -> bool:
        """Whether the VM counts as ready although this handler's prepare call failed."""
        ...

    async def prepare(self, context: HandlerContext) -> CallResult:
        """Make ready for the event."""
        ...

    async def recover(self, context: HandlerContext) -> CallResult:
        """Undo what `prepare` did, or may have done in part."""
        ...

    async def notify(self, context: HandlerContext) -> CallResult:
        """Notify the handler of a phase: of each once, and of the current one after a restart. No call waits for it."""
        ...

    async def check(self) -> list[str]:
        """Return what would keep this handler from working now, a sentence each. Changes nothing."""
        ...


S = TypeVar("S", bound=HandlerSettings)


class HandlerBase(Generic[S]):
    """A handler with settings, that has nothing to do unless its kind says otherwise."""

    def __init__(self, settings: S, clock: Clock | None = None) -> None:
        self.settings = settings
        self._clock = clock or SystemClock()

    @property
    def name(self) -> str:
        """What rules call it."""
        return self.settings.name

    @property
    def importance(self) -> int:
        """Higher is prepared first, recovered last, and skipped last when time is short."""
        return self.settings.importance

    @property
    def time_limit(self) -> timedelta:
        """How long one attempt of a call may take."""
        return self.settings.time_limit

    @property
    def retries(self) -> int:
        """How many more tries follow the first."""
        return self.settings.retries

    @property
    def pause(self) -> timedelta:
        """How long to wait before another try."""
        return self.settings.pause

    @property
    def ready_despite_failure(self) -> bool:
        """Whether the VM counts as ready although this handler's prepare call failed."""
        return self.settings.ready_despite_failure

    async def prepare(self, context: HandlerContext) -> CallResult:
        """Make ready for the event: nothing to do."""
        del context
        return Done()

    async def recover(self, context: HandlerContext) -> CallResult:
        """Undo what was prepared: nothing to do."""
        del context
        return Done()

    async def notify(self, context: HandlerContext) -> CallResult:
        """React to a phase: nothing to do."""
        del context
        return Done()

    async def check(self) -> list[str]:
        """Return what would keep this handler from working now: nothing."""
        return []

    async def _retry(
        self, call: Callable[[HandlerContext], Awaitable[CallResult]], context: HandlerContext
    ) -> CallResult:
        """Notify, with all retries: the daemon retries calls, but not notifications."""
        result = await call(context)
        for _ in range(self.retries):
            if not isinstance(result, Retry):
                break
            await wait_until(self._clock, self._clock.now() + self.pause)
            result = await call(context)
        return result
