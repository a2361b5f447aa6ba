"""What a campaign has decided, done: in the scopes, in the journal, at the gate. Each comes back with its result.

A result is what the campaign is told of it: a change of its course, saved with whatever else has happened by then.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import NamedTuple, Protocol, TypeVar

from forewarn.core import impact_lifecycle, operations
from forewarn.core.campaign.actions import (
    Action,
    AnnounceWave,
    CheckGate,
    ClearWave,
    CloseScope,
    ReadOutcome,
    RetryEvent,
    WithdrawEvent,
)
from forewarn.core.campaign.durations import wave_notice
from forewarn.core.campaign.history import RELEVANT_KINDS, ScopeHistory, read_history
from forewarn.core.campaign.load import FleetLoad
from forewarn.core.campaign.record import Campaign, CampaignState, WaveState
from forewarn.core.campaign.rollout import Rollout
from forewarn.core.campaign.selection import Selector
from forewarn.core.change import Change
from forewarn.core.errors import CoreError
from forewarn.core.event import State
from forewarn.core.explain import CAMPAIGN_PREFIX
from forewarn.core.impact import STUCK
from forewarn.core.journal import Entry
from forewarn.core.schedule import ScheduleRequest, ceil_to_second, schedule
from forewarn.core.scope import Scope
from forewarn.fleet.errors import NotSaved
from forewarn.fleet.scopes import Scopes
from forewarn.fleet.turns import Turns
from forewarn.platform.port import Checker, Open, Question, Shut
from forewarn.store.port import JournalQuery, Key, Kind, Store, StoreError

log = logging.getLogger(__name__)
R = TypeVar("R")
Result = Callable[[Rollout], None]

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Between attempts to save or read what a campaign cannot go on without, in seconds of real time."""

PAGE = 5_000
"""How many lines of a scope's journal are read at a time."""


class _Announced(NamedTuple):
    """The events that a wave has in its scope."""

    vms: int
    not_before: datetime | None


class Owner(Protocol):
    """The campaign for which something is done."""

    @property
    def record(self) -> Campaign:
        """What was last saved of it."""
        ...

    @property
    def course(self) -> Rollout:
        """The campaign as it is worked on."""
        ...

    def now(self) -> datetime:
        """Return the time by which the campaign goes."""
        ...


