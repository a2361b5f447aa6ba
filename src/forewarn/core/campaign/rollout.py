"""Rollout of a campaign: observe its scopes, decide which waves to announce and to clear, and request actions.

A Rollout is kept in memory from change to change, because creating one means observing every scope. Save what
`take_changes` returns first, in one transaction; perform the `actions` afterwards."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from forewarn.core.campaign.actions import (
    Action,
    AnnounceWave,
    CheckGate,
    ClearWave,
    CloseScope,
    ReadOutcome,
    RetryEvent,
    ScopeDiff,
    WithdrawEvent,
)
from forewarn.core.campaign.announce_queue import AnnounceQueue
from forewarn.core.campaign.draft import CampaignDraft
from forewarn.core.campaign.durations import wave_duration, wave_gap, wave_notice
from forewarn.core.campaign.explain import CampaignBlockers
from forewarn.core.campaign.forecast import Forecast, InFlightWave, WindowCache
from forewarn.core.campaign.limits import CampaignLimits, Counts, ExceededLimit, Load, resolve_limits
from forewarn.core.campaign.load import FleetLoad, load_of_event, load_of_vms
from forewarn.core.campaign.record import (
    MAX_WAVES,
    SECOND,
    Campaign,
    CampaignState,
    GateClosed,
    ScopeProgress,
    StateChange,
    Wave,
    WaveState,
)
from forewarn.core.campaign.selection import Selector
from forewarn.core.campaign.spec import gate_name
from forewarn.core.campaign.stuck_impacts import find_stuck_impacts, is_stuck
from forewarn.core.campaign.windows import ZoneLookup
from forewarn.core.change import format_timestamp
from forewarn.core.event import Event, State
from forewarn.core.explain import CampaignPending, external_blockers, missing_approvals
from forewarn.core.journal import EntryKind
from forewarn.core.policy import RuleContext
from forewarn.core.schedule import ceil_to_second
from forewarn.core.scope import EventOutcome, Scope
from forewarn.core.text import truncate_text
from forewarn.core.vm import Vm

FAR_PAST = datetime.min.replace(tzinfo=UTC)

GATE_OPEN_TTL = timedelta(minutes=1)
"""For how long a gate that was found open counts as open."""

GATE_RETRY_DELAY = timedelta(minutes=1)
"""After which time a gate that is shut is asked again."""

MAX_ANNOUNCING = 200
"""How many waves are being announced at the same time."""

MAX_CLEARED = 50
"""How many waves are let start before others have their turn."""

MAX_CHECKED = 25
"""How many waves that wait to be announced are looked at before others have their turn."""


class _ReadyWave(NamedTuple):
    """Events of a scope's current wave that only the campaign holds, or will from a moment on."""

    at: datetime
    """When the first of them may start, as far as the scope is concerned."""
    turn: tuple[int, int]
    events: tuple[tuple[datetime, str, Load], ...]
    begun: bool
    """Whether other events of the wave have started."""


ScopeLookup = Callable[[str], Scope | None]
"""Gives a scope as it is now."""


