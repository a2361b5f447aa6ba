"""The status of a scope in its campaign, derived only from the campaign's record and the scope."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from forewarn.core.campaign.actions import (
    Action,
    CloseScope,
    Finding,
    ReadOutcome,
    RetryEvent,
    ScopeRemoved,
    SkippedWaveEnded,
    WaveEnded,
    WaveResumed,
    WaveStuck,
    WithdrawEvent,
)
from forewarn.core.campaign.calendar import Calendar
from forewarn.core.campaign.limits import Load
from forewarn.core.campaign.load import has_stuck_work, load_of_event, load_of_vms
from forewarn.core.campaign.record import (
    FAR_PAST,
    MAX_FAILURE_BYTES,
    Campaign,
    CampaignState,
    ScopeProgress,
    Wave,
    WaveState,
)
from forewarn.core.event import Event, State
from forewarn.core.explain import CampaignPending, external_blockers, missing_approvals
from forewarn.core.impact import STUCK, ImpactState
from forewarn.core.policy import RuleContext
from forewarn.core.scope import EventOutcome, Scope
from forewarn.core.text import truncate_text

MAX_NAMES_SHOWN = 5
"""How many VMs with the same reason are named."""

Turn = tuple[int, int]
"""The place of a scope's wave in the plan: its planned start, and the scope's position."""


class ReadyEvent(msgspec.Struct, frozen=True, gc=False):
    """An event that only the campaign blocks, from a given time on."""

    at: datetime
    id: str
    load: Load


class ReadyWave(msgspec.Struct, frozen=True, gc=False):
    """Events of a scope's current wave that only the campaign blocks, now or from a given time on."""

    at: datetime
    """When the first of them may start, as far as the scope and its gap are concerned."""
    turn: Turn
    n: int
    events: tuple[ReadyEvent, ...]
    begun: bool
    """Whether other events of the wave have started."""
    ended_at: datetime
    """When the scope's previous wave ended; the gate must have been found open since then."""


class InFlightWave(msgspec.Struct, frozen=True, gc=False):
    """A wave that is announced or has begun."""

    start: datetime
    begun: bool
    load: Load


class ScopeStatus(msgspec.Struct, frozen=True, gc=False):
    """The status of a scope, and what the campaign has to do in it."""

    n: int = 1
    """Its current wave."""
    is_closed: bool = False
    is_held: bool = False
    is_open: bool = False
    """Whether it has open events of the campaign."""
    ready: ReadyWave | None = None
    in_flight: InFlightWave | None = None
    announce_turn: Turn | None = None
    """Its place among the waves to be announced; None if none of its waves is to be announced now."""
    findings: tuple[Finding, ...] = ()
    """What is not in the record yet."""
    actions: tuple[Action, ...] = ()
    """What has to be done."""


def derive_status(
    record: Campaign,
    progress: ScopeProgress,
    position: int,
    scope: Scope | None,
    context: RuleContext,
    calendar: Calendar,
) -> ScopeStatus:
    """Return the status of a scope; None if the scope was removed."""
    if record.state.is_over:
        return ScopeStatus(is_closed=progress.closed)
    if scope is None:
        gone: tuple[Finding, ...] = () if progress.closed else (ScopeRemoved(progress.scope),)
        return ScopeStatus(n=progress.current, is_closed=progress.closed, findings=gone)
    return _StatusBuilder(record, progress, position, scope, context, calendar).build()


