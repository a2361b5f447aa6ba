"""How a campaign goes on: what it makes of what it sees of its scopes, and what is to be done next.

A course is a campaign while it is worked on. It is kept from change to change, because making it means looking at every
scope. Save `record` with `entries` first, in one step; do what `actions` say afterwards.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import chain
from typing import NamedTuple

import msgspec

from forewarn.core.campaign.limits import Amounts, Exceeded, InUse, Load, ceilings
from forewarn.core.campaign.load import Impacted, load_of_event, load_of_vms
from forewarn.core.campaign.pace import gap_of, length_of, notice_of
from forewarn.core.campaign.record import (
    MOST_WAVES,
    TROUBLES,
    Campaign,
    CampaignState,
    GateShut,
    Notice,
    Said,
    ScopeProgress,
    Trouble,
    Wave,
    WaveState,
)
from forewarn.core.campaign.selection import Chooser
from forewarn.core.campaign.spec import CampaignPolicy
from forewarn.core.campaign.windows import DAY, Span, Zones, starts
from forewarn.core.change import stamp
from forewarn.core.conditions import Conditions
from forewarn.core.event import STUCK, Event, State
from forewarn.core.explain import AwaitsCampaign, missing_approvals, waits_for_others
from forewarn.core.journal import Did, Entry
from forewarn.core.limits import IMPACT_TEXT_BYTES
from forewarn.core.schedule import whole_second
from forewarn.core.scope import Outcome, Scope
from forewarn.core.text import shortened
from forewarn.core.vm import Vm

LONG_AGO = datetime.min.replace(tzinfo=UTC)
FOR_EVER = datetime.max.replace(tzinfo=UTC)

GATE_HOLDS = timedelta(minutes=1)
"""For how long a gate that was found open counts as open."""

GATE_AGAIN = timedelta(minutes=1)
"""After which time a gate that is shut is asked again."""

ANNOUNCED_AT_ONCE = 200
"""How many waves are being announced at the same time."""

LOOKED_AT = 100
"""How many waves that wait to be announced are looked at before others have their turn."""


class Announce(NamedTuple):
    """Make the events of a wave, with the VMs that the scope has now."""

    scope: str
    n: int
    start: datetime


class Clear(NamedTuple):
    """Let events of a wave start."""

    scope: str
    n: int
    events: tuple[str, ...]


class Withdraw(NamedTuple):
    """Cancel an event that is Scheduled, and give up the work of one that is stuck: the campaign is done with it."""

    scope: str
    event: str
    by: str
    why: str


class TryAgain(NamedTuple):
    """Have the failed work of an event done once more."""

    scope: str
    event: str
    by: str


class Recall(NamedTuple):
    """Find out from the journal how a wave has ended that the scope does not remember."""

    scope: str
    n: int


class Close(NamedTuple):
    """Find out from the journal whether VMs of the scope are left over."""

    scope: str


class AskGate(NamedTuple):
    """Ask the health gate."""

    scope: str
    n: int


Action = Announce | Clear | Withdraw | TryAgain | Recall | Close | AskGate


class _Ready(NamedTuple):
    """Events of a scope's current wave that only the campaign holds, or will from a moment on."""

    at: datetime
    """When the first of them may start, as far as the scope is concerned."""
    turn: tuple[int, int]
    events: tuple[tuple[datetime, str, Load], ...]
    begun: bool
    """Whether other events of the wave have started."""


class _Flight(NamedTuple):
    """A wave that is announced or has begun."""

    start: datetime
    begun: bool
    load: Load


