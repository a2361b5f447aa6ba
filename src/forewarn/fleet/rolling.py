"""Carrying one campaign on: see what has changed, decide, save, and do what was decided. In this order, always.

Whatever happens while something is being saved waits, and is seen and saved together: a record is large.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

import msgspec

from forewarn.core.campaign.actions import Action, ClearWave
from forewarn.core.campaign.load import FleetLoad
from forewarn.core.campaign.record import Campaign, CampaignState, Notification
from forewarn.core.campaign.rollout import Rollout
from forewarn.core.errors import CoreError
from forewarn.core.idempotency import IdempotencyKey, add_seen_key, is_repeated_request
from forewarn.core.scope import Scope
from forewarn.fleet.errands import FIRST_PAUSE, LONGEST_PAUSE, Errands, Result
from forewarn.fleet.errors import NoSuchScope, NotSaved
from forewarn.fleet.queue import Decision, Queues
from forewarn.fleet.scopes import Scopes
from forewarn.fleet.turns import Turns
from forewarn.fleet.zones import zone_named
from forewarn.platform.port import Checker, Message, Messenger, Undelivered
from forewarn.store.port import Store

log = logging.getLogger(__name__)

AT_ONCE = 32
"""In how many scopes a campaign does something at the same time."""

FIRST_DELAY, LONGEST_DELAY = 1.0, 300.0
"""Between attempts to tell others of a campaign, in seconds of real time."""

LONGEST_START = 5.0
"""How long, in seconds, whoever stops a campaign waits for what was about to start."""

_STATES = {"started": CampaignState.RUNNING.value, "halted": CampaignState.HALTED.value}
"""In which state the campaign was of which others are told; of its end, the reason says it."""


class Rolling:
    """One campaign under way. `record` is what was last saved of it."""

    def __init__(
        self,
        campaign: Campaign,
        scopes: Scopes,
        store: Store,
        tasks: asyncio.TaskGroup,
        queues: Queues[Campaign],
        impacted: FleetLoad,
        *,
        checker: Checker,
        messenger: Messenger,
        set_alarm: Callable[[str, datetime | None], None],
        on_room: Callable[[], None],
        on_over: Callable[["Rolling"], None],
    ) -> None:
        self.id = campaign.id
        self.record = campaign
        self._scopes = scopes
        self._tasks = tasks
        self._queues = queues
        self._impacted = impacted
        self._messenger = messenger
        self._set_alarm = set_alarm
        self._on_over = on_over
        self.course = self._new_course()
        self._errands = Errands(self, scopes, store, impacted, checker=checker, on_room=on_room)
        self._dirty: set[str] = set()
        self._results: list[Result] = []
        self._one_at_a_time = asyncio.Lock()
        self._few = asyncio.Semaphore(AT_ONCE)
        self._turns = Turns()
        self._is_woken = False
        self._is_running = False
        self._is_telling = False
        self._is_lost = False
        self._under_way = 0
        self._clearing: set[asyncio.Task[None]] = set()
        self._latest = campaign.started_at

    @property
    def is_busy(self) -> bool:
        """Whether something is under way that does not wait for the clock."""
        return self._is_running or self._under_way > 0

    def now(self) -> datetime:
        """Return the time by which the campaign goes: a clock that steps back does not take it along."""
        self._latest = max(self._latest, self._scopes.clock.now())
        return self._latest

    def note(self, scope: str) -> None:
        """A scope of the campaign has changed."""
        self._dirty.add(scope)
        self.wake()

    def look_again(self) -> None:
        """What holds outside the scopes has changed."""
        self._results.append(Rollout.mark_all_unseen)
        self.wake()

    def wake(self) -> None:
        """See what is to be done."""
        self._is_woken = True
        if not self._is_running:
            self._is_running = True
            self._tasks.create_task(self._run(), name=f"campaign {self.record.name}")

    def lose(self) -> None:
        """The record is gone, and nobody of us has deleted it: decide nothing more, and do nothing more."""
        self._is_lost = True
        self._release_undone()
        self.record = msgspec.structs.replace(self.record, state=CampaignState.ABORTED, notifications=())
        self._set_alarm(self.id, None)
        self.wake()

    async def steer(
        self, do: Callable[[Rollout, datetime], None], once: IdempotencyKey | None, *, touching: str | None = None
    ) -> Campaign:
        """Do what a person says, save it, and return the campaign; what was said before changes nothing.

        On return, what was about to start when it was said has started.
        """
        async with self._one_at_a_time:
            now = self.now()
            if once is not None and is_repeated_request(self.record.seen_keys, once, now=now):
                return self.record
            do(self.course, now)  # refuses before it changes anything
            if once is not None:
                self.course.set(seen_keys=add_seen_key(self.record.seen_keys, once, now=now))
            try:
                await self._save()
            except NotSaved:
                self._begin_anew()
                self.wake()
                raise
            record = self.record
        if touching is not None:
            self._dirty.add(touching)
        self.wake()
        if self._clearing:
            await asyncio.wait(tuple(self._clearing), timeout=LONGEST_START)
        return record

    # Seeing, deciding, saving.

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        try:
            while self._is_woken and not self._is_lost:
                self._is_woken = False
                try:
                    async with self._one_at_a_time:
                        await self._step()
                except NotSaved as error:
                    log.warning("campaign %s waits: %s; trying again in %.1f s", self.record.name, error, pause)
                    self._begin_anew()
                    self._is_woken = True
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE)
                else:
                    pause = FIRST_PAUSE
        finally:
            self._is_running = False
        self._tell_others()
        is_told = not self.record.notifications or not self._messenger.listens
        if self.record.state.is_over and is_told and not self._under_way:
            self._on_over(self)

    async def _step(self) -> None:
        course = self.course
        results, self._results = self._results, []
        for take in results:
            await self._turns.mine()
            take(course)
        await self._see()
        course.decide(self._impacted, self._scope, self._scopes.conditions, now=self.now())
        if course.is_changed:
            await self._save()
        actions, course.actions = course.actions, []
        for action in actions:
            await self._turns.mine()
            self._do(action)
        self._set_alarm(self.id, course.wake_at)
        self._is_woken = self._is_woken or course.has_more

    async def _see(self) -> None:
        """See every scope that has changed, in turns with whatever else goes on."""
        while seeing := self._dirty | self.course.unseen:
            self._dirty = set()
            for id_ in sorted(seeing, key=self.course.index_of):
                await self._turns.mine()
                self.course.observe(id_, self._scope(id_), self._scopes.conditions, now=self.now())

    def _scope(self, id_: str) -> Scope | None:
        return self._scopes.replica.newest(id_)[0]

    async def _save(self) -> None:
        base = self.record
        record, entries = self.course.take_changes()

        def command(known: Campaign | None) -> Decision[Campaign, None]:
            if known is None:
                raise NotSaved("the campaign's record is gone")
            if known is not base:
                self.record = known
                raise NotSaved("another process has changed the campaign: ask again")
            return Decision(record, entries, None)

        await self._queues.apply(self.id, command)
        self.record = record

    def _new_course(self) -> Rollout:
        return Rollout(self.record, zone_named, notify=self._messenger.listens)

    def _begin_anew(self) -> None:
        """Go back to what is saved. What was decided and not begun is decided again."""
        self._release_undone()
        self.course = self._new_course()

    def _release_undone(self) -> None:
        for action in self.course.actions:
            if isinstance(action, ClearWave):
                self._impacted.release(action.events)

    # Doing.

    def _do(self, action: Action) -> None:
        self._under_way += 1
        task = self._tasks.create_task(self._own(action), name=f"campaign {self.record.name}: {action}")
        if isinstance(action, ClearWave):
            self._clearing.add(task)
            task.add_done_callback(self._clearing.discard)

    async def _own(self, action: Action) -> None:
        """Do what was decided, and have its result seen and saved with whatever else has happened by then."""
        result: Result | None = None
        try:
            async with self._few:
                result = await self._errands.result_of(action)
        except NoSuchScope as gone:
            log.info("campaign %s: %s", self.record.name, gone)
        except CoreError as refusal:
            log.info("campaign %s could not do %s: %s", self.record.name, action, refusal)
        self._under_way -= 1
        self._results.append(lambda course: self._take(course, action, result))
        self.wake()

    def _take(self, course: Rollout, action: Action, result: Result | None) -> None:
        """Take the result of what was done; its scope is seen after that, and not only before."""
        course.complete_action(action)
        if result is not None:
            result(course)
        self._dirty.add(action.scope)

    # Telling others.

    def _tell_others(self) -> None:
        if self.record.notifications and self._messenger.listens and not self._is_telling:
            self._is_telling = True
            self._tasks.create_task(self._told(), name=f"tell of campaign {self.record.name}")

    async def _told(self) -> None:
        """Tell others, in order, until nothing is left to tell; at least once, and after a crash once more."""
        delay = FIRST_DELAY
        try:
            while self.record.notifications:
                notice = self.record.notifications[0]
                if await self._is_told(notice):
                    delay = FIRST_DELAY
                    await self._forget(notice)
                else:
                    await asyncio.sleep(delay)
                    delay = min(delay * 2, LONGEST_DELAY)
        finally:
            self._is_telling = False
        self.wake()

    async def _is_told(self, notice: Notification) -> bool:
        try:
            await self._messenger.tell(self._message(notice))
        except Undelivered as error:
            log.warning("of campaign %s, %s is not told: %s", self.record.name, notice.what, error)
        except Exception:
            log.exception("of campaign %s, %s could not be told", self.record.name, notice.what)
        else:
            return True
        return False

    async def _forget(self, notice: Notification) -> None:
        async with self._one_at_a_time:
            untold = tuple(other for other in self.record.notifications if other.n != notice.n)
            try:
                self.course.set(notifications=untold)
                await self._save()
            except NotSaved as error:
                log.warning("that %s was told is not saved: %s", notice.what, error)
                self._begin_anew()
                await asyncio.sleep(FIRST_PAUSE)

    def _message(self, notice: Notification) -> Message:
        campaign = self.record
        # Told again it must be the same, whatever has become of the campaign meanwhile.
        state = _STATES.get(notice.what, notice.why)
        facts = {"type": campaign.spec.type.value, "state": state, "by": campaign.by}
        return Message(
            id=f"{campaign.id}-{notice.n}",
            campaign=campaign.id,
            name=campaign.name,
            what=notice.what,
            at=notice.at,
            why=notice.why,
            facts=facts,
        )
