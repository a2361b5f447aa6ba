"""What a campaign waits for: for people."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from forewarn.core.campaign.limits import Exceeded
from forewarn.core.campaign.pace import gap_of, length_of
from forewarn.core.campaign.record import Campaign, CampaignState, GateShut, WaveState, failed_waves
from forewarn.core.campaign.spec import CampaignPolicy, CampaignSpec, gate_name
from forewarn.core.campaign.windows import Zones, next_fit
from forewarn.core.conditions import Conditions

TOLD = 10
"""How many failed waves, or scopes before a gate, are named."""

_STATES = {
    CampaignState.PAUSED: "paused",
    CampaignState.HALTED: "halted",
    CampaignState.ABORTING: "aborted: what has started ends",
}


class Hindrances(NamedTuple):
    """What keeps waves from going on, beyond what the record tells."""

    no_room: Exceeded | None = None
    """The limit that keeps the next wave from starting."""
    no_place: Exceeded | None = None
    """The limit that keeps the next wave from being announced."""
    at_gate: tuple[str, ...] = ()
    """The scopes whose waves could start if the gate were open."""
    held: frozenset[str] = frozenset()
    """The scopes that an operator holds."""


def explain_campaign(
    campaign: Campaign, conditions: Conditions, hindrances: Hindrances, *, now: datetime, zones: Zones
) -> tuple[str, ...]:
    """Say what waits and why, what a person decides first; empty: nothing does."""
    if campaign.state.is_over:
        return ()
    said = [*_decided(campaign, conditions), *_failed(campaign)]
    if campaign.state is CampaignState.RUNNING:
        said += _waiting(campaign, conditions, hindrances, now, zones)
    return tuple(said)


def stopped(campaign: Campaign) -> str:
    """Say why nothing of a campaign starts, to people who may know its name and nothing else; empty: it goes on."""
    if campaign.state is not CampaignState.RUNNING:
        return f"it is {campaign.state.value}"
    return "" if campaign.gate is None else "its gate is shut"


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
    campaign: Campaign, conditions: Conditions, hindrances: Hindrances, now: datetime, zones: Zones
) -> Iterator[str]:
    spec = campaign.spec
    if campaign.gate is not None:
        yield _shut(campaign.spec, campaign.gate, hindrances.at_gate)
    if spec.start_at is not None and now < spec.start_at:
        yield f"nothing is announced before {_time(spec.start_at)}"
    opens_at = next_fit(spec.policy, now, length_of(spec, conditions), zones)
    if opens_at is None:
        yield "no window is open within a year"
    elif opens_at > now:
        yield f"no window is open before {_time(opens_at)}"
    if hindrances.no_room is not None:
        yield f"the next wave waits for room: {hindrances.no_room}"
    yield from _on_their_way(campaign, conditions, hindrances, now)


def _shut(spec: CampaignSpec, gate: GateShut, waiting: Sequence[str]) -> str:
    said = f"gate {gate_name(spec.policy.gate)} is shut since {_time(gate.since)}: {gate.why}"
    who = f"{_named(waiting)} wait{'s' if len(waiting) == 1 else ''} for it, and it" if waiting else "it"
    return f"{said}; {who} is asked again at {_time(gate.again_at)}"


def _named(names: Sequence[str]) -> str:
    more = len(names) - TOLD
    return ", ".join(names[:TOLD]) + (f" and {more} more" if more > 0 else "")


def _on_their_way(campaign: Campaign, conditions: Conditions, hindrances: Hindrances, now: datetime) -> Iterator[str]:
    gap = gap_of(campaign.spec, conditions)
    announced: list[datetime] = []
    rested: list[datetime] = []
    under_way = waiting = 0
    held = []
    for progress in campaign.scopes:
        n = progress.current
        if n > len(progress.waves):
            continue
        wave = progress.wave(n)
        if wave.state is WaveState.ANNOUNCED:
            announced.append(campaign.moment(progress, wave.at))
        elif wave.state in (WaveState.CLEARED, WaveState.RETRYING):
            under_way += 1
        elif wave.state is WaveState.PLANNED and progress.scope in hindrances.held:
            held.append(progress.scope)
        elif wave.state is WaveState.PLANNED:
            ends = [before.at for before in progress.waves[: n - 1] if before.vms]
            until = campaign.moment(progress, max(ends)) + gap if ends else now
            waiting += until <= now
            rested += [until] if until > now else []
    if under_way:
        yield f"{_waves(under_way)} under way"
    if announced:
        first = "" if len(announced) == 1 else "the first "
        yield f"{_waves(len(announced))} announced, {first}for {_time(min(announced))}"
    if len(rested) == 1:
        yield f"1 scope waits until {_time(rested[0])}, when the gap after its wave is over"
    elif rested:
        yield f"{_scopes(len(rested))} until the gap after a wave is over, the first until {_time(min(rested))}"
    if held:
        yield f"{_named(held)} {'is' if len(held) == 1 else 'are'} held by an operator"
    if waiting:
        yield f"{_scopes(waiting)} {_for_what(campaign, hindrances, waiting)}"


def _for_what(campaign: Campaign, hindrances: Hindrances, waiting: int) -> str:
    """Say for what scopes wait whose next wave is not announced, though they have rested."""
    policy, whose, whom = campaign.spec.policy, *(("its", "it") if waiting == 1 else ("their", "them"))
    if (limit := hindrances.no_place or hindrances.no_room) is not None:
        return f"for {whose} turn: {_allowed(policy, limit)}"
    if not policy.advance:
        return f"for the time that the plan has for {whom}: advance is false"
    if policy.windows or policy.blackouts:
        return f"for a window that is open when {whose} notice is over"
    return "to be announced"


def _allowed(policy: CampaignPolicy, limit: Exceeded) -> str:
    """Say what a limit allows, and how it is written where that is something else."""
    written = str(getattr(policy, limit.rule))
    number = str(limit.limit)
    return f"{limit.rule} allows {number}" + (f" ({written})" if written != number else "")


def _waves(number: int) -> str:
    return f"{number} wave{' is' if number == 1 else 's are'}"


def _scopes(number: int) -> str:
    return f"{number} scope{' waits' if number == 1 else 's wait'}"


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%SZ}"
