"""Readiness handler: answers load-balancer probes with 503 from an event's notice until recovery is complete."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from forewarn.agent.handlers.base import CallResult, Done, HandlerBase, HandlerContext, Phase
from forewarn.agent.http_server import TEXT, HttpServer, Request, Response, error_response
from forewarn.agent.settings import ReadinessSettings
from forewarn.client.document import event_key
from forewarn.clock import Clock, wait_until

RETRY_INTERVAL = timedelta(seconds=5)
"""How long to wait before trying again to listen."""

MOST_RECOVERED = 1_000
"""How many recovered events are remembered."""


class ReadinessHandler(HandlerBase[ReadinessSettings]):
    """Answers probes. It keeps no state on disk: after a restart it is notified of the open events again."""

    def __init__(self, settings: ReadinessSettings, *, clock: Clock | None = None) -> None:
        super().__init__(settings, clock)
        self._unready_since: dict[str, datetime] = {}
        self._ready_since: dict[str, datetime] = {}
        self.port = settings.listen.port
        """The port on which it listens; it differs from the setting if that is 0 (any free port)."""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Answer probes while the context is open; retry in the background until listening succeeds."""
        listener = HttpServer(self.respond)
        listening = asyncio.create_task(self._listen(listener), name=f"forewarn-{self.name}")
        try:
            yield
        finally:
            listening.cancel()
            await asyncio.wait({listening})
            await listener.aclose()

    def respond(self, request: Request) -> Response:
        """Answer a probe."""
        if request.path != self.settings.path:
            return error_response(404, f"not found; available: {self.settings.path}")
        if request.method not in ("GET", "HEAD"):
            return error_response(405, "only GET and HEAD are supported", ("Allow", "GET, HEAD"))
        if self._unready_since:
            return Response(503, f"not ready: {', '.join(sorted(self._unready_since))}\n".encode(), TEXT)
        return Response(200, b"serving\n", TEXT)

    async def prepare(self, context: HandlerContext) -> CallResult:
        """Wait until load balancers have had time to notice the failing probe."""
        self._mark_unready(context)
        await wait_until(self._clock, self._unready_since[event_key(context.event)] + self.settings.wait)
        return Done()

    async def recover(self, context: HandlerContext) -> CallResult:
        """Answer probes with 200 again."""
        self._unready_since.pop(event_key(context.event), None)
        self._ready_since[event_key(context.event)] = self._clock.now()
        while len(self._ready_since) > MOST_RECOVERED:
            del self._ready_since[next(iter(self._ready_since))]
        return Done()

    async def notify(self, context: HandlerContext) -> CallResult:
        """Fail the probes from the notice on, and pass them again after an event without a recover call.

        Calls run in parallel with notifications, so the recover call may have ended first.
        """
        if context.phase is Phase.RECOVER and context.call is None:
            await self.recover(context)
        elif context.phase is Phase.NOTICE or event_key(context.event) not in self._ready_since:
            self._mark_unready(context)
        return Done()

    async def _listen(self, listener: HttpServer) -> None:
        self.port = await listener.listen_with_retry(self.settings.listen, self._wait_to_retry, lambda _: None)

    async def _wait_to_retry(self) -> None:
        await wait_until(self._clock, self._clock.now() + RETRY_INTERVAL)

    def _mark_unready(self, context: HandlerContext) -> None:
        self._ready_since.pop(event_key(context.event), None)
        self._unready_since.setdefault(event_key(context.event), self._clock.now())
