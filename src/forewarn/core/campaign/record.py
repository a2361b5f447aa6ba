"""The record of a started campaign: specification, progress of each scope, failures that wait for an operator.

It is one value, saved as a whole, for up to about 5,000 scopes: it has numbers per wave, and no lists of VMs.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from typing import NamedTuple
from uuid import UUID, uuid5

import msgspec

from forewarn.core.campaign.limits import Counts
from forewarn.core.campaign.spec import CampaignSpec
from forewarn.core.errors import Invalid
from forewarn.core.explain import CAMPAIGN_PREFIX
from forewarn.core.limits import MAX_RECORD_BYTES
from forewarn.core.scope import SeenKey
from forewarn.core.text import is_guid

SECOND = timedelta(seconds=1)
FAR_PAST = datetime.min.replace(tzinfo=UTC)
RESERVE = 96 * 1024
"""Room that is kept free for keys that were answered, for failures, and for waves that are appended."""

WAVE_RESERVE = 6
"""Room that a wave may come to need besides: its times are numbers that grow."""

MAX_WAVE_FAILURES = 100
"""Of so many failures the record keeps the reason, the newest; the journal has all."""

MAX_FAILURE_BYTES = 192
"""What the record keeps of such a reason."""

MAX_ATTEMPTS = 300
"""So many waves can be on their way for a further time."""

MAX_WAVES = 1_100
"""So many waves a scope can have: more than it can have update domains."""


class CampaignState(StrEnum):
    """Where a campaign is in its life."""

    RUNNING = "Running"
    PAUSED = "Paused"
    """By a person; nothing is announced or cleared."""
    HALTED = "Halted"
    """By its own policy; nothing is announced or cleared until a person resumes it."""
    ABORTING = "Aborting"
    """What is Started ends; everything else is canceled."""
    COMPLETED = "Completed"
    ABORTED = "Aborted"

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self in (CampaignState.COMPLETED, CampaignState.ABORTED)

    @property
    def is_aborted(self) -> bool:
        """Whether what has not begun never will."""
        return self in (CampaignState.ABORTING, CampaignState.ABORTED)


class WaveState(IntEnum):
    """How far a wave of a scope is. A number, because a record has tens of thousands of them."""

    PLANNED = 0
    ANNOUNCED = 1
    CLEARED = 2
    """The campaign lets it start, or has."""
    DONE = 3
    FAILED = 4
    """Work has failed, is unknown or was given up, or the wave could not be announced: a person decides."""
    RETRYING = 5
    """A person has said that its failed work is to be done once more; the scope does not know it yet."""
    SKIPPED = 6
    """A person has skipped or canceled it, or the scope is gone."""
    LEFT = 7
    """It will never be done, as the campaign is aborted. No record says so: `Campaign.effective_state` does."""

    @property
    def is_settled(self) -> bool:
        """Whether the scope goes on behind it."""
        return self in (WaveState.DONE, WaveState.SKIPPED)

    @property
    def is_open(self) -> bool:
        """Whether its events are with the scope."""
        return self in (WaveState.ANNOUNCED, WaveState.CLEARED, WaveState.RETRYING)

    @property
    def text(self) -> str:
        """The state in a word for people and programs."""
        return self.name.lower()


class Wave(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One wave of a scope. Times are in whole seconds since the scope's `base`, so that they are short."""

    update_domain: int
    planned: int
    """When the plan lets it start."""
    state: WaveState = WaveState.PLANNED
    at: int = 0
    """Announced: its not_before; cleared: when; settled or failed: when."""
    vms: int = 0
    """How many VMs it has; until it is announced, by the plan."""

    def with_state(self, state: WaveState, at: int) -> "Wave":
        """Return the wave in another state."""
        return Wave(self.update_domain, self.planned, state, at, self.vms)


