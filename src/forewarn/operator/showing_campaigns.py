"""Campaigns, as the types of the API. Nothing is decided here."""

import asyncio
from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from forewarn.api import v1
from forewarn.api.campaign_spec import shown_spec
from forewarn.core.campaign.plan import Plan
from forewarn.core.campaign.record import Campaign, CampaignState, ScopeProgress, Wave, WaveState, failed_waves
from forewarn.core.campaign.spec import gate_name
from forewarn.fleet.service import Fleet
from forewarn.fleet.turns import unhurried


async def show_campaign(fleet: Fleet, campaign: Campaign) -> v1.Campaign:
    """Show a campaign: how far it is, and what it waits for. To look through a large one takes several turns."""
    progress, vms_over = await _progress(campaign)
    is_stuck = campaign.state is CampaignState.RUNNING and await _is_stuck(campaign)
    expected_end = fleet.campaigns.expected_end(campaign.id)
    await asyncio.sleep(0)
    explain = fleet.campaigns.explain(campaign.id)
    await asyncio.sleep(0)
    return v1.Campaign(
        id=campaign.id,
        name=campaign.name,
        type=v1.CampaignType(campaign.spec.type.value),
        state=campaign.state,
        by=campaign.by,
        started_at=campaign.started_at,
        ended_at=campaign.ended_at,
        planned_end=campaign.planned_end,
        expected_end=expected_end,
        said_by=campaign.said.by,
        said_at=campaign.said.at,
        why=campaign.said.why,
        scopes=campaign.selected.scopes,
        hosts=campaign.selected.hosts,
        vms=campaign.selected.vms,
        waves=sum(each.waves for each in progress),
        waves_over=sum(each.done + each.skipped for each in progress),
        vms_over=vms_over,
        progress=progress,
        failures=tuple(_failures(campaign)),
        gate=_gate(campaign),
        explain=explain,
        spec=shown_spec(campaign.spec),
        start_why=campaign.why,
        stuck=is_stuck,
    )


async def _progress(campaign: Campaign) -> tuple[tuple[v1.WaveProgress, ...], int]:
    """Count the n-th waves of all scopes together, as people speak of waves, and the VMs of those that are over."""
    counts: list[dict[WaveState, int]] = []
    vms: list[int] = []
    vms_over = 0
    async for scope in unhurried(campaign.scopes):
        for number, wave in enumerate(scope.waves):
            if number == len(counts):
                counts.append(dict.fromkeys(WaveState, 0))
                vms.append(0)
            state = campaign.standing(wave)
            counts[number][state] += 1
            vms[number] += wave.vms
            if state is WaveState.DONE or state is WaveState.SKIPPED:
                vms_over += wave.vms
    progress = (_of_number(n, count, vms[n - 1]) for n, count in enumerate(counts, 1))
    return tuple(progress), vms_over


async def _is_stuck(campaign: Campaign) -> bool:
    """Tell whether there are scopes that are not through, and every one of them has a failed wave before it."""
    any_failed = False
    async for scope in unhurried(campaign.scopes):
        if not scope.closed:
            n = scope.current
            if n > len(scope.waves) or scope.wave(n).state is not WaveState.FAILED:
                return False
            any_failed = True
    return any_failed


def _of_number(n: int, count: dict[WaveState, int], vms: int) -> v1.WaveProgress:
    states = {state.word: amount for state, amount in count.items()}
    return v1.WaveProgress(n=n, waves=sum(count.values()), vms=vms, **states)


def _failures(campaign: Campaign) -> Iterator[v1.CampaignFailure]:
    for progress, trouble in failed_waves(campaign):
        domain = progress.wave(trouble.wave).update_domain
        yield v1.CampaignFailure(
            scope=progress.scope, n=trouble.wave, update_domain=domain, at=trouble.at, why=trouble.why
        )


def _gate(campaign: Campaign) -> v1.ShutGate | None:
    gate = campaign.gate
    if gate is None:
        return None
    name = gate_name(campaign.spec.policy.gate)
    return v1.ShutGate(since=gate.since, why=gate.why, again_at=gate.again_at, name=name)


def show_waves(
    campaign: Campaign, *, scope: str | None, state: v1.WaveState | None, after: str, limit: int
) -> v1.WavePage:
    """Show waves by scope, those after `after`, which is the place of the last one of the page before."""
    first = int(after or 0)
    found = list(islice(_waves(campaign, scope, state, first), limit + 1))
    shown = [wave for _, wave in found[:limit]]
    return v1.WavePage(waves=shown, next=str(found[limit - 1][0]) if len(found) > limit else None)


def _waves(
    campaign: Campaign, scope: str | None, state: v1.WaveState | None, first: int
) -> Iterator[tuple[int, v1.CampaignWave]]:
    """Give each wave that is asked for with its place, counted from 1."""
    place = 0
    for progress in campaign.scopes:
        if place + len(progress.waves) <= first:
            place += len(progress.waves)
            continue
        for n, wave in enumerate(progress.waves, 1):
            place += 1
            if place > first and scope in (None, progress.scope) and state in (None, campaign.standing(wave).word):
                yield place, _wave(campaign, progress, n, wave)


def _wave(campaign: Campaign, progress: ScopeProgress, n: int, wave: Wave) -> v1.CampaignWave:
    return v1.CampaignWave(
        scope=progress.scope,
        n=n,
        update_domain=wave.update_domain,
        state=v1.WaveState(campaign.standing(wave).word),
        planned_at=campaign.moment(progress, wave.planned),
        at=_stands_since(campaign, progress, wave),
        vms=wave.vms,
    )


def _stands_since(campaign: Campaign, progress: ScopeProgress, wave: Wave) -> datetime | None:
    return None if wave.state is WaveState.PLANNED else campaign.moment(progress, wave.at)


def show_rest(plan: Plan) -> v1.CampaignPlan:
    """Show a plan without its waves."""
    return v1.CampaignPlan(
        waves=(),
        unplaced=tuple(
            v1.Unplaced(
                scope=each.scope,
                update_domain=each.update_domain,
                vms=each.vms,
                rule=each.rule,
                by_how_much=each.by_how_much,
                why=each.why,
            )
            for each in plan.unplaced
        ),
        ends_at=plan.ends_at,
        scopes=plan.totals.scopes,
        hosts=plan.totals.hosts,
        vms=plan.totals.vms,
        remarks=plan.remarks,
    )
