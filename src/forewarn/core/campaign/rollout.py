"""Rollout of a campaign: decide which waves to announce and to clear, and apply findings and results.

`decide` and `apply_result` are functions of the record, the index and the time. They own the index and change it in
place; record, entries and actions are values. If a decision cannot be saved, discard the index and build it again.

A decision has four phases, each with a limited amount of work:

1. Findings: what the scopes show is applied to the record. `index.news` has the scopes that show something new. An
   action that follows from it is requested once, and is pending until its result is applied. As long as there is news,
   nothing is cleared or announced, because it may free a limit or halt the campaign.
2. Clear: waves that are ready start. Before they are announced, waves have no claim to the room that limits leave.
3. Announce: only if this decision has requested nothing, because what was cleared is a part of the load that announced
   waves will meet, and the caller has to reserve it first.
4. End: the campaign is over when nothing is left.
"""

from datetime import datetime, timedelta
from heapq import nsmallest

import msgspec

from forewarn.core.campaign.actions import (
    Action,
    ActionResult,
    AnnounceWave,
    CheckGate,
    ClearWave,
    Finding,
    GateClosed,
    GateOpened,
    ScopeClosed,
    ScopeRemoved,
    SkippedWaveEnded,
    WaveAnnounced,
    WaveEnded,
    WaveRefused,
    WaveResumed,
    WaveStuck,
)
from forewarn.core.campaign.calendar import NEVER_OPEN
from forewarn.core.campaign.draft import CampaignBlockers, CampaignDecision, CampaignDraft
from forewarn.core.campaign.expected_load import FAR_FUTURE, ExpectedLoad
from forewarn.core.campaign.index import CampaignIndex
from forewarn.core.campaign.limits import NO_LIMITS, Counts, ExceededLimit
from forewarn.core.campaign.load import FleetLoad, load_of_vms
from forewarn.core.campaign.record import (
    FAR_PAST,
    MAX_WAVES,
    SECOND,
    Campaign,
    CampaignState,
    ClosedGate,
    ScopeProgress,
    StateChange,
    Wave,
    WaveState,
)
from forewarn.core.campaign.spec import gate_name
from forewarn.core.campaign.status import Turn
from forewarn.core.change import format_timestamp
from forewarn.core.journal import EntryKind
from forewarn.core.schedule import ceil_to_second
from forewarn.core.scope import Scope
from forewarn.core.text import truncate_text

GATE_OPEN_TTL = timedelta(minutes=1)
"""How long a gate counts as open after a check has found it open; the check itself can take longer."""

GATE_RETRY_DELAY = timedelta(minutes=1)
"""The pause between two checks of a closed gate."""

MAX_NEWS = 10
"""How many scopes with findings one decision processes before other tasks run."""

MAX_ANNOUNCING = 200
"""How many waves are being announced at the same time."""

MAX_CLEARED = 5
"""How many waves one decision clears before other tasks run."""

MAX_WOKEN = 250
"""How many waves whose time is reached one decision queues before other tasks run."""

MAX_CHECKED = 15
"""How many waves one decision considers for announcement before other tasks run."""


def decide(
    record: Campaign, index: CampaignIndex, load: FleetLoad, *, now: datetime, notify: bool = False
) -> CampaignDecision:
    """Decide what to do now, given the load of the whole fleet.

    Nothing is decided before every scope was observed. One decision applies findings, or clears, or announces, and a
    limited number of each, so that it does not block other tasks; if `has_more`, the next one can follow at once. The
    load is only read: reserve that of cleared events at once, because other campaigns decide while this one is saved.
    """
    index.rebase(record)
    if index.stale or record.state.is_over:
        return CampaignDecision(record)
    return _Step(record, index, load, now, notify=notify).decide()


def apply_result(
    record: Campaign, index: CampaignIndex, result: ActionResult, *, now: datetime, notify: bool = False
) -> CampaignDecision:
    """Apply the result of an action."""
    index.rebase(record)
    index.pending.discard(result.action)
    if isinstance(result.finding, GateOpened):
        index.pending.gate_opened_at = result.finding.asked_at
        index.pending.gate_open_until = now + GATE_OPEN_TTL
    draft = CampaignDraft(record, index.positions, notify=notify)
    if result.finding is not None and not record.state.is_over:
        _apply_finding(draft, result.finding, now)
    decision = draft.finish()
    index.record = decision.record
    index.update(decision.record, index.progress(result.action.scope))
    return decision