class Rollout(CampaignDraft):
    """A running campaign: observes its scopes, decides and collects actions."""

    def __init__(self, campaign: Campaign, zones: ZoneLookup, *, notify: bool = False) -> None:
        super().__init__(campaign, notify=notify)
        self._selector = Selector(campaign.spec.selection)
        self._limits = resolve_limits(campaign.spec.policy, campaign.selected)
        self._is_limited = self._limits != CampaignLimits()
        self._windows = WindowCache(campaign.spec.policy, zones)
        self._ready: dict[str, _ReadyWave] = {}
        self._in_flight: dict[str, InFlightWave] = {}
        self._open: set[str] = set()
        """The scopes with open events of the campaign."""
        self._leaving: set[str] = set()
        """The scopes in which something of a wave is open that was skipped: their next wave waits for its end."""
        self._has_end_now = False
        """Whether waves are expected to end at this very moment that are not seen to have ended yet."""
        self._announce_queue = AnnounceQueue()
        self._pending_actions: set[Action] = set()
        self._announcing: set[str] = set()
        self._clearing: set[str] = set()
        self._gate_opened_at = FAR_PAST
        self._wake_times: list[datetime] = []
        self._start_limit: ExceededLimit | None = None
        self._announce_limit: ExceededLimit | None = None
        self._at_gate: list[str] = []
        self._held: set[str] = set()
        self.waits_for_capacity = False
        """Whether something else may be decided when less is in impact, wherever in the fleet."""
        self.actions: list[Action] = []
        self.unseen: set[str] = set(self._indexes)
        """The scopes that must be seen before anything is decided."""
        self.has_more = False
        """Whether there is more to decide at once."""

    # What is seen.

    def observe(self, id_: str, scope: Scope | None, context: RuleContext, *, now: datetime) -> None:
        """Take a scope as it is now; None: it is gone."""
        self.unseen.discard(id_)
        self._ready.pop(id_, None)
        if id_ not in self._announcing:
            self._in_flight.pop(id_, None)
        for known in (self._open, self._leaving, self._held):
            known.discard(id_)
        if scope is not None and scope.hold is not None:
            self._held.add(id_)
        if self._campaign.state.is_over:
            return
        if scope is None:
            self._skip_removed_scope(self.progress(id_), now)
        else:
            self._observe_scope(self.progress(id_), scope, context, now)
        self._enqueue(self._indexes[id_], scope)

    def mark_all_unseen(self) -> None:
        """See every scope anew before anything else is decided: what holds outside them has changed."""
        self.unseen = set(self._indexes)

    def _observe_scope(self, progress: ScopeProgress, scope: Scope, context: RuleContext, now: datetime) -> None:
        events = [event for event in scope.events if event.campaign == self._campaign.id]
        if events:
            self._open.add(scope.id)
        n = progress.current
        self._any_settled = self._any_settled or n > 1
        request = self._campaign.request(scope.id, n) if n <= len(progress.waves) else ""
        mine = [event for event in events if event.request == request]
        other_events = [event for event in events if event.request != request]
        is_aborted = self._campaign.state is CampaignState.ABORTING
        if is_aborted:
            self._withdraw_scheduled(scope.id, events)
            other_events = [event for event in other_events if event.state is not State.SCHEDULED]
        self._withdraw_skipped(scope.id, other_events)
        progress = self._with_late_ends(progress, scope)
        if request and progress.wave(n).state is not WaveState.PLANNED:
            self._observe_wave(progress, n, scope, mine, context, now)
        progress = self.progress(scope.id)
        if progress.current > len(progress.waves) and not progress.closed and not is_aborted:
            self._add_action(CloseScope(scope.id))

    def _withdraw_scheduled(self, scope: str, events: Iterable[Event]) -> None:
        """Take back what has not started; what has, ends."""
        state_change = self._campaign.state_change
        for event in events:
            if event.state is State.SCHEDULED:
                self._add_action(WithdrawEvent(scope, event.id, state_change.by, state_change.why or "aborted"))

    def _withdraw_skipped(self, scope: str, events: Iterable[Event]) -> None:
        """Take back what is left of waves that were skipped: what has not started, and what is stuck."""
        for event in events:
            self._leaving.add(scope)
            if event.state is State.SCHEDULED or is_stuck(event):
                self._add_action(WithdrawEvent(scope, event.id, self.by, "the wave is skipped"))

    def _with_late_ends(self, progress: ScopeProgress, scope: Scope) -> ScopeProgress:
        """A wave that was skipped while work of it was under way has ended when that has: the gap begins there."""
        for n, wave in enumerate(progress.waves[: progress.current - 1], 1):
            if wave.state is WaveState.SKIPPED:
                request = self._campaign.request(scope.id, n)
                ends = [
                    item.at
                    for item in scope.ended
                    if item.request == request and item.outcome is not EventOutcome.CANCELED
                ]
                at = self._campaign.seconds(progress, max(ends, default=FAR_PAST))
                if at > wave.at:
                    progress = progress.with_wave(n, wave.with_state(wave.state, at))
                    self.put(progress)
        return progress

    def _observe_wave(
        self,
        progress: ScopeProgress,
        n: int,
        scope: Scope,
        mine: list[Event],
        context: RuleContext,
        now: datetime,
    ) -> None:
        """See what has become of the current wave."""
        wave, request = progress.wave(n), self._campaign.request(scope.id, n)
        ended = [item.outcome for item in scope.ended if item.request == request]
        if not mine:
            if ended:
                self.settle(progress, n, ended, now=now)
            elif wave.state is not WaveState.FAILED:
                self._add_action(ReadOutcome(scope.id, n))
            return
        stuck = find_stuck_impacts(mine)
        if stuck is not None and wave.state is WaveState.RETRYING:
            for event in filter(is_stuck, mine):
                self._add_action(RetryEvent(scope.id, event.id, self.by))
        elif stuck is not None and wave.state is WaveState.FAILED:
            self.update_failure(progress.scope, stuck.why, unknown=stuck.unknown)
        elif stuck is not None:
            self.fail(progress, n, stuck.why, unknown=stuck.unknown, now=now)
        elif wave.state in (WaveState.FAILED, WaveState.RETRYING):
            self._resume_wave(progress, n, now)
        self._track_wave(self.progress(scope.id).wave(n), scope, mine, context, begun=bool(ended))

    def _track_wave(self, wave: Wave, scope: Scope, mine: list[Event], context: RuleContext, *, begun: bool) -> None:
        begun = begun or any(event.state is State.STARTED for event in mine)
        at = self._campaign.moment(self.progress(scope.id), wave.at)
        self._in_flight[scope.id] = InFlightWave(at, begun, load_of_vms(scope.id, _vms(mine, scope)))
        if wave.state in (WaveState.ANNOUNCED, WaveState.CLEARED):
            waiting = [event for event in mine if event.state is State.SCHEDULED and not event.cleared]
            ready = [
                (_ready_at(scope, event), event.id, load_of_event(scope.id, event))
                for event in waiting
                if _waits_for_campaign_only(scope, event, context)
            ]
            if ready and scope.id not in self._clearing:
                at = self._may_start_at(scope.id, min(ready)[0], context, begun=begun)
                self._ready[scope.id] = _ReadyWave(at, self._start_order(scope.id), tuple(ready), begun)

    def _skip_removed_scope(self, progress: ScopeProgress, now: datetime) -> None:
        """The scope is gone, and with it everything that there was to do."""
        for n, wave in enumerate(progress.waves, 1):
            if not wave.state.is_settled:
                current = self.progress(progress.scope)
                self.put(
                    current.with_wave(n, wave.with_state(WaveState.SKIPPED, self._campaign.seconds(progress, now)))
                )
                self.add_wave_entry(EntryKind.WAVE_SKIPPED, current, n, now=now, why="the scope is gone")
        self.clear_failure(progress.scope)
        current = self.progress(progress.scope)
        if not current.closed:
            self.put(ScopeProgress(current.scope, current.base, current.waves, current.seen, closed=True))

    # What is decided.

    @property
    def wake_at(self) -> datetime | None:
        """When time itself may change something; None: only something else can."""
        return min(self._wake_times, default=None)

    @property
    def blockers(self) -> CampaignBlockers:
        """What keeps waves from going on, as it was last decided."""
        return CampaignBlockers(self._start_limit, self._announce_limit, tuple(self._at_gate), frozenset(self._held))

    def complete_action(self, action: Action) -> None:
        """What was given out is done, or could not be. See its scope next."""
        self._pending_actions.discard(action)
        if isinstance(action, AnnounceWave):
            self._announcing.discard(action.scope)
            self._in_flight.pop(action.scope, None)
        elif isinstance(action, ClearWave):
            self._clearing.discard(action.scope)

    def decide(self, fleet_load: FleetLoad, scopes: ScopeLookup, context: RuleContext, *, now: datetime) -> None:
        """Find what is to be done now, given what is in impact in the whole fleet."""
        self._wake_times, self.has_more, self.waits_for_capacity = [], False, False
        self._start_limit, self._announce_limit, self._at_gate = None, None, []
        if self.unseen or self._campaign.state.is_over:
            return
        if self._campaign.state is CampaignState.RUNNING:
            self._clear(fleet_load, context, now)
            if context.hold is None and self._campaign.state is CampaignState.RUNNING:
                self._announce(fleet_load, scopes, context, now)
        self._end_if_over(now)

    def _add_action(self, action: Action) -> None:
        if action not in self._pending_actions:
            self._pending_actions.add(action)
            self.actions.append(action)
            if isinstance(action, AnnounceWave):
                self._announcing.add(action.scope)
            elif isinstance(action, ClearWave):
                self._clearing.add(action.scope)

    def _end_if_over(self, now: datetime) -> None:
        if self._open or any(not isinstance(given, CheckGate) for given in self._pending_actions):
            return
        if self._campaign.state is CampaignState.ABORTING:
            self._end(CampaignState.ABORTED, now)
        elif self._campaign.state is CampaignState.RUNNING and not self._open_scopes:
            self._end(CampaignState.COMPLETED, now)

    def _end(self, state: CampaignState, now: datetime) -> None:
        state_change = self._campaign.state_change
        if state is CampaignState.COMPLETED:
            state_change = StateChange(by=self.by, at=now)
        self.set(state=state, state_change=state_change, ended_at=now, gate=None)
        self.add_entry(EntryKind.CAMPAIGN_ENDED, by=self.by, now=now, state=state.value)
        self.add_notification("ended", now=now, why=state.value)

    # Clearing.

    def _clear(self, fleet_load: FleetLoad, context: RuleContext, now: datetime) -> None:
        """Let start what may: the ready waves in the order of the plan. The first for which there is no room stops it.

        If a smaller one could pass it, a large one might never have its turn.
        """
        due = [(ready.turn, id_) for id_, ready in self._ready.items() if ready.at <= now]
        self._wake_times += [ready.at for ready in self._ready.values() if ready.at > now]
        if not due:
            return
        if (opens_at := self._opens_at(context, now)) != now:
            self._wake_times += [opens_at] if opens_at is not None else []
            return
        passed = 0
        for _, id_ in sorted(due):
            if passed == MAX_CLEARED:
                self.has_more = True
                return
            if self._passes_gate(id_, now):
                passed += 1
                if not self._clear_wave(id_, fleet_load, now):
                    return

    def _may_start_at(self, id_: str, at: datetime, context: RuleContext, *, begun: bool) -> datetime:
        if begun:
            return at
        progress = self.progress(id_)
        rested = self._gap_ends_at(progress, context)
        if self._campaign.spec.policy.advance:
            return max(at, rested)
        return max(at, rested, self._campaign.moment(progress, progress.wave(progress.current).planned))

    def _gap_ends_at(self, progress: ScopeProgress, context: RuleContext) -> datetime:
        """Return when the gap is over that the scope's waves before the current one leave."""
        ends = [wave.at for wave in progress.waves[: progress.current - 1] if wave.vms]
        if not ends:
            return FAR_PAST
        return self._campaign.moment(progress, max(ends)) + wave_gap(self._campaign.spec, context)

    def _start_order(self, id_: str) -> tuple[int, int]:
        progress = self.progress(id_)
        return progress.base + progress.wave(progress.current).planned, self._indexes[id_]

    def is_open(self, context: RuleContext, *, now: datetime) -> bool:
        """Tell whether waves may start now, by windows and black-outs."""
        return self._opens_at(context, now) == now

    def _opens_at(self, context: RuleContext, now: datetime) -> datetime | None:
        return self._windows.next(now, wave_duration(self._campaign.spec, context))

    def _clear_wave(self, id_: str, fleet_load: FleetLoad, now: datetime) -> bool:
        """Let the ready events of a scope's wave start for which there is room; tell whether there was for all."""
        progress = self.progress(id_)
        n = progress.current
        chosen: list[str] = []
        for _, event, load in sorted(item for item in self._ready[id_].events if item[0] <= now):
            over = self._limits.exceeded(fleet_load.plus(load)) if self._is_limited else ()
            if over:
                self._start_limit, self.waits_for_capacity = over[0], True
                break
            fleet_load.reserve(event, load)
            chosen.append(event)
        if chosen:
            if progress.wave(n).state is WaveState.ANNOUNCED:
                at = self._campaign.seconds(progress, now)
                self.put(progress.with_wave(n, progress.wave(n).with_state(WaveState.CLEARED, at)))
                self.add_wave_entry(EntryKind.WAVE_CLEARED, progress, n, now=now)
            del self._ready[id_]
            self._add_action(ClearWave(id_, n, tuple(chosen)))
        return self._start_limit is None

    # The gate.

    def _passes_gate(self, id_: str, now: datetime) -> bool:
        """Tell whether the gate was found open since the scope's last wave; have it asked where that is not known."""
        if self._campaign.spec.policy.gate is None or self._ready[id_].begun or not self._any_settled:
            return True
        progress = self.progress(id_)
        n = progress.current
        ended_at = self._campaign.moment(progress, max([wave.at for wave in progress.waves[: n - 1]], default=0))
        opened_at = self._gate_opened_at
        if now - opened_at <= GATE_OPEN_TTL and (n == 1 or opened_at >= ended_at):
            return True
        self._at_gate.append(id_)
        shut = self._campaign.gate
        if shut is not None and now < shut.retry_at:
            self._wake_times.append(shut.retry_at)
        elif not any(isinstance(given, CheckGate) for given in self._pending_actions):
            self._add_action(CheckGate(id_, n))
        return False

    def record_gate_open(self, check: CheckGate, *, asked_at: datetime, now: datetime) -> None:
        """The gate was found open."""
        if self._campaign.state.is_over:
            return
        self._gate_opened_at = asked_at
        if self._campaign.gate is not None:
            shut_since = format_timestamp(self._campaign.gate.since)
            self.set(gate=None)
            self._add_gate_entry(EntryKind.GATE_OPENED, check, now=now, shut_since=shut_since)

    def record_gate_closed(self, check: CheckGate, why: str, *, now: datetime) -> None:
        """The gate was found shut; where it stays so for too long, the campaign halts."""
        if self._campaign.state.is_over:
            return
        known, timeout = self._campaign.gate, self._campaign.spec.policy.gate_patience
        since = now if known is None else known.since
        again_at = min(now + GATE_RETRY_DELAY, since + timeout) if now < since + timeout else now + GATE_RETRY_DELAY
        self.set(gate=GateClosed(since=since, why=truncate_text(why), retry_at=again_at))
        if known is None:
            self._add_gate_entry(EntryKind.GATE_CLOSED, check, now=now, why=why)
        if now >= since + timeout:
            name = gate_name(self._campaign.spec.policy.gate)
            self.halt(f"gate {name} has been shut since {format_timestamp(since)}: {why}", now=now)

    def _add_gate_entry(
        self, entry_kind: EntryKind, check: CheckGate, *, now: datetime, why: str = "", **facts: str
    ) -> None:
        gate = truncate_text(gate_name(self._campaign.spec.policy.gate))
        self.add_entry(
            entry_kind, by=self.by, now=now, why=why, gate=gate, scope=check.scope, wave=str(check.n), **facts
        )

    # Announcing.

    def _enqueue(self, i: int, scope: Scope | None) -> None:
        """Let the scope's next wave wait to be announced, if it has one and nothing stands before it."""
        progress = self._progress[i]
        if self._next_wave(progress, scope) is not None and progress.scope not in self._announcing:
            self._announce_queue.push(self._start_order(progress.scope)[0], i)

    def _next_wave(self, progress: ScopeProgress, scope: Scope | None) -> Wave | None:
        """Return the wave of a scope that is to be announced next; None: there is none, or not now."""
        n = progress.current
        if scope is None or scope.hold is not None or scope.id in self._leaving or n > len(progress.waves):
            return None
        wave = progress.wave(n)
        return wave if wave.state is WaveState.PLANNED else None

    def _announce(self, fleet_load: FleetLoad, scopes: ScopeLookup, context: RuleContext, now: datetime) -> None:
        """Announce waves in the order of the plan, as far as there will be room when their notice is over."""
        for i in self._announce_queue.pop_woken(now):
            self._enqueue(i, scopes(self._progress[i].scope))
        if self._announce_queue:
            self._announce_in_turn(fleet_load, scopes, context, now)
        wakes_at = self._announce_queue.next_wake_at
        self._wake_times += [wakes_at] if wakes_at is not None else []

    def _announce_in_turn(
        self, fleet_load: FleetLoad, scopes: ScopeLookup, context: RuleContext, now: datetime
    ) -> None:
        notice, length = wave_notice(self._campaign.spec, context), wave_duration(self._campaign.spec, context)
        forecast = Forecast(self._in_flight, fleet_load, self._limits, length=length, now=now)
        self._has_end_now = self._is_limited and forecast.has_end_now
        for _ in range(MAX_CHECKED):
            if not self._announce_queue or len(self._announcing) >= MAX_ANNOUNCING:
                break
            if not self._announce_first(scopes, forecast, context, now):
                self.waits_for_capacity = True
                ends_at = forecast.next_end(now + notice)
                self._wake_times += [ends_at - notice] if ends_at is not None else []
                break
        else:
            self.has_more = self.has_more or bool(self._announce_queue)

    def _announce_first(self, scopes: ScopeLookup, forecast: Forecast, context: RuleContext, now: datetime) -> bool:
        """Announce the wave whose turn it is, or let it go for a while; tell whether there was room for it."""
        progress = self._progress[self._announce_queue.first]
        scope = scopes(progress.scope)
        wave = self._next_wave(progress, scope)
        if scope is None or wave is None or self._campaign.state is not CampaignState.RUNNING:
            self._announce_queue.pop()
            return True
        start = self._start_at(progress, wave, context, now)
        if start is None:
            self._announce_queue.pop()
            self.fail(progress, progress.current, "no window is open within a year", now=now)
            return True
        notice = wave_notice(self._campaign.spec, context)
        # A start is a whole second: what is announced now has up to a second more than its notice.
        if start > ceil_to_second(now + notice):
            self._announce_queue.defer(start - notice)
            return True
        if self._has_end_now and start < self._campaign.moment(progress, wave.planned):
            # It would move up, perhaps into the room that the plan has for one whose turn comes before.
            self._announce_queue.defer(now + SECOND)
            return True
        return self._announce_wave(progress, wave, scope, start, forecast, now)

    def _announce_wave(
        self, progress: ScopeProgress, wave: Wave, scope: Scope, start: datetime, forecast: Forecast, now: datetime
    ) -> bool:
        vms = [vm for vm in self._selector.select(scope) if vm.update_domain == wave.update_domain]
        load = load_of_vms(scope.id, vms)
        too_large = self._limits.exceeded(Counts(1, len(load.hosts), load.vms))
        if not too_large and self._is_limited and (exceeded := forecast.find_exceeded(start, load)) is not None:
            self._announce_limit = exceeded
            return False
        self._announce_queue.pop()
        if too_large:
            self.fail(progress, progress.current, too_large[0].wave_message, now=now)
        else:
            self._in_flight[scope.id] = InFlightWave(start, begun=False, load=load)
            forecast.add(self._in_flight[scope.id])
            self._add_action(AnnounceWave(scope.id, progress.current, start))
        return True

    def _start_at(self, progress: ScopeProgress, wave: Wave, context: RuleContext, now: datetime) -> datetime | None:
        """Return when a wave could start that is announced as soon as that makes sense; None: never."""
        spec = self._campaign.spec
        start = max(self._gap_ends_at(progress, context), ceil_to_second(now + wave_notice(spec, context)))
        if spec.start_at is not None:
            start = max(start, spec.start_at + wave_notice(spec, context))
        if not spec.policy.advance:
            start = max(start, self._campaign.moment(progress, wave.planned))
        return self._windows.next(start, wave_duration(spec, context))

    def record_announced(
        self,
        id_: str,
        n: int,
        *,
        vms: int,
        not_before: datetime | None,
        seen: int,
        differences: ScopeDiff,
        now: datetime,
    ) -> None:
        """The events of a wave are made; `not_before` None: there is no VM left for it."""
        progress = self.progress(id_)
        wave = progress.wave(n)
        if wave.state is not WaveState.PLANNED:
            return
        if any(differences):
            self._add_diff_entry(progress, n, differences, now)
        state, at = (WaveState.DONE, now) if not_before is None else (WaveState.ANNOUNCED, not_before)
        kept = Wave(wave.update_domain, wave.planned, state, self._campaign.seconds(progress, at), vms)
        waves = progress.with_wave(n, kept).waves
        self.put(ScopeProgress(progress.scope, progress.base, waves, seen, progress.closed))
        if not_before is None:
            self.add_wave_entry(EntryKind.WAVE_SETTLED, progress, n, now=now, why="no VM is left for it", vms="0")
        else:
            facts = {"vms": str(vms), "not_before": format_timestamp(not_before)}
            self.add_wave_entry(EntryKind.WAVE_ANNOUNCED, progress, n, now=now, **facts)

    def _add_diff_entry(self, progress: ScopeProgress, n: int, differences: ScopeDiff, now: datetime) -> None:
        named = {what: truncate_text(" ".join(names)) for what, names in differences._asdict().items() if names}
        self.add_wave_entry(EntryKind.WAVE_DIFFERS, progress, n, now=now, **named)

    def record_closed(self, id_: str, left: dict[int, int], *, now: datetime) -> None:
        """All waves of a scope are settled; for the VMs that are left over, by update domain, it gets further ones."""
        progress = self.progress(id_)
        if progress.closed or progress.current <= len(progress.waves):
            return
        room = MAX_WAVES - len(progress.waves)
        planned = self._campaign.seconds(progress, now)
        added = tuple(Wave(domain, planned, vms=vms) for domain, vms in sorted(left.items()))[: max(room, 0)]
        waves = progress.waves + added
        self.put(ScopeProgress(progress.scope, progress.base, waves, progress.seen, closed=not added))
        for n, _ in enumerate(added, len(progress.waves) + 1):
            self.add_wave_entry(
                EntryKind.WAVE_DIFFERS,
                self.progress(id_),
                n,
                now=now,
                why="VMs are in no wave: a further one is for them",
            )


def _ready_at(scope: Scope, event: Event) -> datetime:
    return event.not_before if missing_approvals(scope, event) else FAR_PAST


def _waits_for_campaign_only(scope: Scope, event: Event, context: RuleContext) -> bool:
    return all(isinstance(blocker, CampaignPending) for blocker in external_blockers(scope, event, context))


def _vms(events: Iterable[Event], scope: Scope) -> list[Vm]:
    """Return the VMs of events that are still there."""
    names = {vm for event in events for vm in event.vms}
    return [vm for vm in scope.roster if vm.name in names]
