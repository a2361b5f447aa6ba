"""API views of campaigns, waves and plans."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from forewarn.api import v1
from forewarn.api.v1.campaign_spec import spec_view
from forewarn.core.campaign.plan import Plan
from forewarn.core.campaign.record import (
    Campaign,
    ScopeProgress,
    Wave,
    WaveState,
    effective_counts,
    failed_waves,
)
from forewarn.core.campaign.spec import gate_name
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.fleet.service import Fleet


async def show_campaign(fleet: Fleet, campaign: Campaign) -> v1.Campaign:
    """Return a campaign with its progress and what it waits for. Counting a large one yields to the event loop."""
    counts = await count_waves(fleet, campaign)
    progress = tuple(_wave_progress(n, *each) for n, each in enumerate(zip(counts.states, counts.vms, strict=True), 1))
    prospects = await fleet.campaigns.status(campaign.id)
    return v1.Campaign(
        id=campaign.id,
        name=campaign.name,
        type=v1.CampaignType(campaign.spec.type.value),
        state=campaign.state,
        created_by=campaign.by,
        started_at=campaign.started_at,
        ended_at=campaign.ended_at,
        planned_end_at=campaign.planned_end,
        expected_end_at=prospects.expected_end,
        state_changed_by=campaign.state_change.by,
        state_changed_at=campaign.state_change.at,
        state_reason=campaign.state_change.why,
        scope_count=campaign.selected.scopes,
        host_count=campaign.selected.hosts,
        vm_count=campaign.selected.vms,
        wave_count=sum(each.wave_count for each in progress),
        finished_wave_count=sum(each.done + each.skipped for each in progress),
        finished_vm_count=counts.vms_over,
        progress=progress,
        failures=tuple(_failures(campaign, counts.failed)),
        gate=_gate(campaign),
        explanation=prospects.explain,
        spec=spec_view(campaign.spec),
        reason=campaign.why,
        is_stuck=prospects.needs_operator,
        unannounced_scope_count=campaign.unannounced.scopes,
        unannounced_vm_count=campaign.unannounced.vms,
    )


class WaveCounts(NamedTuple):
    """Counts over all scopes of a campaign."""

    states: list[dict[WaveState, int]]
    """The n-th waves of all scopes together, by state as shown to users."""
    vms: list[int]
    """The VMs in the n-th waves of all scopes together."""
    vms_over: int
    failed: dict[str, ScopeProgress]
    """The scopes whose current wave has failed."""


async def count_waves(fleet: Fleet, campaign: Campaign) -> WaveCounts:
    """Count the waves and VMs of a campaign. Counting a large one yields to the event loop."""
    counts: list[dict[WaveState, int]] = []
    vms: list[int] = []
    vms_over = 0
    failed = {}
    async for scope in iterate_gradually(campaign.scopes):
        if scope.current_state is WaveState.FAILED:
            failed[scope.scope] = scope
        for number, wave in enumerate(scope.waves):
            if number == len(counts):
                counts.append(dict.fromkeys(WaveState, 0))
                vms.append(0)
            state = wave.state
            if state is WaveState.ANNOUNCED and _is_unannounced(fleet, campaign, scope):
                state = WaveState.UNANNOUNCED
            counts[number][state] += 1
            vms[number] += wave.vms
            if state is WaveState.DONE or state is WaveState.SKIPPED:
                vms_over += wave.vms
    return WaveCounts([effective_counts(campaign, each) for each in counts], vms, vms_over, failed)


def _wave_progress(n: int, count: dict[WaveState, int], vms: int) -> v1.WaveProgress:
    states = {_state(state).value: amount for state, amount in count.items()}
    return v1.WaveProgress(number=n, wave_count=sum(count.values()), vm_count=vms, **states)


def _state(state: WaveState) -> v1.WaveState:
    """Return the API's name of a state; metrics keep the core's name."""
    return v1.WaveState.ABANDONED if state is WaveState.LEFT else v1.WaveState(state.text)


def _failures(campaign: Campaign, failed: Mapping[str, ScopeProgress]) -> Iterator[v1.CampaignFailure]:
    for progress, trouble in failed_waves(campaign, failed):
        domain = progress.wave(trouble.wave).update_domain
        yield v1.CampaignFailure(
            scope=progress.scope, number=trouble.wave, update_domain=domain, failed_at=trouble.at, reason=trouble.why
        )


def _gate(campaign: Campaign) -> v1.ClosedGate | None:
    gate = campaign.gate
    if gate is None:
        return None
    name = gate_name(campaign.spec.policy.gate)
    return v1.ClosedGate(since=gate.since, reason=gate.why, next_check_at=gate.retry_at, name=name)


def _is_unannounced(fleet: Fleet, campaign: Campaign, progress: ScopeProgress) -> bool:
    return campaign.is_unannounced(progress, fleet.replica.newest(progress.scope)[0])


def _effective_state(fleet: Fleet, campaign: Campaign, progress: ScopeProgress, wave: Wave) -> v1.WaveState:
    if wave.state is WaveState.ANNOUNCED and _is_unannounced(fleet, campaign, progress):
        return v1.WaveState.UNANNOUNCED
    return _state(campaign.effective_state(wave))


def show_waves(
    fleet: Fleet, campaign: Campaign, *, scope: str | None, state: v1.WaveState | None, after: str, limit: int
) -> v1.WavePage:
    """Return waves by scope, after the position `after` of the last wave of the previous page."""
    first = int(after or 0)
    found = list(islice(_waves(fleet, campaign, scope, state, first), limit + 1))
    shown = [wave for _, wave in found[:limit]]
    return v1.WavePage(waves=shown, next=str(found[limit - 1][0]) if len(found) > limit else None)


def _waves(
    fleet: Fleet, campaign: Campaign, scope: str | None, state: v1.WaveState | None, first: int
) -> Iterator[tuple[int, v1.CampaignWave]]:
    """Yield each matching wave with its position, counted from 1."""
    position = 0
    for progress in campaign.scopes:
        if position + len(progress.waves) <= first:
            position += len(progress.waves)
            continue
        for n, wave in enumerate(progress.waves, 1):
            position += 1
            if (
                position > first
                and scope in (None, progress.scope)
                and state in (None, found := _effective_state(fleet, campaign, progress, wave))
            ):
                yield position, _wave(campaign, progress, n, wave, found)


def _wave(campaign: Campaign, progress: ScopeProgress, n: int, wave: Wave, state: v1.WaveState) -> v1.CampaignWave:
    return v1.CampaignWave(
        scope=progress.scope,
        number=n,
        update_domain=wave.update_domain,
        state=state,
        planned_at=campaign.moment(progress, wave.planned),
        state_changed_at=_state_since(campaign, progress, wave),
        vm_count=wave.vms,
    )


def _state_since(campaign: Campaign, progress: ScopeProgress, wave: Wave) -> datetime | None:
    return None if wave.state is WaveState.PLANNED else campaign.moment(progress, wave.at)


def show_plan_summary(plan: Plan) -> v1.CampaignPlan:
    """Return a plan without its waves."""
    return v1.CampaignPlan(
        waves=(),
        unplaced=tuple(
            v1.UnplacedVms(
                scope=each.scope,
                update_domain=each.update_domain,
                vms=each.vms,
                policy_key=each.rule,
                excess=each.excess,
                reason=each.why,
            )
            for each in plan.unplaced
        ),
        ends_at=plan.ends_at,
        scope_count=plan.totals.scopes,
        host_count=plan.totals.hosts,
        vm_count=plan.totals.vms,
        warnings=plan.remarks,
        unannounced_scope_count=plan.unannounced.scopes,
        unannounced_vm_count=plan.unannounced.vms,
    )
