"""An answer for the probes of load balancers: 503 from the notice of an event on, until everything is recovered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from forewarn.agent.handlers.configured import Configured
from forewarn.agent.handlers.port import Done, Ended, Errand, Phase
from forewarn.agent.http import TEXT, Answer, Listener, Request, refuse
from forewarn.agent.settings import ReadinessSettings
from forewarn.client.document import key
from forewarn.clock import Clock, wait_until

PAUSE = timedelta(seconds=5)
"""How long to wait before listening is tried again."""

REMEMBERED = 1_000
"""How many events are remembered that are recovered."""


class ReadinessHandler(Configured[ReadinessSettings]):
    """Answers probes. Events that are told again after a restart are known again."""

    def __init__(self, settings: ReadinessSettings, *, clock: Clock | None = None) -> None:
        super().__init__(settings, clock)
        self._away_since: dict[str, datetime] = {}
        self._back_since: dict[str, datetime] = {}
        self.port = settings.listen.port
        """Where it listens; another one than was set, if any free one was asked for."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer probes within this context, from the moment on at which that is possible."""
        listener = Listener(self.respond)
        listening = asyncio.create_task(self._listen(listener), name=f"forewarn-{self.name}")
        try:
            yield
        finally:
            listening.cancel()
            await asyncio.wait({listening})
            await listener.aclose()

    def respond(self, request: Request) -> Answer:
        """Answer a probe."""
        if request.path != self.settings.path:
            return refuse(404, f"ask for {self.settings.path}")
        if request.method not in ("GET", "HEAD"):
            return refuse(405, "only GET and HEAD are answered", ("Allow", "GET, HEAD"))
        if self._away_since:
            return Answer(503, f"going away: {', '.join(sorted(self._away_since))}\n".encode(), TEXT)
        return Answer(200, b"serving\n", TEXT)

    async def prepare(self, errand: Errand) -> Ended:
        """Wait until load balancers have had the time to notice."""
        self._leave(errand)
        await wait_until(self._clock, self._away_since[key(errand.event)] + self.settings.wait)
        return Done()

    async def recover(self, errand: Errand) -> Ended:
        """Be there again."""
        self._away_since.pop(key(errand.event), None)
        self._back_since[key(errand.event)] = self._clock.now()
        while len(self._back_since) > REMEMBERED:
            del self._back_since[next(iter(self._back_since))]
        return Done()

    async def tell(self, errand: Errand) -> Ended:
        """Say no to probes from the notice on; where nothing was prepared, recovery has no half that would end it.

        The half runs beside the telling, and may have been quicker.
        """
        if errand.phase is Phase.RECOVER and errand.half is None:
            await self.recover(errand)
        elif errand.phase is Phase.NOTICE or key(errand.event) not in self._back_since:
            self._leave(errand)
        return Done()

    async def _listen(self, listener: Listener) -> None:
        self.port = await listener.insist(self.settings.listen, self._rest, lambda _: None)

    async def _rest(self) -> None:
        await wait_until(self._clock, self._clock.now() + PAUSE)

    def _leave(self, errand: Errand) -> None:
        self._back_since.pop(key(errand.event), None)
        self._away_since.setdefault(key(errand.event), self._clock.now())
