"""What a campaign waits for: for people."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from forewarn.core.campaign.limits import Exceeded
from forewarn.core.campaign.pace import gap_of, length_of
from forewarn.core.campaign.record import Campaign, CampaignState, GateShut, ScopeProgress, WaveState, failed_waves
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
    for_good: bool = False
    """Whether what takes the room stays in impact until a person decides about it."""


class Waits:
    """What a campaign waits for: give it every scope, then ask what is to be said."""

    def __init__(
        self, campaign: Campaign, conditions: Conditions, hindrances: Hindrances, *, now: datetime, zones: Zones
    ) -> None:
        self._campaign = campaign
        self._conditions = conditions
        self._hindrances = hindrances
        self._now = now
        self._zones = zones
        self._gap = gap_of(campaign.spec, conditions)
        self._failed: dict[str, ScopeProgress] = {}
        self._announced: list[datetime] = []
        """For when the waves are announced that wait for their time."""
        self._resting: list[datetime] = []
        """Until when scopes rest after a wave."""
        self._held: list[str] = []
        self._under_way = self._waiting = self._closing = 0

    def take(self, progress: ScopeProgress) -> None:
        """Take how far a scope is."""
        if (state := progress.standing) is None:
            self._closing += not progress.closed
        elif state is WaveState.FAILED:
            self._failed[progress.scope] = progress
        elif state is WaveState.ANNOUNCED:
            at = progress.wave(progress.current).at
            self._announced.append(self._campaign.moment(progress, at))
        elif state in (WaveState.CLEARED, WaveState.RETRYING):
            self._under_way += 1
        elif progress.scope in self._hindrances.held:
            self._held.append(progress.scope)
        else:
            self._take_planned(progress)

    def _take_planned(self, progress: ScopeProgress) -> None:
        ends = [before.at for before in progress.waves[: progress.current - 1] if before.vms]
        until = self._campaign.moment(progress, max(ends)) + self._gap if ends else self._now
        if until > self._now:
            self._resting.append(until)
        else:
            self._waiting += 1

    @property
    def needs_person(self) -> bool:
        """Whether it runs, and yet nothing goes on until a person decides about what has failed."""
        if self._campaign.state is not CampaignState.RUNNING or not self._failed:
            return False
        if self._under_way or self._closing or self._resting or any(at > self._now for at in self._announced):
            return False
        if self._announced:
            return self._hindrances.for_good and self._hindrances.no_room is not None
        return not self._waiting or (self._hindrances.for_good and self._hindrances.no_place is not None)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What waits and why, what a person decides first; empty: nothing does."""
        campaign = self._campaign
        if campaign.state.is_over:
            return ()
        said = [*_decided(campaign, self._conditions), *_failed(campaign, self._failed)]
        if campaign.state is CampaignState.RUNNING:
            said += [*self._before_all(), *self._on_their_way()]
        return tuple(said)

    def _before_all(self) -> Iterator[str]:
        """Say what keeps every wave from starting, or the next."""
        spec, now = self._campaign.spec, self._now
        if self._campaign.gate is not None:
            yield _shut(spec, self._campaign.gate, self._hindrances.at_gate)
        if spec.start_at is not None and now < spec.start_at:
            yield f"nothing is announced before {_time(spec.start_at)}"
        opens_at = next_fit(spec.policy, now, length_of(spec, self._conditions), self._zones)
        if opens_at is None:
            yield "no window is open within a year"
        elif opens_at > now:
            yield f"no window is open before {_time(opens_at)}"
        if self._hindrances.no_room is not None:
            taken = ", and what has failed takes it" if self._hindrances.for_good and self._failed else ""
            yield f"the next wave waits for room{taken}: {self._hindrances.no_room}"

    def _on_their_way(self) -> Iterator[str]:
        resting, held = self._resting, self._held
        due = [at for at in self._announced if at <= self._now]
        coming = [at for at in self._announced if at > self._now]
        if self._under_way:
            yield f"{_waves(self._under_way)} under way"
        if due:
            yield f"{_waves(len(due))} due, {_first(due)}since {_time(min(due))}"
        if coming:
            yield f"{_waves(len(coming))} announced, {_first(coming)}for {_time(min(coming))}"
        if len(resting) == 1:
            yield f"1 scope waits until {_time(resting[0])}, when the gap after its wave is over"
        elif resting:
            yield f"{_scopes(len(resting))} until the gap after a wave is over, the first until {_time(min(resting))}"
        if held:
            yield f"{_named(held)} {'is' if len(held) == 1 else 'are'} held by an operator"
        if self._waiting:
            yield f"{_scopes(self._waiting)} {_for_what(self._campaign.spec.policy, self._hindrances, self._waiting)}"


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


def _failed(campaign: Campaign, scopes: Mapping[str, ScopeProgress]) -> Iterator[str]:
    failed = list(failed_waves(campaign, scopes))
    for progress, trouble in failed[-TOLD:]:
        wave = f"wave {trouble.wave} of {progress.scope}"
        if trouble.unknown:
            yield f"{wave} is unknown: {trouble.why}; a retry does it again: retry it or skip it"
        else:
            yield f"{wave} has failed: {trouble.why or 'no reason was given'}; retry it or skip it"
    if (more := len(failed) - TOLD) > 0:
        yield f"{more} more wave{'' if more == 1 else 's'} failed before; retry or skip what has failed"


def _shut(spec: CampaignSpec, gate: GateShut, waiting: Sequence[str]) -> str:
    said = f"gate {gate_name(spec.policy.gate)} is shut since {_time(gate.since)}: {gate.why}"
    who = f"{_named(waiting)} wait{'s' if len(waiting) == 1 else ''} for it, and it" if waiting else "it"
    return f"{said}; {who} is asked again at {_time(gate.again_at)}"


def _named(names: Sequence[str]) -> str:
    more = len(names) - TOLD
    return ", ".join(names[:TOLD]) + (f" and {more} more" if more > 0 else "")


def _for_what(policy: CampaignPolicy, hindrances: Hindrances, waiting: int) -> str:
    """Say for what scopes wait whose next wave is not announced, though they have rested."""
    whose, whom = ("its", "it") if waiting == 1 else ("their", "them")
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


def _first(moments: Sequence[datetime]) -> str:
    return "" if len(moments) == 1 else "the first "


def _waves(number: int) -> str:
    return f"{number} wave{' is' if number == 1 else 's are'}"


def _scopes(number: int) -> str:
    return f"{number} scope{' waits' if number == 1 else 's wait'}"


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%SZ}"