class ScopeProgress(msgspec.Struct, frozen=True, array_like=True):
    """How far a scope is."""

    scope: str
    base: int
    """When the plan lets its first wave start, in seconds since the campaign began."""
    waves: tuple[Wave, ...]
    seen: int = 0
    """Up to this line of the scope's journal, what came, went and moved is known."""
    closed: bool = False
    """Whether all is settled, and no VM was left over."""

    @property
    def current(self) -> int:
        """The first wave that is not settled, counted from 1; one more than there are where all are."""
        for n, wave in enumerate(self.waves, 1):
            if wave.state is not WaveState.DONE and wave.state is not WaveState.SKIPPED:
                return n
        return len(self.waves) + 1

    @property
    def current_state(self) -> WaveState | None:
        """How the current wave stands; None: there is none."""
        for wave in self.waves:
            if wave.state is not WaveState.DONE and wave.state is not WaveState.SKIPPED:
                return wave.state
        return None

    def wave(self, n: int) -> Wave:
        """Return the scope's n-th wave, from 1."""
        return self.waves[n - 1]

    def with_wave(self, n: int, wave: Wave) -> "ScopeProgress":
        """Return the progress with the n-th wave replaced."""
        waves = (*self.waves[: n - 1], wave, *self.waves[n:])
        return ScopeProgress(self.scope, self.base, waves, self.seen, self.closed)


class WaveFailure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a wave of a scope has failed."""

    wave: int
    at: datetime
    why: str = ""
    unknown: bool = False
    """Whether nobody knows if all of it was done."""


class ClosedGate(msgspec.Struct, frozen=True, kw_only=True):
    """Since when the health gate is closed, and why."""

    since: datetime
    why: str
    retry_at: datetime = msgspec.field(name="again_at")
    """When it is asked again."""


class StateChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who brought the campaign into its state, when and why."""

    by: str
    at: datetime
    why: str = ""