class Differences(NamedTuple):
    """What has happened to the VMs of a scope since they were last looked at."""

    came: tuple[str, ...] = ()
    went: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class Course:
    """A campaign while it is worked on. `listens`: whether somebody is to be told of its start, halt and end."""

    def __init__(self, campaign: Campaign, zones: Zones, *, listens: bool = False) -> None:
        self._campaign = campaign
        self._progress = list(campaign.scopes)
        self._places = {progress.scope: i for i, progress in enumerate(self._progress)}
        self._listens = listens
        self._chooser = Chooser(campaign.spec.selection)
        self._ceilings = ceilings(campaign.spec.policy, campaign.selected)
        self._is_limited = self._ceilings != type(self._ceilings)()
        self._not_closed = sum(not progress.closed for progress in self._progress)
        self._any_settled = any(wave.state.is_settled for progress in self._progress for wave in progress.waves)
        self._ready: dict[str, _Ready] = {}
        self._flights: dict[str, _Flight] = {}
        self._open: set[str] = set()
        """The scopes with open events of the campaign."""
        self._line: list[tuple[int, int]] = []
        self._queued: set[int] = set()
        self._asleep: list[tuple[datetime, int]] = []
        self._given: set[Action] = set()
        self._announcing: set[str] = set()
        self._clearing: set[str] = set()
        self._times = _Times(campaign.spec.policy, zones)
        self._gate_opened_at = LONG_AGO
        self._wakes: list[datetime] = []
        self._is_changed = False
        self.blocked_by: Exceeded | None = None
        """The limit for which the next wave waits."""
        self.waits_for_room = False
        """Whether something else may be decided when less is in impact, wherever in the fleet."""
        self.entries: list[Entry] = []
        self.actions: list[Action] = []
        self.unseen: set[str] = set(self._places)
        """The scopes that must be seen before anything is decided."""
        self.has_more = False
        """Whether there is more to decide at once."""

    # What is kept.

    @property
    def campaign(self) -> Campaign:
        """The campaign but for the progress of its scopes, which may have gone on."""
        return self._campaign

    @property
    def is_changed(self) -> bool:
        """Whether there is something to be saved."""
        return self._is_changed

    def taken(self) -> tuple[Campaign, tuple[Entry, ...]]:
        """Give the campaign as it is now, and what the journal says of it. If that cannot be saved, begin anew."""
        entries, self.entries = tuple(self.entries), []
        self._campaign = msgspec.structs.replace(
            self._campaign, scopes=tuple(self._progress), entries=self._campaign.entries + len(entries)
        )
        self._is_changed = False
        return self._campaign, entries

    def has(self, scope: str) -> bool:
        """Tell whether the campaign has the scope."""
        return scope in self._places

    def place(self, scope: str) -> int:
        """Return which of the campaign's scopes it is."""
        return self._places[scope]

    def progress(self, scope: str) -> ScopeProgress:
        """Return how far a scope is."""
        return self._progress[self._places[scope]]

    def set(self, **fields: object) -> None:
        """Replace fields of the campaign."""
        self._campaign = msgspec.structs.replace(self._campaign, **fields)
        self._is_changed = True

    def note(self, did: Did, *, by: str, now: datetime, why: str = "", **facts: str) -> None:
        """Add a journal entry."""
        n = self._campaign.entries + len(self.entries) + 1
        self._is_changed = True
        self.entries.append(Entry(n=n, at=now, did=did, by=by, why=shortened(why), facts=facts))

    def tell(self, what: str, *, now: datetime, why: str = "") -> None:
        """Have others told of what the last entry says."""
        if self._listens:
            n = self._campaign.entries + len(self.entries)
            notice = Notice(n=n, what=what, at=now, why=shortened(why))
            self.set(untold=(*self._campaign.untold, notice))

    def put(self, progress: ScopeProgress) -> None:
        """Keep how far a scope is."""
        i = self._places[progress.scope]
        self._not_closed += self._progress[i].closed - progress.closed
        self._progress[i] = progress
        self._is_changed = True

    @property
    def by(self) -> str:
        """What the journals call the campaign."""
        return f"campaign:{self._campaign.name}"

    # What is seen.

    def see(self, id_: str, scope: Scope | None, conditions: Conditions, *, now: datetime) -> None:
        """Take a scope as it is now; None: it is gone."""
        self.unseen.discard(id_)
        self._ready.pop(id_, None)
        if id_ not in self._announcing:
            self._flights.pop(id_, None)
        self._open.discard(id_)
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
        request = self._campaign.request(scope.id, n) if n <= len(progress.waves) else ""
        mine = [event for event in events if event.request == request]
        if self._campaign.state is CampaignState.ABORTING:
            self._withdraw(scope.id, events)
        else:
            self._withdraw(scope.id, [event for event in events if event.request != request])
        if request and progress.wave(n).state is not WaveState.PLANNED:
            self._follow(progress, n, scope, mine, conditions, now)
        progress = self.progress(scope.id)
        if progress.current > len(progress.waves) and not progress.closed:
            self._give(Close(scope.id))

    def _withdraw(self, scope: str, events: Iterable[Event]) -> None:
        """Take events back that the campaign is done with: it is aborted, or their wave was skipped."""
        said = self._campaign.said
        for event in events:
            if event.state is State.SCHEDULED or _stuck(event) is not None:
                aborted = self._campaign.state is CampaignState.ABORTING
                by, why = (said.by, said.why or "aborted") if aborted else (self.by, "the wave is skipped")
                if event.state is State.SCHEDULED or not aborted:
                    self._give(Withdraw(scope, event.id, by, why))

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
        stuck = [event for event in mine if _stuck(event) is not None]
        if stuck and wave.state is WaveState.RETRYING:
            for event in stuck:
                self._give(TryAgain(scope.id, event.id, self.by))
        elif stuck and wave.state is not WaveState.FAILED:
            self.fail(progress, n, _stuck(stuck[0]) or "", now=now)
        elif not stuck and wave.state in (WaveState.FAILED, WaveState.RETRYING):
            self._go_on(progress, n, now)
        self._keep_in_sight(self.progress(scope.id).wave(n), scope, mine, conditions, begun=bool(ended))

    def _keep_in_sight(
        self, wave: Wave, scope: Scope, mine: list[Event], conditions: Conditions, *, begun: bool
    ) -> None:
        begun = begun or any(event.state is State.STARTED for event in mine)
        at = self._campaign.moment(self.progress(scope.id), wave.at)
        self._flights[scope.id] = _Flight(at, begun, load_of_vms(scope.id, _vms(mine, scope)))
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

    # How waves end.

    def settle(self, progress: ScopeProgress, n: int, ended: Collection[Outcome], *, now: datetime) -> None:
        """Take how the events of a wave have ended."""
        wave = progress.wave(n)
        if Outcome.FAILED in ended:
            if wave.state is not WaveState.FAILED:
                self.fail(progress, n, "work was given up", now=now)
            return
        done = Outcome.COMPLETED in ended
        at = self._campaign.seconds(progress, now)
        self.put(progress.with_wave(n, wave.now(WaveState.DONE if done else WaveState.SKIPPED, at)))
        self.forget_trouble(progress.scope)
        self._any_settled = True
        if done:
            self.note_wave(Did.WAVE_SETTLED, progress, n, now=now, vms=str(wave.vms))
        else:
            self.note_wave(Did.WAVE_SKIPPED, progress, n, now=now, why="its events were canceled")

    def fail(self, progress: ScopeProgress, n: int, why: str, *, now: datetime) -> None:
        """A wave has failed: its scope waits for a person, and the campaign halts if that was one too many."""
        at = self._campaign.seconds(progress, now)
        self.put(progress.with_wave(n, progress.wave(n).now(WaveState.FAILED, at)))
        trouble = Trouble(wave=n, at=now, why=shortened(why, IMPACT_TEXT_BYTES))
        troubles = {**self._campaign.troubles, progress.scope: trouble}
        if len(troubles) > TROUBLES:
            oldest = next(scope for scope, known in troubles.items() if known.why or scope == progress.scope)
            troubles[oldest] = msgspec.structs.replace(troubles[oldest], why="")
        failures = self._campaign.failures + 1
        self.set(troubles=troubles, failures=failures)
        self.note_wave(Did.WAVE_FAILED, progress, n, now=now, why=why)
        limit = self._campaign.spec.policy.halt_after
        if limit is not None and failures >= limit:
            many = "a wave has failed" if failures == 1 else f"{failures} waves have failed"
            self.halt(f"{many}: {progress.scope}, wave {n}: {why}", now=now)

    def halt(self, why: str, *, now: datetime) -> None:
        """Stop announcing and clearing until a person says that it goes on."""
        if self._campaign.state is CampaignState.RUNNING:
            self.set(state=CampaignState.HALTED, said=Said(by=self.by, at=now, why=shortened(why)))
            self.note(Did.CAMPAIGN_HALTED, by=self.by, now=now, why=why)
            self.tell("halted", now=now, why=why)

    def _go_on(self, progress: ScopeProgress, n: int, now: datetime) -> None:
        """The failed work of a wave is being done once more."""
        at = self._campaign.seconds(progress, now)
        self.put(progress.with_wave(n, progress.wave(n).now(WaveState.CLEARED, at)))
        self.forget_trouble(progress.scope)

    def forget_trouble(self, scope: str) -> None:
        """Let nothing of a scope wait for a person any more."""
        if scope in self._campaign.troubles:
            self.set(troubles={key: value for key, value in self._campaign.troubles.items() if key != scope})

    def note_wave(
        self, did: Did, progress: ScopeProgress, n: int, *, now: datetime, by: str = "", why: str = "", **facts: str
    ) -> None:
        """Add a journal entry on a wave."""
        domain = str(progress.wave(n).update_domain)
        self.note(
            did,
            by=by or self.by,
            now=now,
            why=why,
            scope=progress.scope,
            wave=str(n),
            update_domain=domain,
            **facts,
        )

    # What is decided.

    @property
    def wake_at(self) -> datetime | None:
        """When time itself may change something; None: only something else can."""
        return min(self._wakes, default=None)

    def over(self, action: Action) -> None:
        """What was given out is done, or could not be. See its scope next."""
        self._given.discard(action)
        if isinstance(action, Announce):
            self._announcing.discard(action.scope)
            self._flights.pop(action.scope, None)
        elif isinstance(action, Clear):
            self._clearing.discard(action.scope)

    def decide(
        self, impacted: Impacted, scopes: Callable[[str], Scope | None], conditions: Conditions, *, now: datetime
    ) -> None:
        """Find what is to be done now, given what is in impact in the whole fleet."""
        self._wakes, self.has_more, self.blocked_by, self.waits_for_room = [], False, None, False
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
        if self._given or self._open:
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
        if not due or not self._is_open(conditions, now):
            return
        for _, id_ in sorted(due):
            if self._passes_gate(id_, now) and not self._clear_wave(id_, impacted, now):
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

    def _is_open(self, conditions: Conditions, now: datetime) -> bool:
        opens_at = self._times.next(now, length_of(self._campaign.spec, conditions))
        if opens_at is None or opens_at > now:
            self._wakes += [opens_at] if opens_at is not None else []
            return False
        return True

    def _clear_wave(self, id_: str, impacted: Impacted, now: datetime) -> bool:
        """Let the ready events of a scope's wave start for which there is room; tell whether there was for all."""
        progress = self.progress(id_)
        n = progress.current
        chosen: list[str] = []
        for _, event, load in sorted(item for item in self._ready[id_].events if item[0] <= now):
            over = self._ceilings.exceeded(impacted.with_(load)) if self._is_limited else ()
            if over:
                self.blocked_by, self.waits_for_room = over[0], True
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
        return self.blocked_by is None

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
        shut = self._campaign.gate
        if shut is not None and now < shut.again_at:
            self._wakes.append(shut.again_at)
        elif not any(isinstance(given, AskGate) for given in self._given):
            self._give(AskGate(id_, n))
        return False

    def gate_is_open(self, *, asked_at: datetime, now: datetime) -> None:
        """The gate was found open."""
        self._gate_opened_at = asked_at
        if self._campaign.gate is not None:
            shut_for = stamp(self._campaign.gate.since)
            self.set(gate=None)
            self.note(Did.GATE_OPENED, by=self.by, now=now, shut_since=shut_for)

    def gate_is_shut(self, why: str, *, now: datetime) -> None:
        """The gate was found shut; where it stays so for too long, the campaign halts."""
        known, patience = self._campaign.gate, self._campaign.spec.policy.gate_patience
        since = now if known is None else known.since
        again_at = min(now + GATE_AGAIN, since + patience) if now < since + patience else now + GATE_AGAIN
        self.set(gate=GateShut(since=since, why=shortened(why), again_at=again_at))
        if known is None:
            self.note(Did.GATE_SHUT, by=self.by, now=now, why=why)
        if now >= since + patience:
            self.halt(f"the gate has been shut since {stamp(since)}: {why}", now=now)

    # Announcing.

    def _line_up(self, i: int, scope: Scope | None) -> None:
        """Let the scope's next wave wait to be announced, if it has one and nothing stands before it."""
        progress = self._progress[i]
        if (
            scope is None
            or scope.held is not None
            or i in self._queued
            or scope.id in self._announcing
            or progress.current > len(progress.waves)
            or progress.wave(progress.current).state is not WaveState.PLANNED
        ):
            return
        self._queued.add(i)
        heappush(self._line, (progress.base + progress.wave(progress.current).planned, i))

    def _announce(
        self,
        impacted: Impacted,
        scopes: Callable[[str], Scope | None],
        conditions: Conditions,
        now: datetime,
    ) -> None:
        """Announce waves in the order of the plan, as far as there will be room when their notice is over."""
        self._wake_up(scopes, now)
        forecast = _Forecast(self, impacted, conditions, now)
        for _ in range(LOOKED_AT):
            if not self._line or len(self._announcing) >= ANNOUNCED_AT_ONCE:
                break
            i = self._line[0][1]
            progress = self._progress[i]
            scope = scopes(progress.scope)
            is_next = progress.current <= len(progress.waves)
            wave = progress.wave(progress.current) if is_next else None
            start = None if wave is None else self._start_of(progress, wave, conditions, now)
            if scope is None or scope.held is not None or wave is None or wave.state is not WaveState.PLANNED:
                self._leave_line(i)
            elif start is None:
                self._leave_line(i)
                self.fail(progress, progress.current, "no window is open within a year", now=now)
            elif start - notice_of(self._campaign.spec, conditions) > now:
                self._leave_line(i)
                heappush(self._asleep, (start - notice_of(self._campaign.spec, conditions), i))
            else:
                vms = [vm for vm in self._chooser.chosen(scope) if vm.update_domain == wave.update_domain]
                load = load_of_vms(scope.id, vms)
                too_large = self._ceilings.exceeded(Amounts(1, len(load.hosts), load.vms)) if self._is_limited else ()
                if too_large:
                    self._leave_line(i)
                    self.fail(progress, progress.current, too_large[0].alone, now=now)
                elif self._is_limited and not forecast.has_room(start, load):
                    self.waits_for_room = True
                    break
                else:
                    self._leave_line(i)
                    self._flights[scope.id] = _Flight(start, begun=False, load=load)
                    forecast.take(self._flights[scope.id])
                    self._give(Announce(scope.id, progress.current, start))
            if self._campaign.state is not CampaignState.RUNNING:
                return
        else:
            self.has_more = bool(self._line)
        if self._asleep:
            self._wakes.append(self._asleep[0][0])
        self._wakes += forecast.wakes

    def _leave_line(self, i: int) -> None:
        heappop(self._line)
        self._queued.discard(i)

    def _wake_up(self, scopes: Callable[[str], Scope | None], now: datetime) -> None:
        while self._asleep and self._asleep[0][0] <= now:
            _, i = heappop(self._asleep)
            self._line_up(i, scopes(self._progress[i].scope))

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