# Findings.


def _apply_finding(draft: CampaignDraft, finding: Finding, now: datetime) -> None:
    """Apply a finding to the record. A finding that no longer matches the state of the wave is ignored."""
    match finding:
        case WaveAnnounced():
            _take_announced(draft, finding, now)
        case WaveRefused(scope, n, reason):
            if draft.progress(scope).wave(n).state is WaveState.PLANNED:
                draft.fail(scope, n, reason, now=now)
        case WaveEnded(scope, n, outcomes):
            state = draft.progress(scope).wave(n).state
            if outcomes and (state.is_open or state is WaveState.FAILED):
                draft.settle(scope, n, outcomes, now=now)
            elif state.is_open:
                draft.fail(scope, n, "its outcome is unknown", now=now)
        case SkippedWaveEnded(scope, n, at):
            progress = draft.progress(scope)
            draft.put(progress.with_wave(n, progress.wave(n).with_state(WaveState.SKIPPED, at)))
        case WaveStuck(scope, n, reason, unknown):
            if draft.progress(scope).wave(n).state is WaveState.FAILED:
                draft.update_failure(scope, reason, unknown=unknown)
            else:
                draft.fail(scope, n, reason, unknown=unknown, now=now)
        case WaveResumed(scope, n):
            draft.put_wave(scope, n, WaveState.CLEARED, now)
            draft.clear_failure(scope)
        case ScopeRemoved(scope):
            _take_removed(draft, scope, now)
        case ScopeClosed():
            _take_closed(draft, finding, now)
        case GateOpened():
            _take_gate_opened(draft, finding, now)
        case GateClosed():
            _take_gate_closed(draft, finding, now)


def _take_announced(draft: CampaignDraft, finding: WaveAnnounced, now: datetime) -> None:
    scope, n, not_before = finding.scope, finding.n, finding.not_before
    progress = draft.progress(scope)
    wave = progress.wave(n)
    if wave.state is not WaveState.PLANNED:
        return
    if any(finding.differences):
        named = {what: truncate_text(" ".join(vms)) for what, vms in finding.differences._asdict().items() if vms}
        draft.add_wave_entry(EntryKind.WAVE_DIFFERS, scope, n, now=now, **named)
    state, at = (WaveState.DONE, now) if not_before is None else (WaveState.ANNOUNCED, not_before)
    kept = Wave(wave.update_domain, wave.planned, state, draft.record.seconds(progress, at), finding.vms)
    waves = progress.with_wave(n, kept).waves
    draft.put(ScopeProgress(scope, progress.base, waves, finding.seen, progress.closed))
    if not_before is None:
        draft.add_wave_entry(EntryKind.WAVE_SETTLED, scope, n, now=now, why="it has no VMs left", vms="0")
    else:
        facts = {"vms": str(finding.vms), "not_before": format_timestamp(not_before)}
        entry_kind = EntryKind.WAVE_ANNOUNCED if finding.announced else EntryKind.WAVE_UNANNOUNCED
        draft.add_wave_entry(entry_kind, scope, n, now=now, **facts)


def _take_removed(draft: CampaignDraft, scope: str, now: datetime) -> None:
    for n, wave in enumerate(draft.progress(scope).waves, 1):
        if not wave.state.is_settled:
            draft.skip(scope, n, now=now, why="the scope was removed")
    progress = draft.progress(scope)
    draft.put(ScopeProgress(scope, progress.base, progress.waves, progress.seen, closed=True))


def _take_closed(draft: CampaignDraft, finding: ScopeClosed, now: datetime) -> None:
    """Close a scope; VMs that were in no wave get further waves."""
    scope, progress = finding.scope, draft.progress(finding.scope)
    if progress.closed or progress.current <= len(progress.waves):
        return
    room = max(MAX_WAVES - len(progress.waves), 0)
    planned = draft.record.seconds(progress, now)
    added = tuple(Wave(domain, planned, vms=vms) for domain, vms in sorted(finding.left))[:room]
    draft.put(ScopeProgress(scope, progress.base, progress.waves + added, progress.seen, closed=not added))
    for n, _ in enumerate(added, len(progress.waves) + 1):
        why = "added for VMs that were in no wave"
        draft.add_wave_entry(EntryKind.WAVE_DIFFERS, scope, n, now=now, why=why)


