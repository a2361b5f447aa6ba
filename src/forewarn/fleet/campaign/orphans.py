"""Orphan events: cancels Scheduled events whose campaign is over or has no record; nothing else would start them."""

import asyncio
from collections.abc import Callable

from forewarn.core import operations
from forewarn.core.campaign.record import Campaign, decode
from forewarn.core.change import Change
from forewarn.core.errors import CoreError
from forewarn.core.event import State
from forewarn.core.scope import Scope
from forewarn.fleet.errors import SaveFailed, ScopeNotFound
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.fleet.scopes import Scopes
from forewarn.store.port import RecordKey, RecordKind, Store, StoreError


class OrphanEvents:
    """Cancels orphan events, each in a task of its own. `is_open` tells whether a campaign is known and not over."""

    def __init__(
        self, scopes: Scopes, store: Store, tasks: asyncio.TaskGroup, *, is_open: Callable[[str], bool]
    ) -> None:
        self._scopes = scopes
        self._store = store
        self._tasks = tasks
        self._is_open = is_open
        self._in_flight: set[str] = set()

    @property
    def busy(self) -> int:
        """Return how many cancellations are in flight."""
        return len(self._in_flight)

    async def cancel_of(self, campaign: Campaign) -> None:
        """Cancel the Scheduled events of a campaign whose record was deleted."""
        async for progress in iterate_gradually(campaign.scopes):
            scope, _ = self._scopes.replica.newest(progress.scope)
            if scope is not None:
                self.cancel_in(scope)

    def cancel_in(self, scope: Scope) -> None:
        """Cancel the Scheduled events of a scope whose campaign is over or has no record."""
        for event in scope.events:
            if event.campaign and event.state is State.SCHEDULED and not self._is_open(event.campaign):
                self._start_cancel(scope.id, event.id, event.campaign)

    def _start_cancel(self, scope: str, event: str, campaign: str) -> None:
        if event not in self._in_flight:
            self._in_flight.add(event)
            self._tasks.create_task(self._cancel(scope, event, campaign), name=f"cancel {event}")

    async def _cancel(self, scope: str, event: str, campaign: str) -> None:
        """Cancel an event, unless the store has an open campaign for it: the replica may lag behind the store."""

        def rule(value: Scope) -> Change[None]:
            if (found := value.find_event(event)) is None or found.state is not State.SCHEDULED:
                return Change(value, (), None)
            now = self._scopes.clock.now()
            why = "its campaign is over"
            return operations.cancel(value, event, self._scopes.rule_context, by="campaigns", now=now, why=why)

        try:
            record = await self._store.load(RecordKey(RecordKind.CAMPAIGN, campaign))
            if record is None or decode(record.value).state.is_over:
                await self._scopes.apply(scope, rule)
        except (ScopeNotFound, CoreError, SaveFailed, StoreError):
            return  # the next change of the scope, or the next start of the service, tries again
        finally:
            self._in_flight.discard(event)