class _Times:
    """The times in which waves may start. What was worked out once is kept: it is asked for with every step."""

    def __init__(self, policy: CampaignPolicy, zones: Zones) -> None:
        self._policy = policy
        self._zones = zones
        self._length = timedelta(0)
        self._since = FOR_EVER
        self._spans: Iterator[Span] = iter(())
        self._known: list[Span] = []

    def next(self, moment: datetime, length: timedelta) -> datetime | None:
        """Return the first moment, not before this one, at which a wave of this length may start; None: never."""
        if length != self._length or not self._since <= moment < self._since + DAY:
            self._length, self._since, self._known = length, moment, []
            self._spans = starts(self._policy, moment, length, self._zones)
        for span in chain(self._known, self._more()):
            if span.end > moment:
                return max(span.start, moment)
        return None

    def _more(self) -> Iterator[Span]:
        for span in self._spans:
            self._known.append(span)
            yield span


class _Forecast:
    """What is expected to be in impact when the notice of the next wave is over.

    What takes longer than expected, and what was announced and waits, is expected to last for ever: as long as
    something is late, nothing is announced that would have to wait for it.
    """

    def __init__(self, course: Course, impacted: Impacted, conditions: Conditions, now: datetime) -> None:
        self._flights = dict(course._flights)  # noqa: SLF001 - a part of the course that has a name of its own
        self._ceilings = course._ceilings  # noqa: SLF001
        self._impacted = impacted
        self._length = length_of(course.campaign.spec, conditions)
        self._notice = notice_of(course.campaign.spec, conditions)
        self._now = now
        self._moment: datetime | None = None
        self._in_use = InUse()
        self.wakes: list[datetime] = []

    def has_room(self, moment: datetime, load: Load) -> bool:
        """Tell whether there will be room; where there will not, note when that may be different."""
        if moment != self._moment:
            self._build(moment)
        if self._ceilings.keep(self._in_use.with_(load)):
            return True
        ends = [end for flight in self._flights.values() if (end := self._end(flight)) < FOR_EVER]
        later = [end - self._notice for end in ends if end - self._notice > self._now]
        self.wakes += [min(later)] if later else []
        return False

    def take(self, flight: _Flight) -> None:
        """Count a wave that is announced now."""
        self._flights[flight.load.scope] = flight
        self._in_use.take(flight.load)

    def _build(self, moment: datetime) -> None:
        self._moment, self._in_use = moment, InUse()
        for load in self._impacted.loads():
            flight = self._flights.get(load.scope)
            if flight is None or not flight.begun or self._end(flight) > moment:
                self._in_use.take(load)
        for flight in self._flights.values():
            if not flight.begun and self._end(flight) > moment:
                self._in_use.take(flight.load)

    def _end(self, flight: _Flight) -> datetime:
        is_late = self._now > (flight.start + self._length if flight.begun else flight.start)
        return FOR_EVER if is_late else flight.start + self._length


def _stuck(event: Event) -> str | None:
    """Say what of an event's work waits for a person, if any does."""
    for impact in event.impacts:
        if impact.state in STUCK:
            how = impact.why or impact.state.value
            return f"{impact.vm}: {how}"
    return None


def _ready_at(scope: Scope, event: Event) -> datetime:
    return event.not_before if missing_approvals(scope, event) else LONG_AGO


def _is_held_by_the_campaign_alone(scope: Scope, event: Event, conditions: Conditions) -> bool:
    return all(isinstance(hold, AwaitsCampaign) for hold in waits_for_others(scope, event, conditions))


def _vms(events: Iterable[Event], scope: Scope) -> list[Vm]:
    """Return the VMs of events that are still there."""
    names = {vm for event in events for vm in event.vms}
    return [vm for vm in scope.roster if vm.name in names]
