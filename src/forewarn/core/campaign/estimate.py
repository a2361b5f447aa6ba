"""Estimate when a campaign will be complete (ETA), from its current progress.

Times are integers, in seconds since the campaign started: datetimes are too slow for tens of thousands of waves.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from forewarn.core.campaign.calendar import Calendar, announce_at
from forewarn.core.campaign.limits import NO_LIMITS, resolve_limits, unknown_host
from forewarn.core.campaign.load import load_of_vms
from forewarn.core.campaign.record import SECOND, Campaign, CampaignState, ScopeProgress, Wave, WaveState
from forewarn.core.campaign.selection import Selector
from forewarn.core.policy import RuleContext
from forewarn.core.scope import Scope


class _NeverOpen(Exception):
    """No window is open within a year."""


class CompletionEstimate:
    """When a campaign will end if nothing new happens: add every scope, then read `end`.

    A scope's waves follow each other, each with its notice and the gap. If limits make scopes wait for each other, the
    plan has the order: its remaining waves are expected as late, or as early, as those in flight. A failed wave counts
    as skipped now, and a closed gate as open from its next check on.
    """

    def __init__(self, campaign: Campaign, calendar: Calendar, context: RuleContext, *, now: datetime) -> None:
        self._is_stopped = campaign.state is not CampaignState.RUNNING or context.hold is not None
        self._earliest_end = now
        self._campaign = campaign
        self._calendar = calendar
        self._now = _seconds(now, campaign.started_at)
        spec = campaign.spec
        self._notice, self._gap, self._length = (
            time // SECOND for time in (calendar.notice, calendar.gap, calendar.length)
        )
        self._limits = resolve_limits(spec.policy, campaign.selected)
        gate, announced = campaign.gate, _seconds(announce_at(spec, now), campaign.started_at)
        self._earliest = self._now if gate is None else max(self._now, _seconds(gate.retry_at, campaign.started_at))
        """Nothing starts before this time."""
        self._earliest_planned = max(self._earliest, announced + self._notice)
        """No wave that is not announced yet starts before this time."""
        self._has_windows = bool(spec.policy.windows or spec.policy.blackouts)
        self._next_starts: dict[int, int] = {}
        self._lags: list[int] = []
        """How far the waves in flight are behind the plan."""
        self._planned: list[int] = []
        """For each scope, the planned starts of the first and the last wave that are not announced yet."""
        self._selector = Selector(spec.selection)
        self._waves = self._vms = 0
        """The load of waves that have not begun."""
        self._hosts: set[str] = set()
        self._end = 0
        self._is_never = False

    def add(self, progress: ScopeProgress, scope: Scope | None = None) -> None:
        """Add the progress of a scope. Without the scope, the hosts of its VMs count as unknown."""
        if self._is_stopped or self._is_never or progress.closed:
            return
        try:
            self._end = max(self._end, self._end_of(progress, scope))
        except _NeverOpen:
            self._is_never = True

    @property
    def end(self) -> datetime | None:
        """When the campaign will end, or ended; None if that waits for a person, or never happens."""
        if self._is_stopped:
            return self._campaign.ended_at
        try:
            end = max(self._end, self._end_by_limits()) if self._limits != NO_LIMITS else self._end
        except _NeverOpen:
            return None
        since = self._campaign.started_at
        return None if self._is_never else max(self._earliest_end, since + timedelta(seconds=end))

    def _end_of(self, progress: ScopeProgress, scope: Scope | None) -> int:
        """Return when a scope would finish if it were alone."""
        base, waves = progress.base, progress.waves
        n, end = 0, -base - self._gap
        for wave in waves:
            if wave.state is not WaveState.DONE and wave.state is not WaveState.SKIPPED:
                break
            n, end = n + 1, max(end, wave.at) if wave.vms else end
        else:
            return base + end
        end = self._end_of_current(base + end, base, wave)
        later = waves[n + 1 :]
        if self._limits != NO_LIMITS:
            has_begun = wave.state is not WaveState.PLANNED and wave.state is not WaveState.ANNOUNCED
            self._add_load(progress.scope, later if has_begun else waves[n:], scope)
        if later:
            self._planned += (base + later[0].planned, base + later[-1].planned)
        for wave in later:
            not_before = max(end + self._notice, self._earliest_planned)
            end = self._start(not_before, end, base + wave.planned) + self._length
        return end

    def _add_load(self, id_: str, waves: tuple[Wave, ...], scope: Scope | None) -> None:
        """Add the load of waves that have not begun."""
        self._waves += len(waves)
        if self._limits.vms is not None:
            self._vms += sum([wave.vms for wave in waves])
        if self._limits.hosts is not None:
            domains = {wave.update_domain for wave in waves}
            if scope is None:
                self._hosts.update([unknown_host(id_, domain) for domain in domains])
            else:
                vms = [vm for vm in self._selector.select(scope) if vm.update_domain in domains]
                self._hosts.update(load_of_vms(id_, vms).hosts)

    def _end_of_current(self, before: int, base: int, wave: Wave) -> int:
        """Return when a scope's current wave will end; the previous one ended at the given time."""
        state, planned = wave.state, base + wave.planned
        if state is WaveState.FAILED:
            return self._now
        if state is WaveState.CLEARED or state is WaveState.RETRYING:
            end = max(base + wave.at + self._length, self._now)
            self._lags.append(end - self._length - planned)
            return end
        if state is WaveState.PLANNED:
            self._planned.append(planned)
            return self._start(self._earliest_planned, before, planned) + self._length
        start = self._start(max(self._earliest, base + wave.at), before, planned)
        self._lags.append(start - planned)
        return start + self._length

    def _start(self, not_before: int, before: int, planned: int) -> int:
        """Return when a wave will start if limits leave room; its scope's previous wave ended at the given time."""
        start = self._calendar.earliest_start(not_before, rested_at=before + self._gap, planned_at=planned)
        return self._next_start(start) if self._has_windows else start

    def _next_start(self, second: int) -> int:
        """Return the first time, not before this one, at which a window is open."""
        if (known := self._next_starts.get(second)) is not None:
            return known
        since = self._campaign.started_at
        start = self._calendar.next_start(since + timedelta(seconds=second))
        if start is None:
            raise _NeverOpen
        return self._next_starts.setdefault(second, _seconds(start, since))

    def _end_by_limits(self) -> int:
        """Return when all waves will end, including those that wait for limits."""
        ends = [self._earliest + rounds * self._length for rounds in self._rounds()]
        if self._planned:
            late = max([*(self._lags or [0]), self._earliest_planned - min(self._planned)])
            last = max(max(self._planned) + late, self._earliest_planned)
            ends.append((self._next_start(last) if self._has_windows else last) + self._length)
        return max(ends, default=0)

    def _rounds(self) -> Iterator[int]:
        """Yield for each limit how many times it would have to be used in full."""
        if self._limits.scopes is not None:
            yield -(-self._waves // self._limits.scopes)
        if self._limits.hosts is not None:  # waves on the same host can run at the same time
            yield -(-len(self._hosts) // self._limits.hosts)
        if self._limits.vms is not None:
            yield -(-self._vms // self._limits.vms)


def _seconds(moment: datetime, since: datetime) -> int:
    return -((since - moment) // SECOND)
