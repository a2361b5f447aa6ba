"""Campaign actions: executes what a rollout has decided, in the scopes, in the journal and at the gate.

Each action returns an update of the rollout, which is saved together with everything else that has happened by then."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import NamedTuple, Protocol, TypeVar

from forewarn.core import impact_lifecycle, operations
from forewarn.core.backoff import backoff
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
from forewarn.core.campaign.record import Campaign, WaveState
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
from forewarn.fleet.errors import SaveFailed
from forewarn.fleet.event_loop import FairShare
from forewarn.fleet.scopes import Scopes
from forewarn.platform.port import GateChecker, GateFailed, GatePassed, GateRequest
from forewarn.store.port import Guards, JournalQuery, RecordKey, RecordKind, Store, StoreError

log = logging.getLogger(__name__)
R = TypeVar("R")
RolloutUpdate = Callable[[Rollout], None]

MIN_BACKOFF, MAX_BACKOFF = 0.5, 30.0
"""Between attempts to save or read what a campaign cannot go on without, in seconds of real time."""

JOURNAL_PAGE = 5_000
"""How many lines of a scope's journal are read at a time."""


class _AnnouncedWave(NamedTuple):
    """The events that a wave has in its scope."""

    vms: int
    not_before: datetime | None


class ActionOwner(Protocol):
    """The campaign on whose behalf actions are executed."""

    @property
    def record(self) -> Campaign:
        """What was last saved of it."""
        ...

    @property
    def rollout(self) -> Rollout:
        """The campaign as it is worked on."""
        ...

    @property
    def is_saved_as_running(self) -> bool:
        """Whether the newest record says that the campaign runs. What rests on that names `guards`."""
        ...

    def guards(self) -> Guards:
        """Return the campaign's record at the revision that is known now."""
        ...

    def now(self) -> datetime:
        """Return the time by which the campaign goes."""
        ...


