"""What a campaign waits for: for people."""

from collections.abc import Iterator
from datetime import datetime

from forewarn.core.campaign.limits import Exceeded
from forewarn.core.campaign.pace import gap_of, length_of
from forewarn.core.campaign.record import Campaign, CampaignState, WaveState, failed_waves
from forewarn.core.campaign.windows import Zones, next_fit
from forewarn.core.conditions import Conditions

TOLD = 10
"""How many failed waves are named."""

_STATES = {
    CampaignState.PAUSED: "paused",
    CampaignState.HALTED: "halted",
    CampaignState.ABORTING: "aborted: what has started ends",
}


def explain_campaign(
    campaign: Campaign, conditions: Conditions, *, blocked_by: Exceeded | None = None, now: datetime, zones: Zones
) -> tuple[str, ...]:
    """Say what waits and why, what a person decides first; empty: nothing does."""
    if campaign.state.is_over:
        return ()
    said = [*_decided(campaign, conditions), *_failed(campaign)]
    if campaign.state is CampaignState.RUNNING:
        said += _waiting(campaign, conditions, blocked_by, now, zones)
    return tuple(said)


def _decided(campaign: Campaign, conditions: Conditions) -> Iterator[str]:
    if (state := _STATES.get(campaign.state)) is not None:
        why = f": {campaign.said.why}" if campaign.said.why else ""
        yield f"{state}, by {campaign.said.by} since {_time(campaign.said.at)}{why}"
    if conditions.held is not None:
        yield f"all maintenance is held by {conditions.held.by}: {conditions.held.reason}"


def _failed(campaign: Campaign) -> Iterator[str]:
    failed = list(failed_waves(campaign))
    for progress, trouble in failed[-TOLD:]:
        wave = f"wave {trouble.wave} of {progress.scope}"
        if trouble.unknown:
            yield f"{wave} is unknown: {trouble.why}; a retry does it again: retry it or skip it"
        else:
            yield f"{wave} has failed: {trouble.why or 'no reason was given'}; retry it or skip it"
    if (more := len(failed) - TOLD) > 0:
        yield f"{more} more wave{'' if more == 1 else 's'} failed before; retry or skip what has failed"


def _waiting(
    campaign: Campaign, conditions: Conditions, blocked_by: Exceeded | None, now: datetime, zones: Zones
) -> Iterator[str]:
    spec = campaign.spec
    if campaign.gate is not None:
        gate = campaign.gate
        yield f"the gate is shut since {_time(gate.since)}: {gate.why}; it is asked again at {_time(gate.again_at)}"
    if spec.start_at is not None and now < spec.start_at:
        yield f"nothing is announced before {_time(spec.start_at)}"
    opens_at = next_fit(spec.policy, now, length_of(spec, conditions), zones)
    if opens_at is None:
        yield "no window is open within a year"
    elif opens_at > now:
        yield f"no window is open before {_time(opens_at)}"
    if blocked_by is not None:
        yield f"the next wave waits for room: {blocked_by}"
    yield from _on_their_way(campaign, conditions, now)


def _on_their_way(campaign: Campaign, conditions: Conditions, now: datetime) -> Iterator[str]:
    gap = gap_of(campaign.spec, conditions)
    announced: list[datetime] = []
    under_way = resting = waiting = 0
    rested: list[datetime] = []
    for progress in campaign.scopes:
        n = progress.current
        if n > len(progress.waves):
            continue
        wave = progress.wave(n)
        if wave.state is WaveState.ANNOUNCED:
            announced.append(campaign.moment(progress, wave.at))
        elif wave.state in (WaveState.CLEARED, WaveState.RETRYING):
            under_way += 1
        elif wave.state is WaveState.PLANNED:
            ends = [before.at for before in progress.waves[: n - 1] if before.vms]
            until = campaign.moment(progress, max(ends)) + gap if ends else now
            resting, waiting = resting + (until > now), waiting + (until <= now)
            rested += [until] if until > now else []
    if under_way:
        yield f"{_waves(under_way)} under way"
    if announced:
        yield f"{_waves(len(announced))} announced, the first for {_time(min(announced))}"
    if rested:
        yield f"{_scopes(resting)} until the gap after a wave is over, the first until {_time(min(rested))}"
    if waiting:
        yield f"{_scopes(waiting)} for the turn of the next wave"


def _waves(number: int) -> str:
    return f"{number} wave{' is' if number == 1 else 's are'}"


def _scopes(number: int) -> str:
    return f"{number} scope{' waits' if number == 1 else 's wait'}"


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%SZ}"
