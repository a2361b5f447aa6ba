"""What a handler promises: two halves, a word for every phase, and a self-test. The daemon knows nothing else of it."""

from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from forewarn.agent.phases import Half, Phase
from forewarn.client.document import Event

__all__ = ["Again", "Done", "Ended", "Errand", "Failed", "Half", "Handler", "Phase"]


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler is sent for. Nothing in it is secret."""

    event: Event
    """As it was last seen."""
    name: str
    """This VM's own resource name."""
    phase: Phase
    half: Half | None = None
    """None: the handler is only told of the phase."""
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


class Again(msgspec.Struct, frozen=True):
    """It could not be done now; another try may succeed. Out of tries, or of time, it counts as failed."""

    why: str


class Failed(msgspec.Struct, frozen=True):
    """It was not done, and trying again will not help."""

    why: str


Ended = Done | Again | Failed


class Handler(Protocol):
    """One thing that is done about events. Each call is one try; the daemon keeps to limit and retries.

    Calls may be cancelled at any moment; a handler then stops what it began, programs with all their children.
    Every half can be called again after it has been done: the same try twice must do no harm.
    Nothing raises but CancelledError. What is said in `why` is logged: no secrets.
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
        """How long one try of a half may take."""
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
        """Whether the VM counts as ready although this handler's prepare half failed."""
        ...

    async def prepare(self, errand: Errand) -> Ended:
        """Make ready for the event."""
        ...

    async def recover(self, errand: Errand) -> Ended:
        """Undo what `prepare` did, or may have done in part."""
        ...

    async def tell(self, errand: Errand) -> Ended:
        """Hear of a phase: of each once, and after a restart of the present one. Its half does not wait for that."""
        ...

    async def check(self) -> list[str]:
        """Return what would keep this handler from working now, a sentence each. Changes nothing."""
        ...
