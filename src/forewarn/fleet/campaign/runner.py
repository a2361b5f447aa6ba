"""Campaign runner: observe changes, decide, save, then execute the decided actions. Always in this order.

Whatever happens during a save waits, and is observed and saved together with the next step, because a record is large.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import datetime

import msgspec

from forewarn.core.backoff import backoff
from forewarn.core.campaign.actions import Action, ClearWave
from forewarn.core.campaign.load import FleetLoad
from forewarn.core.campaign.record import Campaign, CampaignState, Notification
from forewarn.core.campaign.rollout import Rollout
from forewarn.core.errors import CoreError
from forewarn.core.idempotency import IdempotencyKey, add_seen_key, is_repeated_request
from forewarn.core.scope import Scope
from forewarn.fleet.campaign.actions import MAX_BACKOFF, MIN_BACKOFF, CampaignActions, RolloutUpdate
from forewarn.fleet.campaign.time_zones import find_zone
from forewarn.fleet.errors import SaveFailed, ScopeNotFound
from forewarn.fleet.event_loop import FairShare
from forewarn.fleet.main_loop import Decision, RecordLoop
from forewarn.fleet.scopes import Scopes
from forewarn.platform.port import GateChecker, NotificationFailed, NotificationMessage, Notifier
from forewarn.store.port import Guards, Store

log = logging.getLogger(__name__)

MAX_CONCURRENT = 32
"""In how many scopes a campaign does something at the same time."""

MIN_NOTIFY_BACKOFF, MAX_NOTIFY_BACKOFF = 1.0, 300.0
"""Between attempts to tell others of a campaign, in seconds of real time."""

_STATES = {"started": CampaignState.RUNNING.value, "halted": CampaignState.HALTED.value}
"""In which state the campaign was of which others are told; of its end, the reason says it."""


class CampaignRunner:
    """Runs one campaign. `record` is what was last saved of it."""

    def __init__(
        self,
        campaign: Campaign,
        scopes: Scopes,
        store: Store,
        tasks: asyncio.TaskGroup,
        queues: RecordLoop[Campaign],
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
        self._queues = queues
        self._fleet_load = fleet_load
        self._notifier = notifier
        self._set_timer = set_timer
        self._on_finished = on_finished
        self.rollout = self._new_rollout()
        self._actions = CampaignActions(self, scopes, store, fleet_load, checker=checker, on_capacity=on_capacity)
        self._dirty: set[str] = set()
        self._updates: list[RolloutUpdate] = []
        self._lock = asyncio.Lock()
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._fair_share = FairShare()
        self._is_woken = False
        self._is_running = False
        self._is_notifying = False
        self._is_deleted = False
        self._is_outdated = False
        self._in_flight = 0
        self._running_tasks: set[asyncio.Task[None]] = set()
        self._latest = campaign.started_at

    @property
    def is_busy(self) -> bool:
        """Whether something is under way that does not wait for the clock."""
        return self._is_running or self._in_flight > 0

    @property
    def is_saved_as_running(self) -> bool:
        """Whether the newest record says that the campaign runs. What rests on that names `guards`."""
        newest, _ = self._queues.newest(self.id)
        return newest is not None and newest.state is CampaignState.RUNNING

    def guards(self) -> Guards:
        """Return the campaign's record at the revision that is known now."""
        return {self._queues.key(self.id): self._queues.revision_of(self.id)}

    def now(self) -> datetime:
        """Return the time by which the campaign goes: a clock that steps back does not take it along."""
        self._latest = max(self._latest, self._scopes.clock.now())
        return self._latest

    def mark_changed(self, scope: str) -> None:
        """A scope of the campaign has changed."""
        self._dirty.add(scope)
        self.wake()

    def reevaluate(self) -> None:
        """What holds outside the scopes has changed."""
        self._updates.append(Rollout.mark_all_unseen)
        self.wake()

    def wake(self) -> None:
        """Schedule the next step of the loop."""
        self._is_woken = True
        if not self._is_running:
            self._is_running = True
            self._create_task(self._run(), name=f"campaign {self.record.name}")

    def on_record_changed(self) -> None:
        """Another process has changed the record: go on from there."""
        self._is_outdated = True
        self.wake()

    async def stop(self) -> None:
        """Decide and do nothing more. On return nothing is under way."""
        self._is_deleted = True
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
        """The record is gone, and nobody of us has deleted it: decide nothing more, and do nothing more."""
        self._is_deleted = True
        self._release_undone()
        self.record = msgspec.structs.replace(self.record, state=CampaignState.ABORTED, notifications=())
        self._set_timer(self.id, None)
        self.wake()

    async def run_command(
        self,
        command: Callable[[Rollout, datetime], None],
        idempotency_key: IdempotencyKey | None,
        *,
        affected_scope: str | None = None,
    ) -> Campaign:
        """Do what a person says, save it, and return the campaign; what was said before changes nothing.

        What was about to be announced or to start rests on the record as it was before, and is decided again.
        """
        async with self._lock:
            now = self.now()
            if idempotency_key is not None and is_repeated_request(self.record.seen_keys, idempotency_key, now=now):
                return self.record
            command(self.rollout, now)  # refuses before it changes anything
            if idempotency_key is not None:
                self.rollout.set(seen_keys=add_seen_key(self.record.seen_keys, idempotency_key, now=now))
            try:
                await self._save()
            except SaveFailed:
                self._reset()
                self.wake()
                raise
            record = self.record
        if affected_scope is not None:
            self._dirty.add(affected_scope)
        self.wake()
        return record

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
        self._start_notifying()
        is_notified = not self.record.notifications or not self._notifier.has_receivers
        if self.record.state.is_over and is_notified and not self._in_flight:
            self._on_finished(self)

    async def _step(self) -> None:
        if self._is_outdated:
            self._is_outdated = False
            self.record = self._queues.newest(self.id)[0] or self.record
            self._reset()
        rollout = self.rollout
        updates, self._updates = self._updates, []
        for update in updates:
            await self._fair_share.wait_turn()
            update(rollout)
        await self._observe_scopes()
        rollout.decide(self._fleet_load, self._scope, self._scopes.rule_context, now=self.now())
        if rollout.is_changed:
            await self._save()
        actions, rollout.actions = rollout.actions, []
        for action in actions:
            await self._fair_share.wait_turn()
            self._start_action(action)
        self._set_timer(self.id, rollout.wake_at)
        self._is_woken = self._is_woken or rollout.has_more

    async def _observe_scopes(self) -> None:
        """See every scope that has changed, in turns with whatever else goes on."""
        while changed := self._dirty | self.rollout.unseen:
            self._dirty = set()
            for id_ in sorted(changed, key=self.rollout.index_of):
                await self._fair_share.wait_turn()
                self.rollout.observe(id_, self._scope(id_), self._scopes.rule_context, now=self.now())

    def _scope(self, id_: str) -> Scope | None:
        return self._scopes.replica.newest(id_)[0]

    async def _save(self) -> None:
        base = self.record
        record, entries = self.rollout.take_changes()

        def command(known: Campaign | None) -> Decision[Campaign, None]:
            if known is None:
                raise SaveFailed("the campaign's record is gone")
            if known is not base:
                self.record = known
                raise SaveFailed("another process has changed the campaign: ask again")
            return Decision(record, entries, None)

        await self._queues.apply(self.id, command)
        self.record = record

    def _new_rollout(self) -> Rollout:
        return Rollout(self.record, find_zone, notify=self._notifier.has_receivers)

    def _reset(self) -> None:
        """Go back to what is saved. What was decided and not begun is decided again."""
        self._release_undone()
        self.rollout = self._new_rollout()

    def _release_undone(self) -> None:
        for action in self.rollout.actions:
            if isinstance(action, ClearWave):
                self._fleet_load.release(action.events)

    # Doing.

    def _start_action(self, action: Action) -> None:
        self._in_flight += 1
        self._create_task(self._run_action(action), name=f"campaign {self.record.name}: {action}")

    async def _run_action(self, action: Action) -> None:
        """Do what was decided, and have its result seen and saved with whatever else has happened by then."""
        update: RolloutUpdate | None = None
        try:
            async with self._slots:
                update = await self._actions.execute(action)
        except ScopeNotFound as gone:
            log.info("campaign %s: %s", self.record.name, gone)
        except CoreError as refusal:
            log.info("campaign %s could not do %s: %s", self.record.name, action, refusal)
        self._in_flight -= 1
        self._updates.append(lambda rollout: self._apply_update(rollout, action, update))
        self.wake()

    def _apply_update(self, rollout: Rollout, action: Action, update: RolloutUpdate | None) -> None:
        """Take the result of what was done; its scope is seen after that, and not only before."""
        rollout.complete_action(action)
        if update is not None:
            update(rollout)
        self._dirty.add(action.scope)

    # Notifications.

    def _start_notifying(self) -> None:
        if self.record.notifications and self._notifier.has_receivers and not self._is_notifying:
            self._is_notifying = True
            self._create_task(self._send_notifications(), name=f"tell of campaign {self.record.name}")

    async def _send_notifications(self) -> None:
        """Tell others, in order, until nothing is left to tell; at least once, and after a crash once more."""
        pauses = backoff(MIN_NOTIFY_BACKOFF, MAX_NOTIFY_BACKOFF)
        try:
            while self.record.notifications:
                notification = self.record.notifications[0]
                if await self._try_notify(notification):
                    pauses = backoff(MIN_NOTIFY_BACKOFF, MAX_NOTIFY_BACKOFF)
                    await self._remove_notification(notification)
                else:
                    await asyncio.sleep(next(pauses))
        finally:
            self._is_notifying = False
        self.wake()

    async def _try_notify(self, notification: Notification) -> bool:
        try:
            await self._notifier.notify(self._message(notification))
        except NotificationFailed as error:
            log.warning("of campaign %s, %s is not told: %s", self.record.name, notification.what, error)
        except Exception:
            log.exception("of campaign %s, %s could not be told", self.record.name, notification.what)
        else:
            return True
        return False

    async def _remove_notification(self, notification: Notification) -> None:
        async with self._lock:
            notifications = tuple(other for other in self.record.notifications if other.n != notification.n)
            try:
                self.rollout.set(notifications=notifications)
                await self._save()
            except SaveFailed as error:
                log.warning("that %s was told is not saved: %s", notification.what, error)
                self._reset()
                await asyncio.sleep(MIN_BACKOFF)

    def _message(self, notification: Notification) -> NotificationMessage:
        campaign = self.record
        # Told again it must be the same, whatever has become of the campaign meanwhile.
        state = _STATES.get(notification.what, notification.why)
        facts = {"type": campaign.spec.type.value, "state": state, "by": campaign.by}
        return NotificationMessage(
            id=f"{campaign.id}-{notification.n}",
            campaign=campaign.id,
            name=campaign.name,
            what=notification.what,
            at=notification.at,
            why=notification.why,
            facts=facts,
        )