def _take_gate_opened(draft: CampaignDraft, finding: GateOpened, now: datetime) -> None:
    if draft.record.gate is not None:
        since = format_timestamp(draft.record.gate.since)
        draft.set(gate=None)
        _add_gate_entry(draft, EntryKind.GATE_OPENED, finding, now=now, shut_since=since)


def _take_gate_closed(draft: CampaignDraft, finding: GateClosed, now: datetime) -> None:
    """Record since when the gate is closed; if that is too long, the campaign halts."""
    known, policy, why = draft.record.gate, draft.record.spec.policy, finding.reason
    since = now if known is None else known.since
    halts_at, retry_at = since + policy.gate_patience, now + GATE_RETRY_DELAY
    gate = ClosedGate(
        since=since, why=truncate_text(why), retry_at=min(retry_at, halts_at) if now < halts_at else retry_at
    )
    draft.set(gate=gate)
    if known is None:
        _add_gate_entry(draft, EntryKind.GATE_CLOSED, finding, now=now, why=why)
    if now >= halts_at:
        draft.halt(f"gate {gate_name(policy.gate)} has been closed since {format_timestamp(since)}: {why}", now=now)


def _add_gate_entry(
    draft: CampaignDraft,
    entry_kind: EntryKind,
    finding: GateOpened | GateClosed,
    *,
    now: datetime,
    why: str = "",
    **facts: str,
) -> None:
    gate = truncate_text(gate_name(draft.record.spec.policy.gate))
    draft.add_entry(entry_kind, now=now, why=why, gate=gate, scope=finding.scope, wave=str(finding.n), **facts)


# Decisions.


