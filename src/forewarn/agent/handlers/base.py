"""Handler interface and base class: prepare, recover, notify and check, their context and their results."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Generic, Protocol, TypeVar

import msgspec

from forewarn.agent.phases import HandlerCall, Phase
from forewarn.agent.settings import HandlerSettings
from forewarn.client.document import Event
from forewarn.clock import Clock, SystemClock, wait_until

__all__ = ["CallResult", "Done", "Failed", "Handler", "HandlerCall", "HandlerContext", "Phase", "Retry", "Unknown"]


class HandlerContext(msgspec.Struct, frozen=True, kw_only=True):
    """The event, the call and the time limit that a handler gets. Nothing in it is secret."""

    event: Event
    """The event as the service last sent it."""
    name: str
    """This VM's resource name."""
    phase: Phase
    call: HandlerCall | None = None
    """None for a notification without a call."""
    attempt: int = 1
    """Counts attempts, also across restarts of the agent: an earlier attempt may have done part of the work."""
    deadline: datetime | None = None
    """The `not_before` of the event; None if the event has started or gives none."""
    time_limit: timedelta
    """The time slice of this attempt; a call that takes longer is cancelled."""
    is_leader: bool = False

    def time_left(self, now: datetime) -> timedelta | None:
        """Return the time left until the deadline, or None without a deadline."""
        return None if self.deadline is None else max(timedelta(0), self.deadline - now)


class Done(msgspec.Struct, frozen=True):
    """The call succeeded, or there was nothing to do."""


class Retry(msgspec.Struct, frozen=True):
    """The call failed, but a retry may succeed. Without retries or time left, it counts as failed."""

    reason: str


class Failed(msgspec.Struct, frozen=True):
    """The call failed, and a retry will not help."""

    reason: str


class Unknown(msgspec.Struct, frozen=True):
    """The call may have done its work, part of it or nothing, and must not be repeated."""

    reason: str


CallResult = Done | Retry | Failed | Unknown


class Handler(Protocol):
    """Reacts to events. Each call is one attempt; the daemon applies the time limit and the retries.

    A call can be cancelled at any moment; the handler then stops what it started, including child processes.
    Every call must be idempotent: it can be repeated after it has succeeded.
    Calls raise only CancelledError. `reason` is logged, so it must not contain secrets.
    """

    @property
    def name(self) -> str:
        """The name by which rules refer to the handler."""
        ...

    @property
    def importance(self) -> int:
        """Handlers with a higher value prepare first, recover last, and are skipped last when time is short."""
        ...

    @property
    def time_limit(self) -> timedelta:
        """How long one attempt of a call may take."""
        ...

    @property
    def retries(self) -> int:
        """How many retries follow a failed first attempt."""
        ...

    @property
    def pause(self) -> timedelta:
        """How long to wait before a retry."""
        ...

    @property
    def ready_despite_failure(self) -> bool:
        """Whether the VM counts as ready although this handler's prepare call failed."""
        ...

    @property
    def recovers_at_most_once(self) -> bool:
        """Whether a recover call is not repeated once it may have done something."""
        ...

    async def prepare(self, context: HandlerContext) -> CallResult:
        """Prepare for the event."""
        ...

    async def recover(self, context: HandlerContext) -> CallResult:
        """Undo what `prepare` did, fully or in part."""
        ...

    async def notify(self, context: HandlerContext) -> CallResult:
        """Notify the handler of a phase: once each, and again of the current phase after a restart. No call waits."""
        ...

    async def check(self) -> list[str]:
        """Return the problems that would keep this handler from working, one sentence each. Changes nothing."""
        ...


S = TypeVar("S", bound=HandlerSettings)


class HandlerBase(Generic[S]):
    """A handler with settings whose calls do nothing unless a subclass overrides them."""

    def __init__(self, settings: S, clock: Clock | None = None) -> None:
        self.settings = settings
        self._clock = clock or SystemClock()

    @property
    def name(self) -> str:
        """The name by which rules refer to the handler."""
        return self.settings.name

    @property
    def importance(self) -> int:
        """Handlers with a higher value prepare first, recover last, and are skipped last when time is short."""
        return self.settings.importance

    @property
    def time_limit(self) -> timedelta:
        """How long one attempt of a call may take."""
        return self.settings.time_limit

    @property
    def retries(self) -> int:
        """How many retries follow a failed first attempt."""
        return self.settings.retries

    @property
    def pause(self) -> timedelta:
        """How long to wait before a retry."""
        return self.settings.pause

    @property
    def ready_despite_failure(self) -> bool:
        """Whether the VM counts as ready although this handler's prepare call failed."""
        return self.settings.ready_despite_failure

    @property
    def recovers_at_most_once(self) -> bool:
        """Whether a recover call is not repeated once it may have done something."""
        return False

    async def prepare(self, context: HandlerContext) -> CallResult:
        """Do nothing before the event."""
        del context
        return Done()

    async def recover(self, context: HandlerContext) -> CallResult:
        """Do nothing after the event."""
        del context
        return Done()

    async def notify(self, context: HandlerContext) -> CallResult:
        """Do nothing in a phase."""
        del context
        return Done()

    async def check(self) -> list[str]:
        """Return no problems."""
        return []

    async def _retry(
        self, call: Callable[[HandlerContext], Awaitable[CallResult]], context: HandlerContext
    ) -> CallResult:
        """Send a notification with retries: the daemon retries calls, but not notifications."""
        result = await call(context)
        for _ in range(self.retries):
            if not isinstance(result, Retry):
                break
            await wait_until(self._clock, self._clock.now() + self.pause)
            result = await call(context)
        return result
