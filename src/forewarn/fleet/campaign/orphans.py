"""Orphan events: cancels Scheduled events whose campaign is over or has no record; nothing else would start them."""

from collections.abc import Callable
from contextlib import suppress

from forewarn.core import operations
from forewarn.core.campaign.record import Campaign
from forewarn.core.change import Change
from forewarn.core.errors import CoreError
from forewarn.core.event import State
from forewarn.core.scope import Scope
from forewarn.fleet.duty import DutyWork, no_guards
from forewarn.fleet.errors import ScopeNotFound
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.fleet.main_loop import Decision, MainLoop, RecordLoop
from forewarn.fleet.retry import repeat_until_saved
from forewarn.fleet.scopes import Scopes, guarded
from forewarn.store.port import Guards


class OrphanEvents:
    """Cancels orphan events, each in a separate task, as a part of the duty to run campaigns."""

    def __init__(
        self,
        scopes: Scopes,
        campaigns: RecordLoop[Campaign],
        main_loop: MainLoop,
        guards: Callable[[], Guards] = no_guards,
    ) -> None:
        self._guards = guards
        self._scopes = scopes
        self._campaigns = campaigns
        self._tasks = DutyWork(main_loop)
        self._in_flight: set[str] = set()

    @property
    def busy(self) -> int:
        """The number of cancellations in progress."""
        return len(self._in_flight)

    def halt(self) -> None:
        """Cancel all cancellations in progress."""
        self._tasks.halt()

    async def stop(self) -> None:
        """Start no further cancellation. On return none is in progress."""
        await self._tasks.stop()

    def cancel_of(self, campaign: Campaign) -> None:
        """Cancel the Scheduled events of a campaign whose record was deleted."""
        self._tasks.create(self._cancel_of(campaign), name=f"cancel events of {campaign.id}")

    async def _cancel_of(self, campaign: Campaign) -> None:
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
            self._tasks.create(
                self._cancel(scope, event, campaign),
                name=f"cancel {event}",
                on_done=lambda: self._in_flight.discard(event),
            )

    def _is_open(self, campaign: str) -> bool:
        """Return whether a campaign is known and has not ended."""
        record, _ = self._campaigns.newest(campaign)
        return record is not None and not record.state.is_over

    async def _cancel(self, scope: str, event: str, campaign: str) -> None:
        """Cancel an event, unless the store has an open campaign for it; the guard detects if this is outdated."""

        def rule(value: Scope) -> Change[None] | Decision[Scope, None]:
            found = value.find_event(event)
            if found is None or found.state is not State.SCHEDULED or self._is_open(campaign):
                return Change(value, (), None)
            now = self._scopes.clock.now()
            why = "its campaign is over"
            change = operations.cancel(value, event, self._scopes.rule_context, by="campaigns", now=now, why=why)
            return guarded(change, {**self._guards(), **self._campaigns.guards(campaign)})

        with suppress(ScopeNotFound, CoreError):
            what = f"cancel event {event} in scope {scope}"
            await repeat_until_saved(what, lambda: self._scopes.apply(scope, rule))
