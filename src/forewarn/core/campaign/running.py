"""How a campaign goes on: what it makes of what it sees of its scopes, and what is to be done next.

A course is a campaign while it is worked on. It is kept from change to change, because making it means looking at every
scope. Save what `taken` gives first, in one step; do what `actions` say afterwards.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from forewarn.core.campaign.actions import (
    Action,
    Announce,
    AskGate,
    Clear,
    Close,
    Differences,
    Recall,
    TryAgain,
    Withdraw,
)
from forewarn.core.campaign.forecast import Flight, Forecast, Times
from forewarn.core.campaign.keeping import Keeping
from forewarn.core.campaign.limits import Amounts, Ceilings, Exceeded, Load, ceilings
from forewarn.core.campaign.line import Line
from forewarn.core.campaign.load import Impacted, load_of_event, load_of_vms
from forewarn.core.campaign.pace import gap_of, length_of, notice_of
from forewarn.core.campaign.record import (
    MOST_WAVES,
    SECOND,
    Campaign,
    CampaignState,
    GateShut,
    Said,
    ScopeProgress,
    Wave,
    WaveState,
)
from forewarn.core.campaign.selection import Chooser
from forewarn.core.campaign.spec import gate_name
from forewarn.core.campaign.stuck import is_stuck, stuck_work
from forewarn.core.campaign.waiting import Hindrances
from forewarn.core.campaign.windows import Zones
from forewarn.core.change import stamp
from forewarn.core.conditions import Conditions
from forewarn.core.event import Event, State
from forewarn.core.explain import AwaitsCampaign, missing_approvals, waits_for_others
from forewarn.core.journal import Did
from forewarn.core.schedule import whole_second
from forewarn.core.scope import Outcome, Scope
from forewarn.core.text import shortened
from forewarn.core.vm import Vm

LONG_AGO = datetime.min.replace(tzinfo=UTC)

GATE_HOLDS = timedelta(minutes=1)
"""For how long a gate that was found open counts as open."""

GATE_AGAIN = timedelta(minutes=1)
"""After which time a gate that is shut is asked again."""

ANNOUNCED_AT_ONCE = 200
"""How many waves are being announced at the same time."""

CLEARED_AT_ONCE = 50
"""How many waves are let start before others have their turn."""

LOOKED_AT = 25
"""How many waves that wait to be announced are looked at before others have their turn."""


class _Ready(NamedTuple):
    """Events of a scope's current wave that only the campaign holds, or will from a moment on."""

    at: datetime
    """When the first of them may start, as far as the scope is concerned."""
    turn: tuple[int, int]
    events: tuple[tuple[datetime, str, Load], ...]
    begun: bool
    """Whether other events of the wave have started."""


Fleet = Callable[[str], Scope | None]
"""Gives a scope as it is now."""


