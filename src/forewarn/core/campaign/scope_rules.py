"""Rules that carry out a campaign's actions in a scope: create the events of a wave, clear them, withdraw them."""

from collections.abc import Iterable
from datetime import datetime

from forewarn.core import impact_lifecycle, operations
from forewarn.core.campaign.actions import (
    AnnounceWave,
    ClearWave,
    CloseScope,
    Finding,
    ReadOutcome,
    RetryEvent,
    ScopeAction,
    ScopeClosed,
    WaveAnnounced,
    WaveEnded,
    WaveRefused,
    WithdrawEvent,
)
from forewarn.core.campaign.history import ScopeHistory, read_history
from forewarn.core.campaign.index import CampaignIndex
from forewarn.core.campaign.load import has_stuck_work
from forewarn.core.campaign.record import Campaign, CampaignState, Wave, WaveState
from forewarn.core.change import Change
from forewarn.core.errors import CoreError
from forewarn.core.event import State
from forewarn.core.journal import Entry
from forewarn.core.policy import RuleContext
from forewarn.core.schedule import ScheduleRequest, ceil_to_second, schedule
from forewarn.core.scope import Scope


def execute(
    action: ScopeAction,
    scope: Scope,
    record: Campaign,
    index: CampaignIndex,
    journal: Iterable[Entry],
    context: RuleContext,
    *,
    now: datetime,
) -> Change[Finding | None]:
    """Execute an action in its scope, whose relevant journal entries since the campaign began are `journal`.

    Return its finding; None: the scope itself shows the result.
    """

    def history() -> ScopeHistory:
        return read_history(journal, record.id, seen=index.progress(scope.id).seen)

    match action:
        case AnnounceWave():
            return announce_wave(scope, action, record, index, history(), context, now=now)
        case ClearWave():
            return clear_wave(scope, action, record, index, context, now=now)
        case WithdrawEvent():
            return withdraw_event(scope, action, context, now=now)
        case RetryEvent():
            return retry_event(scope, action, now=now)
        case ReadOutcome(_, n):
            return Change(scope, (), WaveEnded(scope.id, n, history().outcomes.get(n, ())))
        case CloseScope():
            return Change(scope, (), close_scope(scope.id, scope, index, history()))


def announce_wave(
    scope: Scope,
    action: AnnounceWave,
    record: Campaign,
    index: CampaignIndex,
    history: ScopeHistory,
    context: RuleContext,
    *,
    now: datetime,
) -> Change[WaveAnnounced | WaveRefused | None]:
    """Create the events of a wave for the VMs that it has now, except for those that are done.

    Return None if the campaign was stopped, or the wave was skipped or announced, in the meantime.
    """
    wave = _newest_wave(record, index, scope.id, action.n)
    if wave is None or wave.state is not WaveState.PLANNED:
        return Change(scope, (), None)
    now = max(now, scope.changed_at)
    request = record.request(scope.id, action.n)
    selected = (vm for vm in index.selector.select(scope) if vm.update_domain == wave.update_domain)
    names = tuple(vm.name for vm in selected if vm.name not in history.done)
    announced = WaveAnnounced(action.scope, action.n, 0, None, history.seen, history.differences)
    existing = [event for event in scope.events if event.request == request]
    if not names and not existing:
        return Change(scope, (), announced)
    start = max(action.start, ceil_to_second(now + index.calendar.notice))
    schedule_request = ScheduleRequest(
        id=request,
        type=record.spec.type,
        vms=names or existing[0].vms,
        by=record.actor,
        not_before=start,
        duration=record.spec.duration,
        description=record.spec.description,
        campaign=record.id,
        wave=action.n,
    )
    try:
        change = schedule(scope, schedule_request, context, now=now)
    except CoreError as refusal:
        return Change(scope, (), WaveRefused(scope.id, action.n, str(refusal)))
    events = [event for event in (change.scope or scope).events if event.request == request]
    vms = sum(len(event.vms) for event in events) or len(names)
    not_before = max((event.not_before for event in events), default=start)
    is_visible = any(event.announced for event in events) or not events
    finding = announced._replace(vms=vms, not_before=not_before, announced=is_visible)
    return Change(change.scope, change.entries, finding)


def clear_wave(
    scope: Scope, action: ClearWave, record: Campaign, index: CampaignIndex, context: RuleContext, *, now: datetime
) -> Change[None]:
    """Clear events, unless the campaign or wave was stopped, or the window has closed, in the meantime."""
    wave = _newest_wave(record, index, scope.id, action.n)
    if wave is None or wave.state not in (WaveState.ANNOUNCED, WaveState.CLEARED) or not index.calendar.is_open(now):
        return Change(scope, (), None)
    change = operations.clear(scope, action.events, context, now=now)
    return Change(change.scope, change.entries, None)


def _newest_wave(record: Campaign, index: CampaignIndex, scope: str, n: int) -> Wave | None:
    """Return the wave from the newest record, which may be newer than the index; None if the campaign does not run."""
    waves = record.scopes[index.positions[scope]].waves
    return waves[n - 1] if record.state is CampaignState.RUNNING and n <= len(waves) else None


def withdraw_event(scope: Scope, action: WithdrawEvent, context: RuleContext, *, now: datetime) -> Change[None]:
    """Cancel an event that has not started, or give up the stuck impacts of a Started one."""
    event = scope.find_event(action.event)
    if event is None:
        return Change(scope, (), None)
    if event.state is State.SCHEDULED:
        return operations.cancel(scope, event.id, context, by=action.by, now=now, why=action.why)
    return impact_lifecycle.resolve(scope, event.id, context, by=action.by, why=action.why, now=now)


def retry_event(scope: Scope, action: RetryEvent, *, now: datetime) -> Change[None]:
    """Retry the failed impacts of an event, except those that have failed since the request, so also not twice."""
    event = scope.find_event(action.event)
    if event is None or not has_stuck_work(event, action.seen):
        return Change(scope, (), None)
    return impact_lifecycle.retry(scope, event.id, by=action.by, now=now, seen=action.seen)


def close_scope(id_: str, scope: Scope | None, index: CampaignIndex, history: ScopeHistory) -> ScopeClosed:
    """Return the VMs of a scope that were in no wave; none if the journal no longer has all waves."""
    waves = index.progress(id_).waves
    if scope is None or not history.covers(waves):
        return ScopeClosed(id_)
    skipped = {wave.update_domain for wave in waves if wave.state is WaveState.SKIPPED}
    left: dict[int, int] = {}
    for vm in index.selector.select(scope):
        is_passed_over = vm.update_domain in skipped and vm.name not in history.dropped
        if vm.name not in history.touched and not is_passed_over:
            left[vm.update_domain] = left.get(vm.update_domain, 0) + 1
    return ScopeClosed(id_, tuple(left.items()))
