"""Campaign runner: observe changes, decide, save, then execute the decided actions. Always in this order.

Whatever happens during a save waits, and is observed and saved together with the next step, because a record is large.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import datetime

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
from forewarn.fleet.campaign.actions import MAX_BACKOFF, MIN_BACKOFF, CampaignActions
from forewarn.fleet.campaign.notifications import deliver_notifications
from forewarn.fleet.campaign.time_zones import find_zone
from forewarn.fleet.errors import SaveFailed, ScopeNotFound
from forewarn.fleet.event_loop import FairShare
from forewarn.fleet.main_loop import Decision, RecordLoop
from forewarn.fleet.scopes import Scopes
from forewarn.platform.port import GateChecker, Notifier
from forewarn.store.port import Guards, Store

log = logging.getLogger(__name__)

MAX_CONCURRENT = 32
"""In how many scopes a campaign does something at the same time."""

MAX_DECISIONS = 20
"""How many decisions are saved together, at most."""


class CampaignRunner:
    """Runs one campaign. `record` is what was last saved of it; `index` goes by what was decided since then, too."""

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
        self._set_timer = set_timer
        self._on_finished = on_finished
        self.index = CampaignIndex(campaign, scopes.rule_context, find_zone)
        self.blockers = CampaignBlockers()
        """What keeps waves from going on, as it was last decided."""
        self._decided = campaign
        self._entries: list[Entry] = []
        """What was decided and is not saved yet: the record, and what the journal says of it."""
        self._notify = notifier.has_receivers
        self._undone: list[Action] = []
        """What was decided and not begun."""
        self._executing: set[Action] = set()
        self._results: list[ActionResult] = []
        self._actions = CampaignActions(self, scopes, store, fleet_load, checker=checker, on_capacity=on_capacity)
        self._dirty: set[str] = set()
        self._lock = asyncio.Lock()
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._fair_share = FairShare()
        self._is_woken = False
        self._is_running = False
        self._is_notifying = False
        self._is_deleted = False
        self._is_stopped = False
        self._is_outdated = False
        self._running_tasks: set[asyncio.Task[None]] = set()
        self._latest = campaign.started_at

    @property
    def is_busy(self) -> bool:
        """Whether something is under way that does not wait for the clock."""
        return self._is_running or bool(self._executing)

    @property
    def newest(self) -> Campaign:
        """What is saved of it now, by whichever process. What rests on that names `guards`."""
        newest, _ = self._record_loop.newest(self.id)
        return newest or msgspec.structs.replace(self.record, state=CampaignState.ABORTED)

    def guards(self) -> Guards:
        """Return the campaign's record at the revision that is known now."""
        return {self._record_loop.key(self.id): self._record_loop.revision_of(self.id)}

    def now(self) -> datetime:
        """Return the time by which the campaign goes: a clock that steps back does not take it along."""
        self._latest = max(self._latest, self._scopes.clock.now())
        return self._latest

    def mark_changed(self, scope: str) -> None:
        """A scope of the campaign has changed."""
        self._dirty.add(scope)
        self.wake()

    def wake(self) -> None:
        """Schedule the next step of the loop, unless the duty to run it was given back."""
        if self._is_stopped:
            return
        self._is_woken = True
        if not self._is_running:
            self._is_running = True
            self._create_task(self._run(), name=f"campaign {self.record.name}")

    def on_record_changed(self, record: Campaign) -> None:
        """The record was saved. If a person or another process has changed it, go on from there."""
        if record not in (self._decided, self.record):
            self._is_outdated = True
            self.wake()

    async def stop(self) -> None:
        """Decide and do nothing more. On return nothing is under way."""
        self._is_stopped = True
        self._release_undone()
        self._set_timer(self.id, None)
        tasks = tuple(self._running_tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _create_task(self, work: Coroutine[object, object, None], *, name: str) -> None:
        task = self._tasks.create_task(work, name=name)
        self._running_tasks.add(task)
        task.add_done_callback(self._running_tasks.discard)

    def on_record_deleted(self) -> None:
        """Another process has deleted the record: decide nothing more, and do nothing more."""
        self._is_deleted = True
        self._release_undone()
        self.record = msgspec.structs.replace(self.record, state=CampaignState.ABORTED, notifications=())
        self._set_timer(self.id, None)
        self.wake()

    # Seeing, deciding, saving.

    async def _run(self) -> None:
        pauses = backoff(MIN_BACKOFF, MAX_BACKOFF)
        try:
            while self._is_woken and not self._is_deleted:
                self._is_woken = False
                try:
                    async with self._lock:
                        await self._step()
                except SaveFailed as error:
                    pause = next(pauses)
                    log.warning("campaign %s waits: %s; trying again in %.1f s", self.record.name, error, pause)
                    self._reset()
                    self._is_woken = True
                    await asyncio.sleep(pause)
                else:
                    pauses = backoff(MIN_BACKOFF, MAX_BACKOFF)
        finally:
            self._is_running = False
        if self.record.notifications and self._notifier.has_receivers and not self._is_notifying:
            self._is_notifying = True
            self._create_task(self._deliver_notifications(), name=f"notifications of campaign {self.record.name}")
        is_notified = not self.record.notifications or not self._notifier.has_receivers
        if self.record.state.is_over and is_notified and not self._executing:
            self._on_finished(self)

    async def _step(self) -> None:
        self._follow_record()
        self._follow_context()
        results, self._results = self._results, []
        for result in results:
            await self._fair_share.wait_turn()
            self._take(apply_result(self._decided, self.index, result, now=self.now(), notify=self._notify))
            self._dirty.add(result.action.scope)  # it is observed after the result, and not only before
        await self._observe_scopes()
        actions = await self._decide()
        if not await self._save():
            self._is_woken = True
            return
        self._undone = []
        for action in actions:
            await self._fair_share.wait_turn()
            self._start_action(action)

    async def _decide(self) -> list[Action]:
        """Decide until there is nothing more to decide, or enough for one save; return what is to be done."""
        for left in range(MAX_DECISIONS, 0, -1):
            decision = decide(self._decided, self.index, self._fleet_load, now=self.now(), notify=self._notify)
            self._take(decision)
            self._reserve(decision.actions)
            if not decision.has_more or left == 1:
                self.blockers = decision.blockers
                self._set_timer(self.id, decision.wake_at)
                self._is_woken = self._is_woken or decision.has_more
                break
            await asyncio.sleep(0)
        return list(self._undone)

    def _follow_record(self) -> None:
        """Where the record was changed, go on from there. Everything that was decided here is saved or given up."""
        if self._is_outdated:
            self._is_outdated = False
            self.record = self._decided = self._newest_record()
            self.index.rebase(self.record)

    def _newest_record(self) -> Campaign:
        newest, _ = self._record_loop.newest(self.id)
        return newest or self.record

    def _follow_context(self) -> None:
        """Where another hold or policy is in force, everything is derived from the scopes again."""
        old, new = self.index.context, self._scopes.rule_context
        if new is not old and (new.policy, new.hold) != (old.policy, old.hold):
            self.index = CampaignIndex(self._decided, new, find_zone, pending=self.index.pending)

    async def _observe_scopes(self) -> None:
        """See every scope that has changed, in turns with whatever else goes on."""
        while not self._decided.state.is_over and (changed := self._dirty | self.index.stale):
            self._dirty = set()
            for id_ in sorted(changed, key=self.index.positions.__getitem__):
                await self._fair_share.wait_turn()
                scope, _ = self._scopes.replica.newest(id_)
                observe(self.index, id_, scope)

    def _take(self, decision: CampaignDecision) -> None:
        """Go on from a decision, which is to be saved."""
        self._decided = decision.record
        self._entries += decision.entries

    def _reserve(self, actions: tuple[Action, ...]) -> None:
        """Count what is about to start, as others decide while this is saved."""
        self._undone += actions
        for action in actions:
            if isinstance(action, ClearWave):
                for event, load in zip(action.events, action.loads, strict=True):
                    self._fleet_load.reserve(event, load)

    async def _save(self) -> bool:
        """Save what was decided, if it changes anything. If the record was changed meanwhile, give it up: False."""
        base, record, entries = self.record, self._decided, tuple(self._entries)
        if record is base:
            return True

        def command(known: Campaign | None) -> Decision[Campaign, bool]:
            # The watch may have brought our own record, as another object.
            if known is base or known == base:
                return Decision(record, entries, True)
            return Decision(known, (), False)

        is_saved = await self._record_loop.apply(self.id, command)
        if not is_saved:
            self._reset()
        elif not self._is_deleted:
            self.record, self._entries = record, []
        return is_saved

    def _reset(self) -> None:
        """Go back to what is saved. What was decided and not begun is decided again."""
        self._release_undone()
        self._is_outdated = False
        self.record = self._decided = self._newest_record()
        self._entries, self._notify = [], self._notifier.has_receivers
        pending = PendingActions()
        for action in self._executing:
            pending.add(action)
        self.index = CampaignIndex(self.record, self._scopes.rule_context, find_zone, pending=pending)

    def _release_undone(self) -> None:
        for action in self._undone:
            if isinstance(action, ClearWave):
                self._fleet_load.release(action.events)
        self._undone = []

    # Doing.

    def _start_action(self, action: Action) -> None:
        self._executing.add(action)
        self._create_task(self._run_action(action), name=f"campaign {self.record.name}: {action}")

    async def _run_action(self, action: Action) -> None:
        """Do what was decided; its result is taken with whatever else has happened by then."""
        finding: Finding | None = None
        try:
            async with self._slots:
                finding = await self._actions.execute(action)
        except ScopeNotFound as gone:
            log.info("campaign %s: %s", self.record.name, gone)
        except CoreError as refusal:
            log.info("campaign %s could not do %s: %s", self.record.name, action, refusal)
        self._executing.discard(action)
        self._results.append(ActionResult(action, finding))
        self.wake()

    # Notifications.

    async def _remove_notification(self, notification: Notification) -> None:
        """Save that a notification was delivered."""
        while notification in self.record.notifications:
            try:
                async with self._lock:
                    self._follow_record()
                    notifications = tuple(other for other in self.record.notifications if other != notification)
                    self._decided = msgspec.structs.replace(self._decided, notifications=notifications)
                    self.index.rebase(self._decided)
                    await self._save()
            except SaveFailed as error:
                log.warning("campaign %s: could not save that %s was delivered: %s", self.id, notification.what, error)
                self._reset()
                await asyncio.sleep(MIN_BACKOFF)

    async def _deliver_notifications(self) -> None:
        try:
            await deliver_notifications(self._notifier, lambda: self.record, self._remove_notification)
        finally:
            self._is_notifying = False
        self.wake()
