"""What handlers have in common: their settings. Each kind adds the halves that it has."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Generic, TypeVar

from forewarn.agent.handlers.port import Again, Done, Ended, Errand
from forewarn.agent.settings import HandlerSettings
from forewarn.clock import Clock, SystemClock, wait_until

S = TypeVar("S", bound=HandlerSettings)


class Configured(Generic[S]):
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
        """How long one try of a half may take."""
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
        """Whether the VM counts as ready although this handler's prepare half failed."""
        return self.settings.ready_despite_failure

    async def prepare(self, errand: Errand) -> Ended:
        """Make ready for the event: nothing to do."""
        del errand
        return Done()

    async def recover(self, errand: Errand) -> Ended:
        """Undo what was prepared: nothing to do."""
        del errand
        return Done()

    async def tell(self, errand: Errand) -> Ended:
        """Hear of a phase: nothing to do."""
        del errand
        return Done()

    async def check(self) -> list[str]:
        """Return what would keep this handler from working now: nothing."""
        return []

    async def _tried_again(self, once: Callable[[Errand], Awaitable[Ended]], errand: Errand) -> Ended:
        """Tell with all tries that there are: halves are repeated by the daemon, tellings by nobody else."""
        ended = await once(errand)
        for _ in range(self.retries):
            if not isinstance(ended, Again):
                break
            await wait_until(self._clock, self._clock.now() + self.pause)
            ended = await once(errand)
        return ended
