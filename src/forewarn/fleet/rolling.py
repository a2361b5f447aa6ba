"""Carrying one campaign on: see what has changed, decide, save, and do what was decided. In this order, always.

Whatever happens while something is being saved waits, and is seen and saved together: a record is large.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import NamedTuple, Protocol, TypeVar

from forewarn.clock import Clock
from forewarn.core import operations, work
from forewarn.core.campaign.actions import (
    Action,
    Announce,
    AskGate,
    Clear,
    Close,
    Recall,
    TryAgain,
    Withdraw,
)
from forewarn.core.campaign.load import Impacted
from forewarn.core.campaign.pace import notice_of
from forewarn.core.campaign.record import Campaign, CampaignState, Notice, WaveState
from forewarn.core.campaign.running import Course
from forewarn.core.campaign.selection import Chooser
from forewarn.core.campaign.story import READ, Story, read
from forewarn.core.change import Change
from forewarn.core.conditions import Conditions
from forewarn.core.errors import CoreError
from forewarn.core.event import STUCK, State
from forewarn.core.explain import CAMPAIGN
from forewarn.core.journal import Entry
from forewarn.core.once import Once, remembered, was_answered
from forewarn.core.schedule import Ask, schedule, whole_second
from forewarn.core.scope import Scope
from forewarn.fleet.errors import NoSuchScope, NotSaved
from forewarn.fleet.queue import Decision, Queues
from forewarn.fleet.replica import Replica
from forewarn.fleet.turns import Turns
from forewarn.fleet.zones import zone_named
from forewarn.platform.port import Checker, Message, Messenger, Open, Question, Shut, Undelivered
from forewarn.store.port import JournalQuery, Key, Kind, Store, StoreError

log = logging.getLogger(__name__)
R = TypeVar("R")

AT_ONCE = 32
"""In how many scopes a campaign does something at the same time."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Between attempts to save or read what a campaign cannot go on without, in seconds of real time."""

FIRST_DELAY, LONGEST_DELAY = 1.0, 300.0
"""Between attempts to tell others of a campaign, in seconds of real time."""

LONGEST_START = 5.0
"""How long, in seconds, whoever stops a campaign waits for what was about to start."""

PAGE = 5_000
"""How many lines of a scope's journal are read at a time."""


class Scopes(Protocol):
    """What a campaign needs of the fleet."""

    clock: Clock
    replica: Replica

    @property
    def conditions(self) -> Conditions:
        """What holds outside the scopes."""
        ...

    async def apply(self, id_: str, rule: Callable[[Scope], Change[R]]) -> R:
        """Apply a rule to a scope and save."""
        ...


class _Announced(NamedTuple):
    """The events that a wave has in its scope."""

    vms: int
    not_before: datetime | None


class _Changed(NotSaved):
    """Another process has changed the record."""

    def __init__(self, known: Campaign | None) -> None:
        self.known = known
        super().__init__("another process has changed the campaign: ask again")


