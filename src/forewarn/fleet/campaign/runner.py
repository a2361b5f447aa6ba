"""Campaign runner: observe changes, decide, save, then execute the decided actions. Always in this order.

Changes during a save wait, and are observed and saved together with the next step, because a record is large.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import datetime
from enum import Enum, auto
from typing import NamedTuple

import msgspec

from forewarn.core.backoff import backoff
from forewarn.core.campaign.actions import Action, ActionResult, ClearWave, Finding
from forewarn.core.campaign.draft import CampaignBlockers, CampaignDecision
from forewarn.core.campaign.index import CampaignIndex, PendingActions, observe
from forewarn.core.campaign.load import FleetLoad
from forewarn.core.campaign.record import Campaign, CampaignState, Notification
from forewarn.core.campaign.rollout import apply_result, decide
from forewarn.core.errors import CoreError
from forewarn.core.journal import Entry
from forewarn.fleet.campaign.executor import ActionExecutor
from forewarn.fleet.campaign.notifications import deliver_notifications, is_finished
from forewarn.fleet.campaign.time_zones import find_zone
from forewarn.fleet.errors import SAVE_ERRORS, ScopeNotFound
from forewarn.fleet.event_loop import FairShare
from forewarn.fleet.main_loop import Decision, RecordLoop
from forewarn.fleet.retry import FIRST_PAUSE, LONGEST_PAUSE
from forewarn.fleet.scopes import Scopes
from forewarn.platform.port import GateChecker, Notifier
from forewarn.store.port import Guards, Store

log = logging.getLogger(__name__)

MAX_CONCURRENT = 32
"""How many actions of a campaign run at the same time, each in another scope."""

MAX_DECISIONS = 40
"""How many decisions are saved together, at most."""


class _Unsaved(NamedTuple):
    """Decisions that are saved together: the record with its journal entries, and the actions that begin then."""

    record: Campaign
    entries: tuple[Entry, ...] = ()
    actions: tuple[Action, ...] = ()


class _Lifecycle(Enum):
    """What the runner may do."""

    CURRENT = auto()
    OUTDATED = auto()
    """A person or another process has changed the record: continue from it."""
    DELETED = auto()
    """Another process has deleted the record: decide nothing, and finish."""
    STOPPED = auto()
    """The duty was stopped: decide and execute nothing."""


class CampaignRunner:
    """Runs one campaign.

    `record` was last saved. `index` belongs to the record of `_unsaved`, which is the same if nothing is to be saved.
    """

    def __init__(
        self,
        campaign: Campaign,
        scopes: Scopes,
        store: Store,
        tasks: asyncio.TaskGroup,
        record_loop: RecordLoop[Campaign],
        fleet_load: FleetLoad,
        *,
        checker: GateChecker,
        notifier: Notifier,
        guards: Callable[[], Guards],
        set_timer: Callable[[str, datetime | None], None],
        on_capacity: Callable[[], None],
        on_finished: Callable[["CampaignRunner"], None],
    ) -> None:
        self.id = campaign.id
        self.record = campaign
        self._scopes = scopes
        self._tasks = tasks
        self._record_loop = record_loop
        self._fleet_load = fleet_load
        self._notifier = notifier
        self.duty_guards = guards
        """Returns the guards of everything that the duty to run campaigns saves."""
        self._set_timer = set_timer
        self._on_capacity = on_capacity
        self._on_finished = on_finished
        self.index = CampaignIndex(campaign, scopes.rule_context, find_zone)
        self.blockers = CampaignBlockers()
        """The blockers of the last decision."""
        self._unsaved = _Unsaved(campaign)
        self._executing: set[Action] = set()
        self._results: list[ActionResult] = []
        self._executor = ActionExecutor(self, scopes, store, checker=checker)
        self._dirty: set[str] = set()
        self._lock = asyncio.Lock()
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._fair_share = FairShare()
        self._is_woken = False
        self._is_running = False
        self._is_notifying = False
        self._lifecycle = _Lifecycle.CURRENT
        self._running_tasks: set[asyncio.Task[None]] = set()
        self._latest = campaign.started_at

    @property
    def is_busy(self) -> bool:
        """Whether a task is running that does not wait for the clock."""
        return self._is_running or bool(self._executing)

    @property
    def newest(self) -> Campaign:
        """The newest saved record, by any process; aborted if it was deleted. What rests on it needs `guards`."""
        newest, _ = self._record_loop.newest(self.id)
        return newest or msgspec.structs.replace(self.record, state=CampaignState.ABORTED, notifications=())

    def guards(self) -> Guards:
        """Return the campaign's record with its known revision, and the guards of the duty."""
        return {**self.duty_guards(), **self._record_loop.guards(self.id)}

    def now(self) -> datetime:
        """Return the campaign's time, which does not go back if the clock is set back."""
        self._latest = max(self._latest, self._scopes.clock.now())
        return self._latest

    def mark_changed(self, scope: str) -> None:
        """Mark a scope of the campaign as changed."""
        self._dirty.add(scope)
        self.wake()

    def wake(self) -> None:
        """Schedule the next step of the loop, unless the duty was stopped."""
        if self._lifecycle is _Lifecycle.STOPPED:
            return
        self._is_woken = True
        if not self._is_running:
            self._is_running = True
            self._create_task(self._run(), name=f"campaign {self.record.name}")

    def on_record_changed(self, record: Campaign) -> None:
        """Continue from the saved record if a person or another process has changed it."""
        if self._lifecycle is _Lifecycle.CURRENT and record not in (self._unsaved.record, self.record):
            self._lifecycle = _Lifecycle.OUTDATED
            self.wake()

    def halt(self) -> None:
        """Cancel all tasks; decide and execute nothing more."""
        self._lifecycle = _Lifecycle.STOPPED
        self._drop_unsaved()
        self._set_timer(self.id, None)
        for task in self._running_tasks:
            task.cancel()

    async def stop(self) -> None:
        """Decide and execute nothing more. On return no task is running."""
        self.halt()
        if self._running_tasks:
            await asyncio.wait(tuple(self._running_tasks))

    def _create_task(self, work: Coroutine[object, object, None], *, name: str) -> None:
        task = self._tasks.create_task(work, name=name)
        self._running_tasks.add(task)
        task.add_done_callback(self._running_tasks.discard)

    def on_record_deleted(self) -> None:
        """Stop, because another process has deleted the record."""
        self._lifecycle = _Lifecycle.DELETED
        self.record = self.newest
        self._drop_unsaved()
        self._set_timer(self.id, None)
        self.wake()

    # Observing, deciding, saving.

    async def _run(self) -> None:
        pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
        try:
            while self._is_woken and self._lifecycle is not _Lifecycle.DELETED:
                self._is_woken = False
                try:
                    async with self._lock:
                        await self._step()
                except SAVE_ERRORS as error:
                    pause = next(pauses)
                    log.warning("campaign %s waits: %s; retrying in %.1f s", self.record.name, error, pause)
                    self._reset()
                    self._is_woken = True
                    await asyncio.sleep(pause)
                else:
                    pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
        finally:
            self._is_running = False
        if self.record.notifications and self._notifier.has_receivers and not self._is_notifying:
            self._is_notifying = True
            self._create_task(self._deliver_notifications(), name=f"notifications of campaign {self.record.name}")
        if is_finished(self.record, self._notifier) and not self._executing:
            self._on_finished(self)

    async def _step(self) -> None:
        self.duty_guards()  # with a wrong clock nothing is decided
        if not self._scopes.has_clock and self._scopes.clock.now() < self.record.started_at:
            # A process whose clock is fast has started it: the time of the campaign would be ahead of this clock.
            self._set_timer(self.id, self.record.started_at)
            return
        self._follow_record()
        self._follow_context()
        results, self._results = self._results, []
        for result in results:
            await self._fair_share.wait_turn()
            self._take(apply_result(self._unsaved.record, self.index, result, now=self.now(), notify=self._notify))
            self._dirty.add(result.action.scope)  # observe it after the result, and not only before
        await self._observe_scopes()
        await self._decide()
        if not await self._save():
            self._is_woken = True
            return
        actions, self._unsaved = self._unsaved.actions, _Unsaved(self.record)
        for action in actions:
            await self._fair_share.wait_turn()
            self._start_action(action)

    @property
    def _notify(self) -> bool:
        return self._notifier.has_receivers

    async def _decide(self) -> None:
        """Decide until nothing is left to decide, or enough for one save."""
        for left in range(MAX_DECISIONS, 0, -1):
            decision = decide(self._unsaved.record, self.index, self._fleet_load, now=self.now(), notify=self._notify)
            self._take(decision)
            if not decision.has_more or left == 1:
                self.blockers = decision.blockers
                self._set_timer(self.id, decision.wake_at)
                self._is_woken = self._is_woken or decision.has_more
                break
            await asyncio.sleep(0)

    def _follow_record(self) -> None:
        """Continue from a changed record. All decisions made here are then either saved or discarded."""
        if self._lifecycle is _Lifecycle.OUTDATED:
            self._lifecycle = _Lifecycle.CURRENT
            self.record = self.newest
            self._drop_unsaved()
            self.index.rebase(self.record)

    def _follow_context(self) -> None:
        """Continue with the current context of the rules.

        Everything is derived again if the hold or the policy has changed. If a host became silent or was heard, the
        scheduler notifies this runner of its scopes.
        """
        old, new = self.index.context, self._scopes.rule_context
        if new is old:
            return
        if (new.policy, new.hold) != (old.policy, old.hold):
            self.index = CampaignIndex(self._unsaved.record, new, find_zone, pending=self.index.pending)
        else:
            self.index.context = new

    async def _observe_scopes(self) -> None:
        """Observe every changed scope, in short time slices."""
        while not self._unsaved.record.state.is_over and (changed := self._dirty | self.index.stale):
            self._dirty = set()
            for id_ in sorted(changed, key=self.index.positions.__getitem__):
                await self._fair_share.wait_turn()
                self._follow_context()  # it can change at any wait
                scope, _ = self._scopes.replica.newest(id_)
                self.index = observe(self.index, id_, scope)

    def _take(self, decision: CampaignDecision) -> None:
        """Continue from a decision that is going to be saved.

        The load that is about to start is reserved, because other campaigns decide while this is being saved.
        """
        _, entries, actions = self._unsaved
        self._unsaved = _Unsaved(decision.record, entries + decision.entries, actions + decision.actions)
        for action in decision.actions:
            if isinstance(action, ClearWave):
                for event, load in zip(action.events, action.loads, strict=True):
                    self._fleet_load.reserve(event, load)

    def _release(self, *actions: Action) -> None:
        """Release what is reserved: the scope now shows the events, or they do not start."""
        for action in actions:
            if isinstance(action, ClearWave):
                self._fleet_load.release(action.events)

    def _drop_unsaved(self) -> None:
        """Return to the saved record. The index still has to be brought back to it.

        Another campaign may wait for the load that was reserved.
        """
        actions, self._unsaved = self._unsaved.actions, _Unsaved(self.record)
        self._release(*actions)
        is_cleared = any(isinstance(action, ClearWave) for action in actions)
        if is_cleared and self._lifecycle is not _Lifecycle.STOPPED:
            self._on_capacity()

    async def _save(self) -> bool:
        """Save the decisions, if they change anything. If the record was changed meanwhile, return False."""
        base, (record, entries, actions) = self.record, self._unsaved
        if record is base:
            return True

        def command(known: Campaign | None) -> Decision[Campaign, bool]:
            # The watch may have delivered our own record as another object.
            if known is base or known == base:
                return Decision(record, entries, True, self.duty_guards())
            return Decision(known, (), False)

        is_saved = await self._record_loop.apply(self.id, command)
        if not is_saved:
            self._reset()
        elif self._lifecycle is not _Lifecycle.DELETED:
            self.record, self._unsaved = record, _Unsaved(record, (), actions)
        return is_saved

    def _reset(self) -> None:
        """Return to the saved state. Decisions that have not begun are made again."""
        if self._lifecycle is _Lifecycle.OUTDATED:
            self._lifecycle = _Lifecycle.CURRENT
        self.record = self.newest
        self._drop_unsaved()
        pending = PendingActions()
        for action in self._executing:
            pending.add(action)
        self.index = CampaignIndex(self.record, self._scopes.rule_context, find_zone, pending=pending)

    # Executing.

    def _start_action(self, action: Action) -> None:
        self._executing.add(action)
        self._create_task(self._run_action(action), name=f"campaign {self.record.name}: {action}")

    async def _run_action(self, action: Action) -> None:
        """Execute an action; its result is applied together with everything else that has happened by then."""
        finding: Finding | None = None
        try:
            async with self._slots:
                finding = await self._executor.execute(action)
        except ScopeNotFound as gone:
            log.info("campaign %s: %s", self.record.name, gone)
        except CoreError as refusal:
            log.info("campaign %s: action %s was refused: %s", self.record.name, action, refusal)
        finally:
            self._release(action)
        if isinstance(action, ClearWave):
            self._on_capacity()
        self._executing.discard(action)
        self._results.append(ActionResult(action, finding))
        self.wake()

    # Notifications.

    async def _remove_notification(self, notification: Notification) -> None:
        """Save that a notification was delivered."""
        pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while notification in self.record.notifications:
            try:
                async with self._lock:
                    self._follow_record()
                    notifications = tuple(other for other in self.record.notifications if other != notification)
                    record = msgspec.structs.replace(self.record, notifications=notifications)
                    self._unsaved = _Unsaved(record)
                    self.index.rebase(record)
                    await self._save()
            except SAVE_ERRORS as error:
                log.warning("campaign %s: could not save that %s was delivered: %s", self.id, notification.what, error)
                self._reset()
                await asyncio.sleep(next(pauses))

    async def _deliver_notifications(self) -> None:
        try:
            await deliver_notifications(self._notifier, lambda: self.record, self._remove_notification)
        finally:
            self._is_notifying = False
        self.wake()
