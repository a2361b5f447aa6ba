"""The duty to run campaigns: a runner for each open campaign, and their timers.

`fleet.campaign.orphans` cancels the events that no campaign owns.
"""

import logging
from collections.abc import Callable
from datetime import datetime

from forewarn.core.campaign.draft import CampaignBlockers
from forewarn.core.campaign.load import FleetLoad, has_active_work
from forewarn.core.campaign.record import Campaign, CampaignEncoder
from forewarn.fleet.campaign.notifications import is_finished
from forewarn.fleet.campaign.orphans import OrphanEvents
from forewarn.fleet.campaign.runner import CampaignRunner
from forewarn.fleet.duty import no_guards
from forewarn.fleet.main_loop import MainLoop, RecordChange, RecordLoop, RecordTable
from forewarn.fleet.scheduler import TimerHeap
from forewarn.fleet.scopes import ScopeChange, Scopes
from forewarn.platform.port import GateChecker, Notifier
from forewarn.store.port import Guards

log = logging.getLogger(__name__)

MAX_UNCOUNTED = 1_000
"""How many changed scopes may wait to be counted. When a campaign starts, they are counted in one step."""


class CampaignDuty:
    """Runs every open campaign while this process has the duty."""

    def __init__(
        self,
        scopes: Scopes,
        main_loop: MainLoop,
        record_loop: RecordLoop[Campaign],
        records: RecordTable[Campaign],
        encoder: CampaignEncoder,
        *,
        checker: GateChecker,
        notifier: Notifier,
        guards: Callable[[], Guards] = no_guards,
    ) -> None:
        self._guards = guards
        self._scopes = scopes
        self._main_loop = main_loop
        self._record_loop = record_loop
        self._records = records
        self._encoder = encoder
        self._checker = checker
        self._notifier = notifier
        self._runners: dict[str, CampaignRunner] = {}
        self._by_scope: dict[str, list[CampaignRunner]] = {}
        self._fleet_load = FleetLoad()
        self._uncounted: set[str] = set()
        """Scopes with events that have changed while no campaign ran: their load is counted when one starts."""
        self._orphans = OrphanEvents(scopes, record_loop, main_loop, guards)
        self._timer_heap = TimerHeap(scopes.clock, self._wake)
        self._is_started = False

    @property
    def busy(self) -> int:
        """How many tasks are running that do not wait for the clock."""
        return self._orphans.busy + sum(runner.is_busy for runner in self._runners.values())

    @property
    def waiting(self) -> int:
        """How many timers wait for the clock."""
        return int(self._timer_heap.is_armed)

    def now(self, campaign: Campaign) -> datetime:
        """Return the campaign's time, which never goes back."""
        runner = self._runners.get(campaign.id)
        return max(campaign.started_at, self._scopes.clock.now()) if runner is None else runner.now()

    def blockers(self, id_: str) -> CampaignBlockers:
        """Return what blocks the waves of a campaign; empty if another process runs it."""
        runner = self._runners.get(id_)
        blockers = runner.blockers if runner is not None else CampaignBlockers()
        if blockers.has_limit:
            blockers = blockers._replace(is_permanent=not self._any_impact_continues())
        return blockers

    def _any_impact_continues(self) -> bool:
        """Return whether any impact in the fleet continues without a person."""
        newest = (self._scopes.replica.newest(load.scope)[0] for load in self._fleet_load.loads())
        return any(scope is not None and has_active_work(scope) for scope in newest)

    async def start(self) -> None:
        """Start the duty: continue every open campaign. No effect if it is already started."""
        if self._is_started:
            return
        self._is_started = True
        self._timer_heap.start()
        self._fleet_load = FleetLoad()
        self._uncounted.clear()
        for view in self._scopes.replica.views():
            if view.scope is not None:
                self._fleet_load.update(view.id, view.scope)
                self._orphans.cancel_in(view.scope)
        for campaign in sorted(self._records.values(), key=lambda campaign: (campaign.started_at, campaign.id)):
            self._start_runner(campaign)

    def halt(self) -> None:
        """Cancel all tasks and begin nothing more, at once."""
        self._is_started = False
        self._timer_heap.stop()
        for runner in self._runners.values():
            runner.halt()
        self._orphans.halt()

    async def stop(self) -> None:
        """Stop the duty. On return none of its tasks is running."""
        self.halt()
        for runner in tuple(self._runners.values()):
            await runner.stop()
            self._remove_runner(runner)
        await self._orphans.stop()

    def observe_record(self, change: RecordChange[Campaign]) -> None:
        """Run a new campaign, continue a changed one from its saved record, and stop one whose record was deleted."""
        if not self._is_started:
            return
        runner = self._runners.get(change.id)
        if change.after is None and change.before is not None:
            self._on_record_deleted(change.before)
        elif change.after is not None and runner is not None:
            runner.on_record_changed(change.after)
        elif change.after is not None:
            self._start_runner(change.after)

    def _on_record_deleted(self, campaign: Campaign) -> None:
        """Stop a campaign whose record another process has deleted, and cancel its Scheduled events."""
        if (runner := self._runners.get(campaign.id)) is not None:
            runner.on_record_deleted()
        if not campaign.state.is_over:
            log.warning("the record of campaign %s was deleted; canceling its events", campaign.name)
            self._orphans.cancel_of(campaign)

    def observe(self, change: ScopeChange) -> None:
        """Update with the current value of a scope. This is cheap for scopes without campaigns and events."""
        scope, _ = self._scopes.replica.newest(change.id)
        if not self._runners and scope is not None and scope.events:
            self._uncounted.add(change.id)
            if len(self._uncounted) > MAX_UNCOUNTED:
                self._count(self._uncounted.pop())
        else:
            self._uncounted.discard(change.id)
            if self._fleet_load.update(change.id, scope):
                self._wake_waiting_for_capacity()
        for runner in self._by_scope.get(change.id, ()):
            runner.mark_changed(change.id)
        if self._is_started and scope is not None:
            self._orphans.cancel_in(scope)

    def reevaluate(self) -> None:
        """Observe every scope again, because the hold or the policy of the whole fleet has changed."""
        for runner in self._runners.values():
            runner.wake()

    def _wake_waiting_for_capacity(self) -> None:
        for runner in self._runners.values():
            if runner.blockers.has_limit:
                runner.wake()

    def _start_runner(self, campaign: Campaign) -> None:
        if not self._is_started or campaign.id in self._runners or is_finished(campaign, self._notifier):
            return
        while self._uncounted:
            self._count(self._uncounted.pop())
        runner = CampaignRunner(
            campaign,
            self._scopes,
            self._main_loop.store,
            self._main_loop.tasks,
            self._record_loop,
            self._fleet_load,
            checker=self._checker,
            notifier=self._notifier,
            guards=self._guards,
            set_timer=self._timer_heap.set,
            on_capacity=self._wake_waiting_for_capacity,
            on_finished=self._remove_runner,
        )
        self._runners[campaign.id] = runner
        self._encoder.remember(campaign.id)
        for progress in campaign.scopes:
            self._by_scope.setdefault(progress.scope, []).append(runner)
        runner.wake()

    def _count(self, id_: str) -> None:
        self._fleet_load.update(id_, self._scopes.replica.newest(id_)[0])

    def _remove_runner(self, runner: CampaignRunner) -> None:
        self._runners.pop(runner.id, None)
        self._encoder.forget(runner.id)
        for progress in runner.record.scopes:
            left = [other for other in self._by_scope.get(progress.scope, ()) if other is not runner]
            if left:
                self._by_scope[progress.scope] = left
            else:
                self._by_scope.pop(progress.scope, None)

    def _wake(self, id_: str) -> None:
        if (runner := self._runners.get(id_)) is not None:
            runner.wake()