class _Step:
    """One decision in progress."""

    def __init__(self, record: Campaign, index: CampaignIndex, load: FleetLoad, now: datetime, *, notify: bool) -> None:
        self.draft = CampaignDraft(record, index.positions, notify=notify)
        self.index, self.calendar, self.load, self.now = index, index.calendar, load, now
        self.usage = load.draft()
        self.actions: list[Action] = []
        self.wake_times: list[datetime | None] = []
        self.start_limit: ExceededLimit | None = None
        self.announce_limit: ExceededLimit | None = None
        self.at_gate: tuple[str, ...] = ()
        self.has_more = False

    def decide(self) -> CampaignDecision:
        self.calendar.keep_current(self.now)
        self._apply_findings()
        if not self.index.news and self._is_running:
            self._clear()
            if not self.at_gate and not self.has_more and self.draft.record.gate is not None:
                self.draft.set(gate=None)  # no wave waits for it, so it is not checked, and may open unseen
            if self.actions or self.has_more:
                self.has_more = True
            elif self.index.context.hold is None:
                self._announce()
        self._end_if_over()
        decision = self.draft.finish()
        self.index.record = decision.record
        return msgspec.structs.replace(
            decision,
            actions=tuple(self.actions),
            wake_at=min((at for at in self.wake_times if at is not None), default=None),
            has_more=self.has_more or bool(self.index.news),
            blockers=CampaignBlockers(self.start_limit, self.announce_limit, self.at_gate, frozenset(self.index.held)),
        )

    @property
    def _is_running(self) -> bool:
        return self.draft.record.state is CampaignState.RUNNING

    def _request(self, action: Action) -> None:
        if self.index.pending.add(action):
            self.actions.append(action)

    def _update(self, scope: str) -> None:
        """Update the index with what was drafted for a scope."""
        self.index.update(self.draft.record, self.draft.progress(scope))

    def _apply_findings(self) -> None:
        """Apply the findings of scopes to the record, and request the actions that follow."""
        index = self.index
        for id_ in nsmallest(MAX_NEWS, index.news, key=index.positions.__getitem__):
            if findings := index.statuses[id_].findings:
                for finding in findings:
                    _apply_finding(self.draft, finding, self.now)
                self._update(id_)
            if not index.statuses[id_].findings:  # otherwise the next decision applies them
                for action in index.statuses[id_].actions:
                    self._request(action)
                index.news.discard(id_)

    def _end_if_over(self) -> None:
        index, draft, now = self.index, self.draft, self.now
        if index.news or index.open or index.pending.has_work:
            return
        change = draft.record.state_change
        if draft.record.state is CampaignState.ABORTING:
            state = CampaignState.ABORTED
        elif draft.record.state is CampaignState.RUNNING and not index.unclosed:
            state, change = CampaignState.COMPLETED, StateChange(by=draft.record.actor, at=now)
        else:
            return
        draft.set(state=state, state_change=change, ended_at=now, gate=None)
        draft.add_entry(EntryKind.CAMPAIGN_ENDED, now=now, state=state.value)
        draft.add_notification("ended", now=now, why=state.value)

    # Clearing.

    def _clear(self) -> None:
        """Clear ready waves in the order of the plan, up to the first one for which limits leave no room.

        If smaller waves could overtake it, a large one might never start.
        """
        ready, at_gate, now = self.index.ready, self.index.at_gate, self.now
        opened_at = self.index.pending.gate_opened_at
        if self._has_due_waves(opened_at):
            self.has_more = True
            return
        self.wake_times.append(ready.wakes_at)
        if not (ready or at_gate or at_gate.deferred):
            return
        if (opens_at := self.calendar.next_start(now)) != now:
            self.wake_times.append(opens_at)
            return
        is_gate_open = not self.index.advanced or now <= self.index.pending.gate_open_until
        queues = (ready, at_gate) if is_gate_open else (ready,)
        blocked: tuple[Turn, str] | None = None
        for _ in range(MAX_CLEARED):
            first = min((queue.first for queue in queues if queue), default=None)
            if first is None:
                break
            if not self._clear_wave(first[1]):
                blocked = first
                break
        else:
            self.has_more = any(queues)
        waiting = at_gate.deferred if is_gate_open else at_gate.deferred + at_gate.queued
        if blocked is not None:
            waiting = [wave for wave in waiting if wave < blocked]  # the others wait for room first
        self.at_gate = tuple([id_ for _, id_ in waiting])
        if waiting:
            self._check_gate(min(waiting)[1])

    def _has_due_waves(self, opened_at: datetime) -> bool:
        """Queue a limited number of waves whose time is reached; return whether there are more.

        A wave that has begun, so that other events of it have started, does not need the gate.
        """
        ready, at_gate, waves = self.index.ready, self.index.at_gate, self.index.ready_waves
        has_gate = self.draft.record.spec.policy.gate is not None
        for turn, id_ in ready.pop_due(self.now, MAX_WOKEN):
            if has_gate and not waves[id_].begun:
                at_gate.put(id_, turn, waves[id_].ended_at)
            else:
                ready.put(id_, turn)
        for turn, id_ in at_gate.pop_due(opened_at, MAX_WOKEN):
            at_gate.put(id_, turn)
        return ready.is_due(self.now) or at_gate.is_due(opened_at)

    def _clear_wave(self, scope: str) -> bool:
        """Clear the ready events of a scope's wave for which there is room; return whether there was room for all."""
        ready, chosen = self.index.ready_waves[scope], []
        for event in ready.events:
            if event.at > self.now:
                break
            if over := self.index.limits.exceeded(self.usage.plus(event.load)):
                self.start_limit = over[0]
                break
            self.usage.add(event.load)
            chosen.append(event)
        if chosen:
            if self.draft.progress(scope).wave(ready.n).state is WaveState.ANNOUNCED:
                self.draft.put_wave(scope, ready.n, WaveState.CLEARED, self.now)
                self.draft.add_wave_entry(EntryKind.WAVE_CLEARED, scope, ready.n, now=self.now)
            events, loads = tuple(event.id for event in chosen), tuple(event.load for event in chosen)
            self._request(ClearWave(scope, ready.n, events, loads))
            self._update(scope)
        return self.start_limit is None

    def _check_gate(self, scope: str) -> None:
        """Request a check of the gate for the wave of a scope, unless one is in progress or it was just closed."""
        gate = self.draft.record.gate
        if gate is not None and self.now < gate.retry_at:
            self.wake_times.append(gate.retry_at)
        elif not self.index.pending.gate_checks:
            self._request(CheckGate(scope, self.index.ready_waves[scope].n))

    # Announcing.

    def _announce(self) -> None:
        """Announce waves in the order of the plan, as far as there will be room when their notice is over."""
        queue, index = self.index.to_announce, self.index
        for turn, id_ in queue.pop_due(self.now, MAX_WOKEN):
            queue.put(id_, turn)
        if queue.is_due(self.now):
            self.has_more = True
            return
        if not queue:
            self.wake_times.append(queue.wakes_at)
            return
        start = ceil_to_second(self.now + self.calendar.notice)
        expected, may_move_up = self._expected_load(start), not self._expects_end_now()
        for _ in range(MAX_CHECKED):
            if not queue or not self._is_running or len(index.pending.announcing) >= MAX_ANNOUNCING:
                break
            if not self._announce_next(start, expected, may_move_up=may_move_up):
                change_at = expected.next_change
                self.wake_times.append(None if change_at is None else change_at - self.calendar.notice)
                break
        else:
            self.has_more = self.has_more or bool(queue)
        self.wake_times.append(queue.wakes_at)

    def _expected_load(self, start: datetime) -> ExpectedLoad:
        """Return the load that waves meet which are announced now and start at the given time.

        Waves that take longer than expected, and announced ones that wait, are expected to last without end: as long as
        something is late, nothing is announced that would have to wait for it.
        """
        now, length, in_flight = self.now, self.calendar.length, self.index.in_flight
        expected = ExpectedLoad(self.index.limits, length, at=start)
        if self.index.limits == NO_LIMITS:
            return expected
        for load in self.load.loads():
            wave = in_flight.get(load.scope)
            end = FAR_FUTURE if wave is None or not wave.begun else wave.start + length
            expected.add(load, FAR_PAST, FAR_FUTURE if end < now else end)
        for wave in in_flight.values():
            if not wave.begun:
                expected.add(wave.load, wave.start, FAR_FUTURE if wave.start < now else wave.start + length)
        for action in self.index.pending.announcing.values():
            expected.add(action.load, action.start, FAR_FUTURE if action.start < now else action.start + length)
        return expected

    def _announce_next(self, start: datetime, expected: ExpectedLoad, *, may_move_up: bool) -> bool:
        """Announce the next wave for the given start, or defer it; return whether there was room for it."""
        index, queue, calendar, now = self.index, self.index.to_announce, self.calendar, self.now
        turn, id_ = queue.first
        scope = index.scopes[id_]
        if scope is None:
            queue.remove(id_)
            return True
        progress = self.draft.progress(id_)
        wave = progress.wave(progress.current)
        planned_at = self.draft.record.moment(progress, wave.planned)
        rested_at = self.draft.record.rested_at(progress, calendar.gap)
        earliest = calendar.first_start(now, rested_at=rested_at, planned_at=planned_at)
        if earliest is None:
            self._fail(id_, progress.current, NEVER_OPEN)
        elif earliest > start:
            queue.put(id_, turn, earliest - calendar.notice)
        elif start < planned_at and not may_move_up:
            queue.put(id_, turn, now + SECOND)
        else:
            return self._announce_wave(scope, progress, wave, start, expected)
        return True

    def _expects_end_now(self) -> bool:
        """Return whether a wave is expected to end now whose end has not been observed.

        Under limits no wave moves up then: it might take the room that the plan has for that scope's next wave.
        """
        began_at = self.now - self.calendar.length
        low, high = began_at - SECOND, began_at + SECOND  # starts are recorded in whole seconds
        return self.index.limits != NO_LIMITS and any(
            wave.begun and low < wave.start < high for wave in self.index.in_flight.values()
        )

    def _announce_wave(
        self, scope: Scope, progress: ScopeProgress, wave: Wave, start: datetime, expected: ExpectedLoad
    ) -> bool:
        vms = [vm for vm in self.index.selector.select(scope) if vm.update_domain == wave.update_domain]
        load = load_of_vms(scope.id, vms)
        if too_large := self.index.limits.exceeded(Counts(1, len(load.hosts), load.vms)):
            self._fail(scope.id, progress.current, too_large[0].wave_message)
        elif (exceeded := expected.exceeded(load)) is not None:
            self.announce_limit = exceeded
            return False
        else:
            expected.add(load, start, start + self.calendar.length)
            self._request(AnnounceWave(scope.id, progress.current, start, load))
            self.index.to_announce.remove(scope.id)
        return True

    def _fail(self, scope: str, n: int, why: str) -> None:
        self.draft.fail(scope, n, why, now=self.now)
        self._update(scope)