class Errands:
    """Does what one campaign has decided."""

    def __init__(
        self,
        owner: Owner,
        scopes: Scopes,
        store: Store,
        impacted: FleetLoad,
        *,
        checker: Checker,
        on_room: Callable[[], None],
    ) -> None:
        self._owner = owner
        self._scopes = scopes
        self._store = store
        self._impacted = impacted
        self._checker = checker
        self._on_room = on_room
        self._chooser = Selector(owner.record.spec.selection)
        self._turns = Turns()

    async def result_of(self, action: Action) -> Result | None:
        match action:
            case AnnounceWave():
                return await self._announce(action)
            case ClearWave():
                await self._clear(action)
            case WithdrawEvent():
                await self._withdraw(action)
            case RetryEvent():
                await self._try_again(action)
            case ReadOutcome():
                return await self._recall(action)
            case CloseScope():
                return await self._close(action)
            case CheckGate():
                return await self._ask_gate(action)
        return None

    async def _announce(self, action: AnnounceWave) -> Result | None:
        """Make the events of a wave for the VMs that it has now, and that are not done."""
        story = await self._story(action.scope)

        def refused(course: Rollout, why: str) -> None:
            progress = course.progress(action.scope)
            if progress.wave(action.n).state is WaveState.PLANNED:
                course.fail(progress, action.n, why, now=self._owner.now())

        try:
            made = await self._surely(
                lambda: self._scopes.apply(action.scope, lambda scope: self._announced(scope, action, story))
            )
        except CoreError as refusal:
            why = str(refusal)
            return lambda course: refused(course, why)
        if made is None:
            return None
        return lambda course: course.record_announced(
            action.scope,
            action.n,
            vms=made.vms,
            not_before=made.not_before,
            seen=story.seen,
            differences=story.differences,
            now=self._owner.now(),
        )

    def _announced(self, scope: Scope, action: AnnounceWave, story: ScopeHistory) -> Change[_Announced | None]:
        if self._owner.record.state is not CampaignState.RUNNING:
            return Change(scope, (), None)
        spec, conditions = self._owner.record.spec, self._scopes.conditions
        now = max(self._owner.now(), scope.changed_at)
        request = self._owner.record.request(scope.id, action.n)
        domain = self._owner.course.progress(scope.id).wave(action.n).update_domain
        names = tuple(
            vm.name for vm in self._chooser.select(scope) if vm.update_domain == domain and vm.name not in story.done
        )
        made = [event for event in scope.events if event.request == request]
        if not names and not made:
            return Change(scope, (), _Announced(0, None))
        start = max(action.start, ceil_to_second(now + wave_notice(spec, conditions)))
        ask = ScheduleRequest(
            id=request,
            type=spec.type,
            vms=names or made[0].vms,
            by=f"{CAMPAIGN_PREFIX}{spec.name}",
            not_before=start,
            duration=spec.duration,
            description=spec.description,
            campaign=self._owner.record.id,
            wave=action.n,
        )
        change = schedule(scope, ask, conditions, now=now)
        events = [event for event in (change.scope or scope).events if event.request == request]
        vms = sum(len(event.vms) for event in events) or len(names)
        not_before = max((event.not_before for event in events), default=start)
        return Change(change.scope, change.entries, _Announced(vms, not_before))

    async def _clear(self, action: ClearWave) -> None:
        """Let events start, unless the campaign was stopped or the window has closed meanwhile.

        What could not be saved is not tried again: the campaign decides anew whether they may start then.
        """

        def rule(scope: Scope) -> Change[tuple[str, ...]]:
            conditions, now = self._scopes.conditions, self._owner.now()
            is_running = self._owner.record.state is CampaignState.RUNNING
            if not is_running or not self._owner.course.is_open(conditions, now=now):
                return Change(scope, (), ())
            return operations.clear(scope, action.events, conditions, now=now)

        try:
            await self._scopes.apply(action.scope, rule)
        except NotSaved as error:
            log.warning("%s; the campaign goes on in %.1f s", error, FIRST_PAUSE)
            await asyncio.sleep(FIRST_PAUSE)
        finally:
            self._impacted.release(action.events)
        self._on_room()

    async def _withdraw(self, action: WithdrawEvent) -> None:
        def rule(scope: Scope) -> Change[None]:
            event, now, conditions = scope.find_event(action.event), self._owner.now(), self._scopes.conditions
            if event is None:
                return Change(scope, (), None)
            if event.state is State.SCHEDULED:
                return operations.cancel(scope, event.id, conditions, by=action.by, now=now, why=action.why)
            return impact_lifecycle.resolve(scope, event.id, conditions, by=action.by, why=action.why, now=now)

        await self._surely(lambda: self._scopes.apply(action.scope, rule))

    async def _try_again(self, action: RetryEvent) -> None:
        def rule(scope: Scope) -> Change[None]:
            event = scope.find_event(action.event)
            if event is None or not any(impact.state in STUCK for impact in event.impacts):
                return Change(scope, (), None)
            return impact_lifecycle.retry(scope, event.id, by=action.by, now=self._owner.now())

        await self._surely(lambda: self._scopes.apply(action.scope, rule))

    async def _recall(self, action: ReadOutcome) -> Result:
        story = await self._story(action.scope)
        outcomes = story.outcomes.get(action.n, ())

        def take(course: Rollout) -> None:
            progress = course.progress(action.scope)
            if not progress.wave(action.n).state.is_open:
                return
            now = self._owner.now()
            if outcomes:
                course.settle(progress, action.n, outcomes, now=now)
            else:
                course.fail(progress, action.n, "nobody knows how it has ended", now=now)

        return take

    async def _close(self, action: CloseScope) -> Result:
        story = await self._story(action.scope)
        scope = self._newest(action.scope)
        waves = self._owner.course.progress(action.scope).waves
        if not story.covers(waves):
            log.warning("the journal no longer tells whom campaign %s is done with", self._owner.record.name)
            return lambda course: course.record_closed(action.scope, {}, now=self._owner.now())
        skipped = {wave.update_domain for wave in waves if wave.state is WaveState.SKIPPED}
        left: dict[int, int] = {}
        for vm in self._chooser.select(scope) if scope is not None else ():
            is_passed_over = vm.update_domain in skipped and vm.name not in story.dropped
            if vm.name not in story.touched and not is_passed_over:
                left[vm.update_domain] = left.get(vm.update_domain, 0) + 1
        return lambda course: course.record_closed(action.scope, left, now=self._owner.now())

    async def _ask_gate(self, action: CheckGate) -> Result:
        spec, asked_at = self._owner.record.spec, self._owner.now()
        answer: Open | Shut = Shut("there is no gate")
        if spec.policy.gate is not None:
            question = Question(
                gate=spec.policy.gate, campaign=self._owner.record.id, name=spec.name, scope=action.scope, wave=action.n
            )
            try:
                answer = await self._checker.check(question)
            except Exception as error:
                log.exception("the gate of campaign %s could not be asked", spec.name)
                answer = Shut(f"it could not be asked: {error!r}")
        if isinstance(answer, Shut):
            why = answer.why
            return lambda course: course.record_gate_closed(action, why, now=self._owner.now())
        return lambda course: course.record_gate_open(action, asked_at=asked_at, now=self._owner.now())

    async def _story(self, scope: str) -> ScopeHistory:
        """Read what the journal of a scope says since the campaign began."""
        since = self._owner.record.started_at  # never before it, as its scopes go by its time
        entries: list[Entry] = []
        after = 0
        while True:
            query = JournalQuery(key=Key(Kind.SCOPE, scope), dids=RELEVANT_KINDS, since=since, after=after, limit=PAGE)
            rows = await self._surely(lambda: self._store.journal(query))  # noqa: B023 - awaited at once
            entries += [row.entry for row in rows]
            if len(rows) < PAGE:
                await self._turns.mine()
                return read_history(entries, self._owner.record.id, seen=self._owner.course.progress(scope).seen)
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

    def _newest(self, id_: str) -> Scope | None:
        return self._scopes.replica.newest(id_)[0]
