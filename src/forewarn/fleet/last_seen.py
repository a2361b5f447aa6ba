"""Last-seen tracking: every valid guest request counts, but only few are saved."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable
from datetime import datetime

from forewarn.core.enablement import mark_seen
from forewarn.core.errors import CoreError
from forewarn.fleet.errors import FleetError
from forewarn.fleet.replica import ScopeView
from forewarn.fleet.scopes import Scopes
from forewarn.fleet.seen_record import SeenRecords

log = logging.getLogger(__name__)


def new_epoch() -> str:
    """Return a new random epoch."""
    return secrets.token_hex(6)


class LastSeenTracker:
    """The time of each scope's last request, saved only if it changes something."""

    def __init__(self, scopes: Scopes, tasks: asyncio.TaskGroup, records: SeenRecords) -> None:
        self._scopes = scopes
        self._records = records
        self._clock = scopes.clock
        self._tasks = tasks
        self._saving: dict[str, asyncio.Task[None]] = {}

    @property
    def busy(self) -> int:
        """How many scopes are being saved because of a request."""
        return len(self._saving)

    @property
    def waiting(self) -> int:
        """Always 0: nothing here waits for the clock."""
        return 0

    def of(self, view: ScopeView) -> datetime | None:
        """Return the time of the scope's last valid request, as far as it is known."""
        known = (view.seen_at, self._records.find(view.id), view.scope.seen_at if view.scope is not None else None)
        return max(filter(None, known), default=None)

    def record_request(self, view: ScopeView) -> Awaitable[None] | None:
        """Record a valid request. The caller must await the returned task, if any, before it responds."""
        view.seen_at = now = self._clock.now()
        if now < view.fresh_until:
            return None
        saving = self._saving.get(view.id)
        if saving is None:
            saving = self._saving[view.id] = self._tasks.create_task(self._save(view), name=f"seen {view.id}")
        is_enabled = view.scope is not None and view.scope.enabled
        return None if is_enabled else asyncio.shield(saving)

    async def _save(self, view: ScopeView) -> None:
        """Save that the scope was seen. If that fails, guests still get responses; the next request tries again."""
        try:
            await self._scopes.apply(view.id, lambda scope: mark_seen(scope, now=self._clock.now(), epoch=new_epoch()))
        except (CoreError, FleetError) as error:
            log.warning("could not save that scope %s was seen; the next request tries again: %s", view.id, error)
        finally:
            del self._saving[view.id]