class CampaignActions:
    """Executes the actions of one campaign."""

    def __init__(
        self,
        owner: ActionOwner,
        scopes: Scopes,
        store: Store,
        fleet_load: FleetLoad,
        *,
        checker: GateChecker,
        on_capacity: Callable[[], None],
    ) -> None:
        self._owner = owner
        self._scopes = scopes
        self._store = store
        self._fleet_load = fleet_load
        self._checker = checker
        self._on_capacity = on_capacity
        self._selector = Selector(owner.record.spec.selection)
        self._fair_share = FairShare()

    async def execute(self, action: Action) -> RolloutUpdate | None:
        match action:
            case AnnounceWave():
                return await self._announce_wave(action)
            case ClearWave():
                await self._clear_wave(action)
            case WithdrawEvent():
                await self._withdraw_event(action)
            case RetryEvent():
                await self._retry_event(action)
            case ReadOutcome():
                return await self._read_outcome(action)
            case CloseScope():
                return await self._close_scope(action)
            case CheckGate():
                return await self._check_gate(action)
        return None

    async def _announce_wave(self, action: AnnounceWave) -> RolloutUpdate | None:
        """Make the events of a wave for the VMs that it has now, and that are not done."""
        history = await self._read_history(action.scope)

        def fail_wave(rollout: Rollout, why: str) -> None:
            progress = rollout.progress(action.scope)
            if progress.wave(action.n).state is WaveState.PLANNED:
                rollout.fail(progress, action.n, why, now=self._owner.now())

        try:
            announced = await self._retry_until_saved(
                lambda: self._scopes.apply(
                    action.scope, lambda scope: self._schedule_events(scope, action, history), self._owner.guards
                )
            )
        except CoreError as refusal:
            why = str(refusal)
            return lambda rollout: fail_wave(rollout, why)
        if announced is None:
            return None
        return lambda rollout: rollout.record_announced(
            action.scope,
            action.n,
            vms=announced.vms,
            not_before=announced.not_before,
            seen=history.seen,
            differences=history.differences,
            now=self._owner.now(),
        )

    def _schedule_events(
        self, scope: Scope, action: AnnounceWave, history: ScopeHistory
    ) -> Change[_AnnouncedWave | None]:
        if not self._owner.is_saved_as_running:
            return Change(scope, (), None)
        spec, rule_context = self._owner.record.spec, self._scopes.rule_context
        now = max(self._owner.now(), scope.changed_at)
        request = self._owner.record.request(scope.id, action.n)
        domain = self._owner.rollout.progress(scope.id).wave(action.n).update_domain
        names = tuple(
            vm.name for vm in self._selector.select(scope) if vm.update_domain == domain and vm.name not in history.done
        )
        existing = [event for event in scope.events if event.request == request]
        if not names and not existing:
            return Change(scope, (), _AnnouncedWave(0, None))
        start = max(action.start, ceil_to_second(now + wave_notice(spec, rule_context)))
        schedule_request = ScheduleRequest(
            id=request,
            type=spec.type,
            vms=names or existing[0].vms,
            by=f"{CAMPAIGN_PREFIX}{spec.name}",
            not_before=start,
            duration=spec.duration,
            description=spec.description,
            campaign=self._owner.record.id,
            wave=action.n,
        )
        change = schedule(scope, schedule_request, rule_context, now=now)
        events = [event for event in (change.scope or scope).events if event.request == request]
        vms = sum(len(event.vms) for event in events) or len(names)
        not_before = max((event.not_before for event in events), default=start)
        return Change(change.scope, change.entries, _AnnouncedWave(vms, not_before))

    async def _clear_wave(self, action: ClearWave) -> None:
        """Let events start, unless the campaign was stopped or the window has closed meanwhile.

        What could not be saved is not tried again: the campaign decides anew whether they may start then.
        """

        def rule(scope: Scope) -> Change[tuple[str, ...]]:
            rule_context, now = self._scopes.rule_context, self._owner.now()
            if not self._owner.is_saved_as_running or not self._owner.rollout.is_open(rule_context, now=now):
                return Change(scope, (), ())
            return operations.clear(scope, action.events, rule_context, now=now)

        try:
            await self._scopes.apply(action.scope, rule, self._owner.guards)
        except SaveFailed as error:
            log.warning("%s; the campaign goes on in %.1f s", error, MIN_BACKOFF)
            await asyncio.sleep(MIN_BACKOFF)
        finally:
            self._fleet_load.release(action.events)
        self._on_capacity()

    async def _withdraw_event(self, action: WithdrawEvent) -> None:
        def rule(scope: Scope) -> Change[None]:
            event, now, rule_context = scope.find_event(action.event), self._owner.now(), self._scopes.rule_context
            if event is None:
                return Change(scope, (), None)
            if event.state is State.SCHEDULED:
                return operations.cancel(scope, event.id, rule_context, by=action.by, now=now, why=action.why)
            return impact_lifecycle.resolve(scope, event.id, rule_context, by=action.by, why=action.why, now=now)

        await self._retry_until_saved(lambda: self._scopes.apply(action.scope, rule))

    async def _retry_event(self, action: RetryEvent) -> None:
        def rule(scope: Scope) -> Change[None]:
            event = scope.find_event(action.event)
            if event is None or not any(impact.state in STUCK for impact in event.impacts):
                return Change(scope, (), None)
            return impact_lifecycle.retry(scope, event.id, by=action.by, now=self._owner.now())

        await self._retry_until_saved(lambda: self._scopes.apply(action.scope, rule))

    async def _read_outcome(self, action: ReadOutcome) -> RolloutUpdate:
        history = await self._read_history(action.scope)
        outcomes = history.outcomes.get(action.n, ())

        def apply_outcomes(rollout: Rollout) -> None:
            progress = rollout.progress(action.scope)
            if not progress.wave(action.n).state.is_open:
                return
            now = self._owner.now()
            if outcomes:
                rollout.settle(progress, action.n, outcomes, now=now)
            else:
                rollout.fail(progress, action.n, "nobody knows how it has ended", now=now)

        return apply_outcomes

    async def _close_scope(self, action: CloseScope) -> RolloutUpdate:
        history = await self._read_history(action.scope)
        scope = self._newest(action.scope)
        waves = self._owner.rollout.progress(action.scope).waves
        if not history.covers(waves):
            log.warning("the journal no longer tells whom campaign %s is done with", self._owner.record.name)
            return lambda rollout: rollout.record_closed(action.scope, {}, now=self._owner.now())
        skipped = {wave.update_domain for wave in waves if wave.state is WaveState.SKIPPED}
        left: dict[int, int] = {}
        for vm in self._selector.select(scope) if scope is not None else ():
            is_passed_over = vm.update_domain in skipped and vm.name not in history.dropped
            if vm.name not in history.touched and not is_passed_over:
                left[vm.update_domain] = left.get(vm.update_domain, 0) + 1
        return lambda rollout: rollout.record_closed(action.scope, left, now=self._owner.now())

    async def _check_gate(self, action: CheckGate) -> RolloutUpdate:
        spec, checked_at = self._owner.record.spec, self._owner.now()
        result: GatePassed | GateFailed = GateFailed("there is no gate")
        if spec.policy.gate is not None:
            gate_request = GateRequest(
                gate=spec.policy.gate, campaign=self._owner.record.id, name=spec.name, scope=action.scope, wave=action.n
            )
            try:
                result = await self._checker.check(gate_request)
            except Exception as error:
                log.exception("the gate of campaign %s could not be asked", spec.name)
                result = GateFailed(f"it could not be asked: {error!r}")
        if isinstance(result, GateFailed):
            reason = result.reason
            return lambda rollout: rollout.record_gate_closed(action, reason, now=self._owner.now())
        return lambda rollout: rollout.record_gate_open(action, asked_at=checked_at, now=self._owner.now())

    async def _read_history(self, scope: str) -> ScopeHistory:
        """Read what the journal of a scope says since the campaign began."""
        since = self._owner.record.started_at  # never before it, as its scopes go by its time
        entries: list[Entry] = []
        after = 0
        while True:
            query = JournalQuery(
                key=RecordKey(RecordKind.SCOPE, scope),
                kinds=RELEVANT_KINDS,
                since=since,
                after=after,
                limit=JOURNAL_PAGE,
            )
            rows = await self._retry_until_saved(lambda: self._store.journal(query))  # noqa: B023 - awaited at once
            entries += [row.entry for row in rows]
            if len(rows) < JOURNAL_PAGE:
                await self._fair_share.wait_turn()
                return read_history(entries, self._owner.record.id, seen=self._owner.rollout.progress(scope).seen)
            after = rows[-1].position

    async def _retry_until_saved(self, operation: Callable[[], Awaitable[R]]) -> R:
        """Repeat it, with an exponential backoff, while the store cannot save."""
        pauses = backoff(MIN_BACKOFF, MAX_BACKOFF)
        while True:
            try:
                return await operation()
            except (SaveFailed, StoreError) as error:
                pause = next(pauses)
                log.warning("%s; trying again in %.1f s", error, pause)
                await asyncio.sleep(pause)

    def _newest(self, id_: str) -> Scope | None:
        return self._scopes.replica.newest(id_)[0]