class Rolling:
    """One campaign under way. `record` is what was last saved of it."""

    def __init__(
        self,
        campaign: Campaign,
        scopes: Scopes,
        store: Store,
        tasks: asyncio.TaskGroup,
        queues: Queues[Campaign],
        impacted: Impacted,
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
        self._store = store
        self._tasks = tasks
        self._queues = queues
        self._impacted = impacted
        self._checker = checker
        self._messenger = messenger
        self._set_alarm = set_alarm
        self._on_room = on_room
        self._on_over = on_over
        self.course = self._new_course()
        self._chooser = Chooser(campaign.spec.selection)
        self._dirty: set[str] = set()
        self._results: list[Callable[[Course], None]] = []
        self._one_at_a_time = asyncio.Lock()
        self._few = asyncio.Semaphore(AT_ONCE)
        self._turns = Turns()
        self._is_woken = False
        self._is_running = False
        self._is_telling = False
        self._under_way = 0
        self._clearing: set[asyncio.Task[None]] = set()
        self._latest = campaign.started_at

    @property
    def is_busy(self) -> bool:
        """Whether something is under way that does not wait for the clock."""
        return self._is_running or self._under_way > 0

    def _now(self) -> datetime:
        """Return the time by which the campaign goes: a clock that steps back does not take it along."""
        self._latest = max(self._latest, self._scopes.clock.now())
        return self._latest

    def note(self, scope: str) -> None:
        """A scope of the campaign has changed."""
        self._dirty.add(scope)
        self.wake()

    def look_again(self) -> None:
        """What holds outside the scopes has changed."""
        self._results.append(Course.look_again)
        self.wake()

    def wake(self) -> None:
        """See what is to be done."""
        self._is_woken = True
        if not self._is_running:
            self._is_running = True
            self._tasks.create_task(self._run(), name=f"campaign {self.record.name}")

    async def steer(
        self, do: Callable[[Course, datetime], None], once: Once | None, *, touching: str | None = None
    ) -> Campaign:
        """Do what a person says, save it, and return the campaign; what was said before changes nothing.

        On return, what was about to start when it was said has started.
        """
        async with self._one_at_a_time:
            now = self._now()
            if once is not None and was_answered(self.record.answered, once, now=now):
                return self.record
            do(self.course, now)  # refuses before it changes anything
            if once is not None:
                self.course.set(answered=remembered(self.record.answered, once, now=now))
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
            while self._is_woken:
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
        if self.record.state.is_over and not self.record.untold and not self._under_way:
            self._on_over(self)

    async def _step(self) -> None:
        course = self.course
        results, self._results = self._results, []
        for take in results:
            take(course)
        await self._see()
        course.decide(self._impacted, self._scope, self._scopes.conditions, now=self._now())
        if course.is_changed:
            await self._save()
        actions, course.actions = course.actions, []
        for action in actions:
            self._do(action)
        self._set_alarm(self.id, course.wake_at)
        self._is_woken = self._is_woken or course.has_more

    async def _see(self) -> None:
        """See every scope that has changed, in turns with whatever else goes on."""
        while seeing := self._dirty | self.course.unseen:
            self._dirty = set()
            for id_ in sorted(seeing, key=self.course.place):
                await self._turns.mine()
                self.course.see(id_, self._scope(id_), self._scopes.conditions, now=self._now())

    def _scope(self, id_: str) -> Scope | None:
        return self._scopes.replica.newest(id_)[0]

    async def _save(self) -> None:
        base = self.record
        record, entries = self.course.taken()

        def command(known: Campaign | None) -> Decision[Campaign, None]:
            if known is not base:
                raise _Changed(known)
            return Decision(record, entries, None)

        try:
            await self._queues.apply(self.id, command)
        except _Changed as changed:
            self.record = changed.known or base
            raise
        self.record = record

    def _new_course(self) -> Course:
        return Course(self.record, zone_named, listens=self._messenger.listens)

    def _begin_anew(self) -> None:
        """Go back to what is saved. What was decided and not begun is decided again."""
        for action in self.course.actions:
            if isinstance(action, Clear):
                self._impacted.release(action.events)
        self.course = self._new_course()

    # Doing.

    def _do(self, action: Action) -> None:
        self._under_way += 1
        task = self._tasks.create_task(self._own(action), name=f"campaign {self.record.name}: {action}")
        if isinstance(action, Clear):
            self._clearing.add(task)
            task.add_done_callback(self._clearing.discard)

    async def _own(self, action: Action) -> None:
        """Do what was decided, and have its result seen and saved with whatever else has happened by then."""
        result: Callable[[Course], None] | None = None
        try:
            async with self._few:
                result = await self._result_of(action)
        except NoSuchScope as gone:
            log.info("campaign %s: %s", self.record.name, gone)
        except CoreError as refusal:
            log.info("campaign %s could not do %s: %s", self.record.name, action, refusal)
        self._under_way -= 1
        self._results.append(lambda course: self._take(course, action, result))
        self.wake()

    def _take(self, course: Course, action: Action, result: Callable[[Course], None] | None) -> None:
        """Take the result of what was done; its scope is seen after that, and not only before."""
        course.over(action)
        if result is not None:
            result(course)
        self._dirty.add(action.scope)

    async def _result_of(self, action: Action) -> Callable[[Course], None] | None:
        match action:
            case Announce():
                return await self._announce(action)
            case Clear():
                await self._clear(action)
            case Withdraw():
                await self._withdraw(action)
            case TryAgain():
                await self._try_again(action)
            case Recall():
                return await self._recall(action)
            case Close():
                return await self._close(action)
            case AskGate():
                return await self._ask_gate(action)
        return None

    async def _announce(self, action: Announce) -> Callable[[Course], None] | None:
        """Make the events of a wave for the VMs that it has now, and that are not done."""
        story = await self._story(action.scope)

        def refused(course: Course, why: str) -> None:
            progress = course.progress(action.scope)
            if progress.wave(action.n).state is WaveState.PLANNED:
                course.fail(progress, action.n, why, now=self._now())

        try:
            made = await self._surely(
                lambda: self._scopes.apply(action.scope, lambda scope: self._announced(scope, action, story))
            )
        except CoreError as refusal:
            why = str(refusal)
            return lambda course: refused(course, why)
        if made is None:
            return None
        return lambda course: course.announced(
            action.scope,
            action.n,
            vms=made.vms,
            not_before=made.not_before,
            seen=story.seen,
            differences=story.differences,
            now=self._now(),
        )

    def _announced(self, scope: Scope, action: Announce, story: Story) -> Change[_Announced | None]:
        if self.record.state is not CampaignState.RUNNING:
            return Change(scope, (), None)
        spec, conditions = self.record.spec, self._scopes.conditions
        now = max(self._scopes.clock.now(), scope.changed_at)
        request = self.record.request(scope.id, action.n)
        domain = self.course.progress(scope.id).wave(action.n).update_domain
        names = tuple(
            vm.name for vm in self._chooser.chosen(scope) if vm.update_domain == domain and vm.name not in story.done
        )
        made = [event for event in scope.events if event.request == request]
        if not names and not made:
            return Change(scope, (), _Announced(0, None))
        ask = Ask(
            id=request,
            type=spec.type,
            vms=names or made[0].vms,
            by=f"{CAMPAIGN}{spec.name}",
            not_before=max(action.start, whole_second(now + notice_of(spec, conditions))),
            duration=spec.duration,
            description=spec.description,
            campaign=self.id,
            wave=action.n,
        )
        change = schedule(scope, ask, conditions, now=now)
        events = [event for event in (change.scope or scope).events if event.request == request]
        result = _Announced(sum(len(event.vms) for event in events), max(event.not_before for event in events))
        return Change(change.scope, change.entries, result)

    async def _clear(self, action: Clear) -> None:
        """Let events start, unless the campaign was stopped meanwhile."""

        def rule(scope: Scope) -> Change[tuple[str, ...]]:
            if self.record.state is not CampaignState.RUNNING:
                return Change(scope, (), ())
            return operations.clear(scope, action.events, self._scopes.conditions, now=self._scopes.clock.now())

        try:
            await self._surely(lambda: self._scopes.apply(action.scope, rule))
        finally:
            self._impacted.release(action.events)
        self._on_room()

    async def _withdraw(self, action: Withdraw) -> None:
        def rule(scope: Scope) -> Change[None]:
            event, now, conditions = scope.find_event(action.event), self._scopes.clock.now(), self._scopes.conditions
            if event is None:
                return Change(scope, (), None)
            if event.state is State.SCHEDULED:
                return operations.cancel(scope, event.id, conditions, by=action.by, now=now, why=action.why)
            return work.resolve(scope, event.id, conditions, by=action.by, why=action.why, now=now)

        await self._surely(lambda: self._scopes.apply(action.scope, rule))

    async def _try_again(self, action: TryAgain) -> None:
        def rule(scope: Scope) -> Change[None]:
            event = scope.find_event(action.event)
            if event is None or not any(impact.state in STUCK for impact in event.impacts):
                return Change(scope, (), None)
            return work.retry(scope, event.id, by=action.by, now=self._scopes.clock.now())

        await self._surely(lambda: self._scopes.apply(action.scope, rule))

    async def _recall(self, action: Recall) -> Callable[[Course], None]:
        story = await self._story(action.scope)
        outcomes = story.outcomes.get(action.n, ())

        def take(course: Course) -> None:
            progress = course.progress(action.scope)
            if not progress.wave(action.n).state.is_open:
                return
            now = self._now()
            if outcomes:
                course.settle(progress, action.n, outcomes, now=now)
            else:
                course.fail(progress, action.n, "nobody knows how it has ended", now=now)

        return take

    async def _close(self, action: Close) -> Callable[[Course], None]:
        story = await self._story(action.scope)
        scope = self._scope(action.scope)
        skipped = {
            wave.update_domain for wave in self.course.progress(action.scope).waves if wave.state is WaveState.SKIPPED
        }
        left: dict[int, int] = {}
        for vm in self._chooser.chosen(scope) if scope is not None else ():
            is_passed_over = vm.update_domain in skipped and vm.name not in story.dropped
            if vm.name not in story.touched and not is_passed_over:
                left[vm.update_domain] = left.get(vm.update_domain, 0) + 1
        return lambda course: course.closed(action.scope, left, now=self._now())

    async def _ask_gate(self, action: AskGate) -> Callable[[Course], None]:
        spec, asked_at = self.record.spec, self._now()
        answer: Open | Shut = Shut("there is no gate")
        if spec.policy.gate is not None:
            question = Question(
                gate=spec.policy.gate, campaign=self.id, name=spec.name, scope=action.scope, wave=action.n
            )
            try:
                answer = await self._checker.check(question)
            except Exception as error:
                log.exception("the gate of campaign %s could not be asked", spec.name)
                answer = Shut(f"it could not be asked: {error!r}")
        if isinstance(answer, Shut):
            why = answer.why
            return lambda course: course.gate_is_shut(why, now=self._now())
        return lambda course: course.gate_is_open(asked_at=asked_at, now=self._now())

    async def _story(self, scope: str) -> Story:
        """Read what the journal of a scope says since the campaign began."""
        entries: list[Entry] = []
        after = 0
        while True:
            query = JournalQuery(
                key=Key(Kind.SCOPE, scope), dids=READ, since=self.record.started_at, after=after, limit=PAGE
            )
            rows = await self._surely(lambda: self._store.journal(query))  # noqa: B023 - awaited at once
            entries += [row.entry for row in rows]
            if len(rows) < PAGE:
                await self._turns.mine()
                return read(entries, self.id, seen=self.course.progress(scope).seen)
            after = rows[-1].position

    async def _surely(self, do: Callable[[], Awaitable[R]]) -> R:
        """Do it, again and again while the store cannot."""
        pause = FIRST_PAUSE
        while True:
            try:
                return await do()
            except (NotSaved, StoreError) as error:
                log.warning("%s; trying again in %.1f s", error, pause)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    # Telling others.

    def _tell_others(self) -> None:
        if self.record.untold and self._messenger.listens and not self._is_telling:
            self._is_telling = True
            self._tasks.create_task(self._told(), name=f"tell of campaign {self.record.name}")

    async def _told(self) -> None:
        """Tell others, in order, until nothing is left to tell; at least once, and after a crash once more."""
        delay = FIRST_DELAY
        try:
            while self.record.untold:
                notice = self.record.untold[0]
                try:
                    await self._messenger.tell(self._message(notice))
                except Undelivered as error:
                    log.warning("of campaign %s, %s is not told: %s", self.record.name, notice.what, error)
                    await asyncio.sleep(delay)
                    delay = min(delay * 2, LONGEST_DELAY)
                else:
                    delay = FIRST_DELAY
                    await self._forget(notice)
        finally:
            self._is_telling = False
        self.wake()

    async def _forget(self, notice: Notice) -> None:
        async with self._one_at_a_time:
            untold = tuple(other for other in self.record.untold if other.n != notice.n)
            try:
                self.course.set(untold=untold)
                await self._save()
            except NotSaved as error:
                log.warning("that %s was told is not saved: %s", notice.what, error)
                self._begin_anew()
                await asyncio.sleep(FIRST_PAUSE)

    def _message(self, notice: Notice) -> Message:
        campaign = self.record
        facts = {"type": campaign.spec.type.value, "state": campaign.state.value, "by": campaign.by}
        return Message(
            id=f"{campaign.id}-{notice.n}",
            campaign=campaign.id,
            name=campaign.name,
            what=notice.what,
            at=notice.at,
            why=notice.why,
            facts=facts,
        )