class Notification(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A notification that may not have been sent yet. `n` is the number of its journal entry."""

    n: int
    what: str
    at: datetime
    why: str = ""


class Campaign(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A campaign that was started."""

    id: str
    spec: CampaignSpec
    state: CampaignState
    by: str
    started_at: datetime
    """In whole seconds: the times of scopes are counted from here."""
    state_change: StateChange = msgspec.field(name="said")
    scopes: tuple[ScopeProgress, ...]
    selected: Counts
    """All that were selected when it was planned: what percentages are of."""
    why: str = ""
    """Why it was started."""
    planned_end: datetime | None = None
    ended_at: datetime | None = None
    failures: int = 0
    """How many waves have failed since it was last resumed."""
    attempts: dict[str, int] = {}
    """How often waves that are not done were asked for, by `wave/scope`, where that is more than once."""
    wave_failures: dict[str, WaveFailure] = msgspec.field(default_factory=dict, name="troubles")
    """Why the current waves of scopes have failed: of the newest failures. `failed_waves` gives all."""
    gate: ClosedGate | None = None
    entries: int = 0
    seen_keys: tuple[SeenKey, ...] = msgspec.field(default=(), name="answered")
    notifications: tuple[Notification, ...] = msgspec.field(default=(), name="untold")

    def __post_init__(self) -> None:
        if not is_guid(self.id) or self.id != self.id.upper():
            raise Invalid(f"campaign id {self.id!r} is not an upper-case GUID")
        if self.started_at.microsecond:
            raise Invalid("a campaign begins at a whole second")

    @property
    def name(self) -> str:
        """Its name; of the campaigns that are not over, nobody starts a second one of a name that he sees in use."""
        return self.spec.name

    @property
    def actor(self) -> str:
        """What the journals call it."""
        return f"{CAMPAIGN_PREFIX}{self.name}"

    def effective_state(self, wave: Wave) -> WaveState:
        """Return how a wave stands, to whoever looks at it: of a campaign that is aborted, nothing is planned."""
        return WaveState.LEFT if wave.state is WaveState.PLANNED and self.state.is_aborted else wave.state

    def progress(self, scope: str) -> ScopeProgress | None:
        """Return how far a scope is; None where the campaign does not have it."""
        return next((progress for progress in self.scopes if progress.scope == scope), None)

    def moment(self, progress: ScopeProgress, seconds: int) -> datetime:
        """Return the moment of a wave's time."""
        return self.started_at + timedelta(seconds=progress.base + seconds)

    def seconds(self, progress: ScopeProgress, moment: datetime) -> int:
        """Return a moment as a wave's time; rounded up, so that what must not begin before it does not."""
        return -((self.started_at - moment) // SECOND) - progress.base

    def rested_at(self, progress: ScopeProgress, gap: timedelta) -> datetime:
        """Return when the gap is over that the scope's waves before the current one leave."""
        ends = [wave.at for wave in progress.waves[: progress.current - 1] if wave.vms]
        return self.moment(progress, max(ends)) + gap if ends else FAR_PAST

    def attempt(self, scope: str, n: int) -> int:
        """Return how often a wave was asked for, this time included."""
        return self.attempts.get(f"{n}/{scope}", 1)

    def request(self, scope: str, n: int) -> str:
        """Compute the id of a wave's request: the same wave asks the same question."""
        name, attempt = f"{n}/{scope}", self.attempt(scope, n)
        return str(uuid5(UUID(self.id), name if attempt == 1 else f"{name}/{attempt}")).upper()


class WaveCount(NamedTuple):
    """How many waves, and VMs in them, are in a state."""

    waves: int
    vms: int


def count_waves(campaign: Campaign) -> dict[WaveState, WaveCount]:
    """Count the waves and their VMs by state."""
    waves: dict[WaveState, int] = dict.fromkeys(WaveState, 0)
    vms: dict[WaveState, int] = dict.fromkeys(WaveState, 0)
    for _, _, wave in iterate_waves(campaign):
        waves[wave.state] += 1
        vms[wave.state] += wave.vms
    waves, vms = effective_counts(campaign, waves), effective_counts(campaign, vms)
    return {state: WaveCount(waves[state], vms[state]) for state in WaveState}


def effective_counts(campaign: Campaign, counts: dict[WaveState, int]) -> dict[WaveState, int]:
    """Return what was counted by state as it stands, to whoever looks at it: see `Campaign.effective_state`."""
    if not campaign.state.is_aborted:
        return counts
    return counts | {WaveState.LEFT: counts[WaveState.PLANNED], WaveState.PLANNED: 0}


def iterate_waves(campaign: Campaign) -> Iterator[tuple[str, int, Wave]]:
    """Give every wave with its scope and its number there."""
    for progress in campaign.scopes:
        for n, wave in enumerate(progress.waves, 1):
            yield progress.scope, n, wave


def failed_waves(
    campaign: Campaign, failed: Mapping[str, ScopeProgress]
) -> Iterator[tuple[ScopeProgress, WaveFailure]]:
    """Give the failed waves of scopes that have one, with their reasons; the newest failures last."""
    known = campaign.wave_failures
    for progress in failed.values():
        if progress.scope not in known:
            n = progress.current
            at = campaign.moment(progress, progress.wave(n).at)
            yield progress, WaveFailure(wave=n, at=at, why="the campaign's journal says why")
    for scope, failure in known.items():
        if scope in failed:
            yield failed[scope], failure


def check_size(campaign: Campaign) -> None:
    """Refuse a campaign whose record could grow over the limit."""
    waves = sum(len(progress.waves) for progress in campaign.scopes)
    needed = len(encode(campaign)) + waves * WAVE_RESERVE + RESERVE
    if needed > MAX_RECORD_BYTES:
        raise Invalid(
            f"the campaign has {waves} waves in {len(campaign.scopes)} scopes and could need {needed // 1024} KiB "
            f"of {MAX_RECORD_BYTES // 1024}: start several campaigns, each over a part of the scopes"
        )


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Campaign).decode


class CampaignEncoder:
    """Encodes records of campaigns as `encode` does; scopes that have not changed since the last time only once.

    A record of 25,000 waves has half a megabyte, of which a save changes a few hundred bytes.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[ScopeProgress, ...], list[msgspec.Raw]]] = {}
        """By campaign, its scopes as they were last encoded."""

    def __call__(self, campaign: Campaign) -> bytes:
        before, parts = self._known.pop(campaign.id, ((), []))
        if len(before) == len(campaign.scopes):
            for i, (old, new) in enumerate(zip(before, campaign.scopes, strict=True)):
                if new is not old:
                    parts[i] = msgspec.Raw(encode(new))
        else:
            parts = [msgspec.Raw(encode(progress)) for progress in campaign.scopes]
        if not campaign.state.is_over:
            self._known[campaign.id] = (campaign.scopes, parts)
        return encode(msgspec.structs.replace(campaign, scopes=parts))
