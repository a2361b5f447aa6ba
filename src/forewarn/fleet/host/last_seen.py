"""Last requests on a host: the first one of a scope enables it, and the others are reported to the control nodes."""

import asyncio
import logging
from collections.abc import Awaitable, Iterable

from forewarn.core.errors import CoreError
from forewarn.fleet.errors import FleetError
from forewarn.fleet.host.commands import REPORT_SECONDS, ScopePolls, Seen
from forewarn.fleet.host.control_client import CATCH_UP_SECONDS, ControlClient
from forewarn.fleet.replica import ScopeView
from forewarn.fleet.scopes import Scopes

log = logging.getLogger(__name__)

ENABLE_PAUSE = 5.0
"""How long, in seconds, an enablement that could not be saved is not tried again: guests do not wait for each try."""


class HostLastSeen:
    """The time of each scope's last request. Most are reported once a minute; the first one enables the scope."""

    def __init__(self, client: ControlClient, scopes: Scopes, tasks: asyncio.TaskGroup) -> None:
        self._client = client
        self._clock = scopes.clock
        self._replica = scopes.replica
        self._tasks = tasks
        self._enabling: dict[str, asyncio.Task[None]] = {}
        self._not_before: dict[str, float] = {}
        self._reported_at = self._clock.now()

    def record_request(self, view: ScopeView) -> Awaitable[None] | None:
        """Record a valid request. The caller must await the returned task, if any, before it responds."""
        view.seen_at = now = self._clock.now()
        if now < view.fresh_until or (view.scope is not None and view.scope.enabled):
            return None
        enabling = self._enabling.get(view.id)
        if enabling is None:
            if asyncio.get_running_loop().time() < self._not_before.get(view.id, 0.0):
                return None
            enabling = self._tasks.create_task(self._enable(view), name=f"enable {view.id}")
            self._enabling[view.id] = enabling
        return asyncio.shield(enabling)

    async def report(self) -> None:
        """Report every minute which scopes have polled, without end."""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            since, now = self._reported_at, self._clock.now()
            polled = [view for view in self._replica.views() if view.seen_at is not None and view.seen_at >= since]
            if polled:
                try:
                    await self._send(polled)
                except (CoreError, FleetError) as error:
                    log.info("could not report polls: %s", error)
                    continue
            self._reported_at = now

    async def _enable(self, view: ScopeView) -> None:
        try:
            await self._client.catch_up(view.id, await self._send([view]), CATCH_UP_SECONDS)
            self._not_before.pop(view.id, None)
        except (CoreError, FleetError) as error:
            self._not_before[view.id] = asyncio.get_running_loop().time() + ENABLE_PAUSE
            log.warning("could not enable scope %s; a later request tries again: %s", view.id, error)
        finally:
            del self._enabling[view.id]

    async def _send(self, views: Iterable[ScopeView]) -> int:
        polls = {
            view.id: ScopePolls(seen_at=view.seen_at, version=view.poll_version, vms=dict(view.polled_at))
            for view in views
            if view.seen_at is not None
        }
        client = self._client
        command = Seen(process=client.process, term=client.term, scopes=polls, sent_at=self._clock.now())
        return (await client.send(command)).revision