class Course(Keeping):
    """A campaign while it is worked on."""

    def __init__(self, campaign: Campaign, zones: Zones, *, listens: bool = False) -> None:
        super().__init__(campaign, listens=listens)
        self._chooser = Chooser(campaign.spec.selection)
        self._ceilings = ceilings(campaign.spec.policy, campaign.selected)
        self._is_limited = self._ceilings != Ceilings()
        self._times = Times(campaign.spec.policy, zones)
        self._ready: dict[str, _Ready] = {}
        self._flights: dict[str, Flight] = {}
        self._open: set[str] = set()
        """The scopes with open events of the campaign."""
        self._leaving: set[str] = set()
        """The scopes in which something of a wave is open that was skipped: their next wave waits for its end."""
        self._others_settle = False
        """Whether waves are expected to end at this very moment that are not seen to have ended yet."""
        self._line = Line()
        self._given: set[Action] = set()
        self._announcing: set[str] = set()
        self._clearing: set[str] = set()
        self._gate_opened_at = LONG_AGO
        self._wakes: list[datetime] = []
        self._no_room: Exceeded | None = None
        self._no_place: Exceeded | None = None
        self._at_gate: list[str] = []
        self._held: set[str] = set()
        self.waits_for_room = False
        """Whether something else may be decided when less is in impact, wherever in the fleet."""
        self.actions: list[Action] = []
        self.unseen: set[str] = set(self._places)
        """The scopes that must be seen before anything is decided."""
        self.has_more = False
        """Whether there is more to decide at once."""

    # What is seen.

    def see(self, id_: str, scope: Scope | None, conditions: Conditions, *, now: datetime) -> None:
        """Take a scope as it is now; None: it is gone."""
        self.unseen.discard(id_)
        self._ready.pop(id_, None)
        if id_ not in self._announcing:
            self._flights.pop(id_, None)
        for known in (self._open, self._leaving, self._held):
            known.discard(id_)
        if scope is not None and scope.held is not None:
            self._held.add(id_)
        if self._campaign.state.is_over:
            return
        if scope is None:
            self._lose(self.progress(id_), now)
        else:
            self._look(self.progress(id_), scope, conditions, now)
        self._line_up(self._places[id_], scope)

    def look_again(self) -> None:
        """See every scope anew before anything else is decided: what holds outside them has changed."""
        self.unseen = set(self._places)

    def _look(self, progress: ScopeProgress, scope: Scope, conditions: Conditions, now: datetime) -> None:
        events = [event for event in scope.events if event.campaign == self._campaign.id]
        if events:
            self._open.add(scope.id)
        n = progress.current
        self._any_settled = self._any_settled or n > 1
        request = self._campaign.request(scope.id, n) if n <= len(progress.waves) else ""
        mine = [event for event in events if event.request == request]
        strays = [event for event in events if event.request != request]
        is_aborted = self._campaign.state is CampaignState.ABORTING
        if is_aborted:
            self._withdraw_scheduled(scope.id, events)
            strays = [event for event in strays if event.state is not State.SCHEDULED]
        self._withdraw_strays(scope.id, strays)
        progress = self._with_late_ends(progress, scope)
        if request and progress.wave(n).state is not WaveState.PLANNED:
            self._follow(progress, n, scope, mine, conditions, now)
        progress = self.progress(scope.id)
        if progress.current > len(progress.waves) and not progress.closed and not is_aborted:
            self._give(Close(scope.id))

    def _withdraw_scheduled(self, scope: str, events: Iterable[Event]) -> None:
        """Take back what has not started; what has, ends."""
        said = self._campaign.said
        for event in events:
            if event.state is State.SCHEDULED:
                self._give(Withdraw(scope, event.id, said.by, said.why or "aborted"))

    def _withdraw_strays(self, scope: str, events: Iterable[Event]) -> None:
        """Take back what is left of waves that were skipped: what has not started, and what is stuck."""
        for event in events:
            self._leaving.add(scope)
            if event.state is State.SCHEDULED or is_stuck(event):
                self._give(Withdraw(scope, event.id, self.by, "the wave is skipped"))

    def _with_late_ends(self, progress: ScopeProgress, scope: Scope) -> ScopeProgress:
        """A wave that was skipped while work of it was under way has ended when that has: the gap begins there."""
        for n, wave in enumerate(progress.waves[: progress.current - 1], 1):
            if wave.state is WaveState.SKIPPED:
                request = self._campaign.request(scope.id, n)
                ends = [
                    item.at for item in scope.ended if item.request == request and item.outcome is not Outcome.CANCELED
                ]
                at = self._campaign.seconds(progress, max(ends, default=LONG_AGO))
                if at > wave.at:
                    progress = progress.with_wave(n, wave.now(wave.state, at))
                    self.put(progress)
        return progress

    def _follow(
        self,
        progress: ScopeProgress,
        n: int,
        scope: Scope,
        mine: list[Event],
        conditions: Conditions,
        now: datetime,
    ) -> None:
        """See what has become of the current wave."""
        wave, request = progress.wave(n), self._campaign.request(scope.id, n)
        ended = [item.outcome for item in scope.ended if item.request == request]
        if not mine:
            if ended:
                self.settle(progress, n, ended, now=now)
            elif wave.state is not WaveState.FAILED:
                self._give(Recall(scope.id, n))
            return
        stuck = stuck_work(mine)
        if stuck is not None and wave.state is WaveState.RETRYING:
            for event in filter(is_stuck, mine):
                self._give(TryAgain(scope.id, event.id, self.by))
        elif stuck is not None and wave.state is WaveState.FAILED:
            self.know_trouble(progress.scope, stuck.why, unknown=stuck.unknown)
        elif stuck is not None:
            self.fail(progress, n, stuck.why, unknown=stuck.unknown, now=now)
        elif wave.state in (WaveState.FAILED, WaveState.RETRYING):
            self._go_on(progress, n, now)
        self._keep_in_sight(self.progress(scope.id).wave(n), scope, mine, conditions, begun=bool(ended))

    def _keep_in_sight(
        self, wave: Wave, scope: Scope, mine: list[Event], conditions: Conditions, *, begun: bool
    ) -> None:
        begun = begun or any(event.state is State.STARTED for event in mine)
        at = self._campaign.moment(self.progress(scope.id), wave.at)
        self._flights[scope.id] = Flight(at, begun, load_of_vms(scope.id, _vms(mine, scope)))
        if wave.state in (WaveState.ANNOUNCED, WaveState.CLEARED):
            waiting = [event for event in mine if event.state is State.SCHEDULED and not event.cleared]
            ready = [
                (_ready_at(scope, event), event.id, load_of_event(scope.id, event))
                for event in waiting
                if _is_held_by_the_campaign_alone(scope, event, conditions)
            ]
            if ready and scope.id not in self._clearing:
                at = self._may_start_at(scope.id, min(ready)[0], conditions, begun=begun)
                self._ready[scope.id] = _Ready(at, self._turn(scope.id), tuple(ready), begun)

    def _lose(self, progress: ScopeProgress, now: datetime) -> None:
        """The scope is gone, and with it everything that there was to do."""
        for n, wave in enumerate(progress.waves, 1):
            if not wave.state.is_settled:
                current = self.progress(progress.scope)
                self.put(current.with_wave(n, wave.now(WaveState.SKIPPED, self._campaign.seconds(progress, now))))
                self.note_wave(Did.WAVE_SKIPPED, current, n, now=now, why="the scope is gone")
        self.forget_trouble(progress.scope)
        current = self.progress(progress.scope)
        if not current.closed:
            self.put(ScopeProgress(current.scope, current.base, current.waves, current.seen, closed=True))

    # What is decided.

    @property
    def wake_at(self) -> datetime | None:
        """When time itself may change something; None: only something else can."""
        return min(self._wakes, default=None)

    @property
    def hindrances(self) -> Hindrances:
        """What keeps waves from going on, as it was last decided."""
        return Hindrances(self._no_room, self._no_place, tuple(self._at_gate), frozenset(self._held))

    def over(self, action: Action) -> None:
        """What was given out is done, or could not be. See its scope next."""
        self._given.discard(action)
        if isinstance(action, Announce):
            self._announcing.discard(action.scope)
            self._flights.pop(action.scope, None)
        elif isinstance(action, Clear):
            self._clearing.discard(action.scope)

    def decide(self, impacted: Impacted, scopes: Fleet, conditions: Conditions, *, now: datetime) -> None:
        """Find what is to be done now, given what is in impact in the whole fleet."""
        self._wakes, self.has_more, self.waits_for_room = [], False, False
        self._no_room, self._no_place, self._at_gate = None, None, []
        if self.unseen or self._campaign.state.is_over:
            return
        if self._campaign.state is CampaignState.RUNNING:
            self._clear(impacted, conditions, now)
            if conditions.held is None and self._campaign.state is CampaignState.RUNNING:
                self._announce(impacted, scopes, conditions, now)
        self._end_if_over(now)

    def _give(self, action: Action) -> None:
        if action not in self._given:
            self._given.add(action)
            self.actions.append(action)
            if isinstance(action, Announce):
                self._announcing.add(action.scope)
            elif isinstance(action, Clear):
                self._clearing.add(action.scope)

    def _end_if_over(self, now: datetime) -> None:
        if self._open or any(not isinstance(given, AskGate) for given in self._given):
            return
        if self._campaign.state is CampaignState.ABORTING:
            self._end(CampaignState.ABORTED, now)
        elif self._campaign.state is CampaignState.RUNNING and not self._not_closed:
            self._end(CampaignState.COMPLETED, now)

    def _end(self, state: CampaignState, now: datetime) -> None:
        said = self._campaign.said
        if state is CampaignState.COMPLETED:
            said = Said(by=self.by, at=now)
        self.set(state=state, said=said, ended_at=now, gate=None)
        self.note(Did.CAMPAIGN_ENDED, by=self.by, now=now, state=state.value)
        self.tell("ended", now=now, why=state.value)

    # Clearing.

    def _clear(self, impacted: Impacted, conditions: Conditions, now: datetime) -> None:
        """Let start what may: the ready waves in the order of the plan. The first for which there is no room stops it.

        If a smaller one could pass it, a large one might never have its turn.
        """
        due = [(ready.turn, id_) for id_, ready in self._ready.items() if ready.at <= now]
        self._wakes += [ready.at for ready in self._ready.values() if ready.at > now]
        if not due:
            return
        if (opens_at := self._opens_at(conditions, now)) != now:
            self._wakes += [opens_at] if opens_at is not None else []
            return
        passed = 0
        for _, id_ in sorted(due):
            if passed == CLEARED_AT_ONCE:
                self.has_more = True
                return
            if self._passes_gate(id_, now):
                passed += 1
                if not self._clear_wave(id_, impacted, now):
                    return

    def _may_start_at(self, id_: str, at: datetime, conditions: Conditions, *, begun: bool) -> datetime:
        if begun:
            return at
        progress = self.progress(id_)
        rested = self._rested_at(progress, conditions)
        if self._campaign.spec.policy.advance:
            return max(at, rested)
        return max(at, rested, self._campaign.moment(progress, progress.wave(progress.current).planned))

    def _rested_at(self, progress: ScopeProgress, conditions: Conditions) -> datetime:
        """Return when the gap is over that the scope's waves before the current one leave."""
        ends = [wave.at for wave in progress.waves[: progress.current - 1] if wave.vms]
        if not ends:
            return LONG_AGO
        return self._campaign.moment(progress, max(ends)) + gap_of(self._campaign.spec, conditions)

    def _turn(self, id_: str) -> tuple[int, int]:
        progress = self.progress(id_)
        return progress.base + progress.wave(progress.current).planned, self._places[id_]

    def is_open(self, conditions: Conditions, *, now: datetime) -> bool:
        """Tell whether waves may start now, by windows and black-outs."""
        return self._opens_at(conditions, now) == now

    def _opens_at(self, conditions: Conditions, now: datetime) -> datetime | None:
        return self._times.next(now, length_of(self._campaign.spec, conditions))

    def _clear_wave(self, id_: str, impacted: Impacted, now: datetime) -> bool:
        """Let the ready events of a scope's wave start for which there is room; tell whether there was for all."""
        progress = self.progress(id_)
        n = progress.current
        chosen: list[str] = []
        for _, event, load in sorted(item for item in self._ready[id_].events if item[0] <= now):
            over = self._ceilings.exceeded(impacted.with_(load)) if self._is_limited else ()
            if over:
                self._no_room, self.waits_for_room = over[0], True
                break
            impacted.reserve(event, load)
            chosen.append(event)
        if chosen:
            if progress.wave(n).state is WaveState.ANNOUNCED:
                at = self._campaign.seconds(progress, now)
                self.put(progress.with_wave(n, progress.wave(n).now(WaveState.CLEARED, at)))
                self.note_wave(Did.WAVE_CLEARED, progress, n, now=now)
            del self._ready[id_]
            self._give(Clear(id_, n, tuple(chosen)))
        return self._no_room is None

    # The gate.

    def _passes_gate(self, id_: str, now: datetime) -> bool:
        """Tell whether the gate was found open since the scope's last wave; have it asked where that is not known."""
        if self._campaign.spec.policy.gate is None or self._ready[id_].begun or not self._any_settled:
            return True
        progress = self.progress(id_)
        n = progress.current
        ended_at = self._campaign.moment(progress, max([wave.at for wave in progress.waves[: n - 1]], default=0))
        opened_at = self._gate_opened_at
        if now - opened_at <= GATE_HOLDS and (n == 1 or opened_at >= ended_at):
            return True
        self._at_gate.append(id_)
        shut = self._campaign.gate
        if shut is not None and now < shut.again_at:
            self._wakes.append(shut.again_at)
        elif not any(isinstance(given, AskGate) for given in self._given):
            self._give(AskGate(id_, n))
        return False

    def gate_is_open(self, asked: AskGate, *, asked_at: datetime, now: datetime) -> None:
        """The gate was found open."""
        if self._campaign.state.is_over:
            return
        self._gate_opened_at = asked_at
        if self._campaign.gate is not None:
            shut_since = stamp(self._campaign.gate.since)
            self.set(gate=None)
            self._note_gate(Did.GATE_OPENED, asked, now=now, shut_since=shut_since)

    def gate_is_shut(self, asked: AskGate, why: str, *, now: datetime) -> None:
        """The gate was found shut; where it stays so for too long, the campaign halts."""
        if self._campaign.state.is_over:
            return
        known, patience = self._campaign.gate, self._campaign.spec.policy.gate_patience
        since = now if known is None else known.since
        again_at = min(now + GATE_AGAIN, since + patience) if now < since + patience else now + GATE_AGAIN
        self.set(gate=GateShut(since=since, why=shortened(why), again_at=again_at))
        if known is None:
            self._note_gate(Did.GATE_SHUT, asked, now=now, why=why)
        if now >= since + patience:
            name = gate_name(self._campaign.spec.policy.gate)
            self.halt(f"gate {name} has been shut since {stamp(since)}: {why}", now=now)

    def _note_gate(self, did: Did, asked: AskGate, *, now: datetime, why: str = "", **facts: str) -> None:
        gate = shortened(gate_name(self._campaign.spec.policy.gate))
        self.note(did, by=self.by, now=now, why=why, gate=gate, scope=asked.scope, wave=str(asked.n), **facts)

    # Announcing.

    def _line_up(self, i: int, scope: Scope | None) -> None:
        """Let the scope's next wave wait to be announced, if it has one and nothing stands before it."""
        progress = self._progress[i]
        if self._next_wave(progress, scope) is not None and progress.scope not in self._announcing:
            self._line.join(self._turn(progress.scope)[0], i)

    def _next_wave(self, progress: ScopeProgress, scope: Scope | None) -> Wave | None:
        """Return the wave of a scope that is to be announced next; None: there is none, or not now."""
        n = progress.current
        if scope is None or scope.held is not None or scope.id in self._leaving or n > len(progress.waves):
            return None
        wave = progress.wave(n)
        return wave if wave.state is WaveState.PLANNED else None

    def _announce(self, impacted: Impacted, scopes: Fleet, conditions: Conditions, now: datetime) -> None:
        """Announce waves in the order of the plan, as far as there will be room when their notice is over."""
        for i in self._line.woken(now):
            self._line_up(i, scopes(self._progress[i].scope))
        if self._line:
            self._announce_in_turn(impacted, scopes, conditions, now)
        wakes_at = self._line.wakes_at
        self._wakes += [wakes_at] if wakes_at is not None else []

    def _announce_in_turn(self, impacted: Impacted, scopes: Fleet, conditions: Conditions, now: datetime) -> None:
        notice, length = notice_of(self._campaign.spec, conditions), length_of(self._campaign.spec, conditions)
        forecast = Forecast(self._flights, impacted, self._ceilings, length=length, now=now)
        self._others_settle = self._is_limited and forecast.expects_an_end_now
        for _ in range(LOOKED_AT):
            if not self._line or len(self._announcing) >= ANNOUNCED_AT_ONCE:
                break
            if not self._announce_first(scopes, forecast, conditions, now):
                self.waits_for_room = True
                ends_at = forecast.next_end(now + notice)
                self._wakes += [ends_at - notice] if ends_at is not None else []
                break
        else:
            self.has_more = self.has_more or bool(self._line)

    def _announce_first(self, scopes: Fleet, forecast: Forecast, conditions: Conditions, now: datetime) -> bool:
        """Announce the wave whose turn it is, or let it go for a while; tell whether there was room for it."""
        progress = self._progress[self._line.first]
        scope = scopes(progress.scope)
        wave = self._next_wave(progress, scope)
        if scope is None or wave is None or self._campaign.state is not CampaignState.RUNNING:
            self._line.leave()
            return True
        start = self._start_of(progress, wave, conditions, now)
        if start is None:
            self._line.leave()
            self.fail(progress, progress.current, "no window is open within a year", now=now)
            return True
        notice = notice_of(self._campaign.spec, conditions)
        # A start is a whole second: what is announced now has up to a second more than its notice.
        if start > whole_second(now + notice):
            self._line.sleep(start - notice)
            return True
        if self._others_settle and start < self._campaign.moment(progress, wave.planned):
            # It would move up, perhaps into the room that the plan has for one whose turn comes before.
            self._line.sleep(now + SECOND)
            return True
        return self._announce_wave(progress, wave, scope, start, forecast, now)

    def _announce_wave(
        self, progress: ScopeProgress, wave: Wave, scope: Scope, start: datetime, forecast: Forecast, now: datetime
    ) -> bool:
        vms = [vm for vm in self._chooser.chosen(scope) if vm.update_domain == wave.update_domain]
        load = load_of_vms(scope.id, vms)
        too_large = self._ceilings.exceeded(Amounts(1, len(load.hosts), load.vms))
        if not too_large and self._is_limited and (lacking := forecast.lacks(start, load)) is not None:
            self._no_place = lacking
            return False
        self._line.leave()
        if too_large:
            self.fail(progress, progress.current, too_large[0].alone, now=now)
        else:
            self._flights[scope.id] = Flight(start, begun=False, load=load)
            forecast.take(self._flights[scope.id])
            self._give(Announce(scope.id, progress.current, start))
        return True

    def _start_of(self, progress: ScopeProgress, wave: Wave, conditions: Conditions, now: datetime) -> datetime | None:
        """Return when a wave could start that is announced as soon as that makes sense; None: never."""
        spec = self._campaign.spec
        start = max(self._rested_at(progress, conditions), whole_second(now + notice_of(spec, conditions)))
        if spec.start_at is not None:
            start = max(start, spec.start_at + notice_of(spec, conditions))
        if not spec.policy.advance:
            start = max(start, self._campaign.moment(progress, wave.planned))
        return self._times.next(start, length_of(spec, conditions))

    def announced(
        self,
        id_: str,
        n: int,
        *,
        vms: int,
        not_before: datetime | None,
        seen: int,
        differences: Differences,
        now: datetime,
    ) -> None:
        """The events of a wave are made; `not_before` None: there is no VM left for it."""
        progress = self.progress(id_)
        wave = progress.wave(n)
        if wave.state is not WaveState.PLANNED:
            return
        if any(differences):
            self._note_differences(progress, n, differences, now)
        state, at = (WaveState.DONE, now) if not_before is None else (WaveState.ANNOUNCED, not_before)
        kept = Wave(wave.update_domain, wave.planned, state, self._campaign.seconds(progress, at), vms)
        waves = progress.with_wave(n, kept).waves
        self.put(ScopeProgress(progress.scope, progress.base, waves, seen, progress.closed))
        if not_before is None:
            self.note_wave(Did.WAVE_SETTLED, progress, n, now=now, why="no VM is left for it", vms="0")
        else:
            facts = {"vms": str(vms), "not_before": stamp(not_before)}
            self.note_wave(Did.WAVE_ANNOUNCED, progress, n, now=now, **facts)

    def _note_differences(self, progress: ScopeProgress, n: int, differences: Differences, now: datetime) -> None:
        named = {what: shortened(" ".join(names)) for what, names in differences._asdict().items() if names}
        self.note_wave(Did.WAVE_DIFFERS, progress, n, now=now, **named)

    def closed(self, id_: str, left: dict[int, int], *, now: datetime) -> None:
        """All waves of a scope are settled; for the VMs that are left over, by update domain, it gets further ones."""
        progress = self.progress(id_)
        if progress.closed or progress.current <= len(progress.waves):
            return
        room = MOST_WAVES - len(progress.waves)
        planned = self._campaign.seconds(progress, now)
        added = tuple(Wave(domain, planned, vms=vms) for domain, vms in sorted(left.items()))[: max(room, 0)]
        waves = progress.waves + added
        self.put(ScopeProgress(progress.scope, progress.base, waves, progress.seen, closed=not added))
        for n, _ in enumerate(added, len(progress.waves) + 1):
            self.note_wave(
                Did.WAVE_DIFFERS, self.progress(id_), n, now=now, why="VMs are in no wave: a further one is for them"
            )


def _ready_at(scope: Scope, event: Event) -> datetime:
    return event.not_before if missing_approvals(scope, event) else LONG_AGO


def _is_held_by_the_campaign_alone(scope: Scope, event: Event, conditions: Conditions) -> bool:
    return all(isinstance(hold, AwaitsCampaign) for hold in waits_for_others(scope, event, conditions))


def _vms(events: Iterable[Event], scope: Scope) -> list[Vm]:
    """Return the VMs of events that are still there."""
    names = {vm for event in events for vm in event.vms}
    return [vm for vm in scope.roster if vm.name in names]