class _StatusBuilder:
    """A status that is being derived."""

    def __init__(
        self,
        record: Campaign,
        progress: ScopeProgress,
        position: int,
        scope: Scope,
        context: RuleContext,
        calendar: Calendar,
    ) -> None:
        self.record, self.progress, self.position = record, progress, position
        self.scope, self.context, self.calendar = scope, context, calendar
        self.n = progress.current
        self.findings: list[Finding] = []
        self.actions: list[Action] = []
        self.ready: ReadyWave | None = None
        self.in_flight: InFlightWave | None = None

    def build(self) -> ScopeStatus:
        record, progress, scope, n = self.record, self.progress, self.scope, self.n
        wave = progress.wave(n) if n <= len(progress.waves) else None
        events = [event for event in scope.events if event.campaign == record.id]
        is_aborting = record.state is CampaignState.ABORTING
        others: list[Event] = []
        self.findings += self._late_ends()
        if events or (wave is not None and wave.state is not WaveState.PLANNED):
            request = record.request(scope.id, n) if wave is not None else ""
            mine = [event for event in events if event.request == request]
            others = [event for event in events if event.request != request]
            if is_aborting:
                self._withdraw(events, record.state_change.by, record.state_change.why or "aborted", stuck=False)
                others = [event for event in others if event.state is not State.SCHEDULED]
            self._withdraw(others, record.actor, "the wave is skipped", stuck=True)
            if wave is not None and wave.state is not WaveState.PLANNED:
                self._observe_wave(wave, request, mine)
        if wave is None and not progress.closed and not is_aborting:
            self.actions.append(CloseScope(scope.id))
        is_next = wave is not None and wave.state is WaveState.PLANNED and scope.hold is None and not others
        return ScopeStatus(
            n=n,
            is_closed=progress.closed,
            is_held=scope.hold is not None,
            is_open=bool(events),
            ready=self.ready,
            in_flight=self.in_flight,
            announce_turn=self._turn() if is_next else None,
            findings=tuple(self.findings),
            actions=tuple(self.actions),
        )

    def _turn(self) -> Turn:
        return self.progress.base + self.progress.wave(self.n).planned, self.position

    def _withdraw(self, events: Iterable[Event], by: str, why: str, *, stuck: bool) -> None:
        """Withdraw events that have not started and, with `stuck`, those with stuck impacts; others end normally."""
        for event in events:
            if event.state is State.SCHEDULED or (stuck and has_stuck_work(event)):
                self.actions.append(WithdrawEvent(self.scope.id, event.id, by, why))

    def _late_ends(self) -> Iterator[Finding]:
        """Report when work of a skipped wave has ended: the gap starts then."""
        for n, wave in enumerate(self.progress.waves[: self.n - 1], 1):
            if wave.state is WaveState.SKIPPED and self.scope.ended:
                request = self.record.request(self.scope.id, n)
                ends = [
                    item.at
                    for item in self.scope.ended
                    if item.request == request and item.outcome is not EventOutcome.CANCELED
                ]
                at = self.record.seconds(self.progress, max(ends, default=FAR_PAST))
                if at > wave.at:
                    yield SkippedWaveEnded(self.scope.id, n, at)

    def _observe_wave(self, wave: Wave, request: str, mine: Sequence[Event]) -> None:
        """Find the new state of the current wave."""
        id_, n = self.scope.id, self.n
        ended = tuple(item.outcome for item in self.scope.ended if item.request == request)
        if not mine:
            if ended and not (wave.state is WaveState.FAILED and EventOutcome.FAILED in ended):
                self.findings.append(WaveEnded(id_, n, ended))
            elif not ended and wave.state is not WaveState.FAILED:
                self.actions.append(ReadOutcome(id_, n))
            return
        stuck, seen = _find_stuck(id_, n, mine), self.record.retry_seen(id_, n)
        requested = [event for event in mine if wave.state is WaveState.RETRYING and has_stuck_work(event, seen)]
        if requested:
            self.actions += [RetryEvent(id_, event.id, self.record.actor, seen) for event in requested]
        elif stuck is not None:
            if wave.state is not WaveState.FAILED or self._is_news(stuck):
                self.findings.append(stuck)
        elif wave.state in (WaveState.FAILED, WaveState.RETRYING):
            self.findings.append(WaveResumed(id_, n))
        self._track_wave(wave, mine, begun=bool(ended) or any(event.state is State.STARTED for event in mine))

    def _is_news(self, stuck: WaveStuck) -> bool:
        """Return whether the record has a different reason for this failure; it has reasons only of the newest ones."""
        known = self.record.wave_failures.get(stuck.scope)
        reason = truncate_text(stuck.reason, MAX_FAILURE_BYTES)
        return known is not None and (known.why, known.unknown) != (reason, stuck.unknown)

    def _track_wave(self, wave: Wave, mine: Sequence[Event], *, begun: bool) -> None:
        record, progress, scope = self.record, self.progress, self.scope
        names = {vm for event in mine for vm in event.vms}
        load = load_of_vms(scope.id, [vm for vm in scope.roster if vm.name in names])
        self.in_flight = InFlightWave(record.moment(progress, wave.at), begun, load)
        if wave.state not in (WaveState.ANNOUNCED, WaveState.CLEARED):
            return
        ready = [
            ReadyEvent(_ready_at(scope, event), event.id, load_of_event(scope.id, event))
            for event in mine
            if event.state is State.SCHEDULED and not event.cleared and self._waits_for_campaign_only(event)
        ]
        ready.sort(key=lambda event: (event.at, event.id))
        if ready:
            at = ready[0].at
            if not begun:
                rested_at = record.rested_at(progress, self.calendar.gap)
                planned_at = record.moment(progress, wave.planned)
                at = self.calendar.earliest_start(at, rested_at=rested_at, planned_at=planned_at)
            ends = [before.at for before in progress.waves[: self.n - 1]]
            ended_at = record.moment(progress, max(ends)) if ends else FAR_PAST
            self.ready = ReadyWave(at, self._turn(), self.n, tuple(ready), begun, ended_at)

    def _waits_for_campaign_only(self, event: Event) -> bool:
        blockers = external_blockers(self.scope, event, self.context)
        return all(isinstance(blocker, CampaignPending) for blocker in blockers)


def _ready_at(scope: Scope, event: Event) -> datetime:
    return event.not_before if missing_approvals(scope, event) else FAR_PAST


def _find_stuck(scope: str, n: int, events: Iterable[Event]) -> WaveStuck | None:
    """Return what of the events' work waits for a person, grouping VMs with the same reason; None if nothing does."""
    groups: dict[tuple[ImpactState, str], list[str]] = {}
    for event in events:
        for impact in event.impacts:
            if impact.state in STUCK:
                groups.setdefault((impact.state, impact.why or "no reason was given"), []).append(impact.vm)
    if not groups:
        return None
    reason = "; ".join(_stuck_message(state, why, vms) for (state, why), vms in groups.items())
    return WaveStuck(scope, n, reason, unknown=any(state is ImpactState.UNKNOWN for state, _ in groups))


def _stuck_message(state: ImpactState, why: str, vms: Sequence[str]) -> str:
    more = len(vms) - MAX_NAMES_SHOWN
    names = ", ".join(vms[:MAX_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
    if state is ImpactState.UNKNOWN:
        return f"whether the work on {names} was done is unknown: {why}"
    return f"{names}: {why}"
