"""The record of a started campaign: specification, progress of each scope, failures that wait for a person.

It is one value, saved as a whole, for up to about 5,000 scopes; it has numbers per wave, but no lists of VMs.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from uuid import UUID, uuid5

import msgspec

from forewarn.core.campaign.limits import Counts
from forewarn.core.campaign.spec import CampaignSpec
from forewarn.core.errors import Invalid
from forewarn.core.explain import CAMPAIGN_PREFIX
from forewarn.core.limits import MAX_RECORD_BYTES
from forewarn.core.scope import Scope, SeenKey
from forewarn.core.text import is_guid

SECOND = timedelta(seconds=1)
FAR_PAST = datetime.min.replace(tzinfo=UTC)
RESERVE = 96 * 1024
"""Bytes that are kept free for answered keys, for failures, and for waves that are appended."""

WAVE_RESERVE = 6
"""Bytes that a wave may additionally need: its times are numbers that grow."""

MAX_WAVE_FAILURES = 100
"""How many failures, the newest ones, the record keeps with their reasons; the journal has all."""

MAX_FAILURE_BYTES = 192
"""How much of such a reason the record keeps."""

MAX_ATTEMPTS = 300
"""How many waves can be in a repeated attempt at the same time, and how many can wait for a retry of their impacts."""

MAX_WAVES = 1_100
"""How many waves a scope can have: more than it can have update domains."""


ALL_ANNOUNCED = Counts()
"""All scopes and VMs hear of it; a record omits it."""


class CampaignState(StrEnum):
    """The state of a campaign."""

    RUNNING = "Running"
    PAUSED = "Paused"
    """By a person; nothing is announced or cleared."""
    HALTED = "Halted"
    """By its own policy; nothing is announced or cleared until a person resumes it."""
    ABORTING = "Aborting"
    """Started events still have to end; everything else is canceled."""
    COMPLETED = "Completed"
    ABORTED = "Aborted"

    @property
    def is_over(self) -> bool:
        """Whether the campaign has ended."""
        return self in (CampaignState.COMPLETED, CampaignState.ABORTED)

    @property
    def is_aborted(self) -> bool:
        """Whether waves that have not begun never will."""
        return self in (CampaignState.ABORTING, CampaignState.ABORTED)


class WaveState(IntEnum):
    """The state of a wave. A number, because a record has tens of thousands of them."""

    PLANNED = 0
    ANNOUNCED = 1
    CLEARED = 2
    """The campaign has cleared it to start."""
    DONE = 3
    FAILED = 4
    """An impact failed, is unknown or was given up, or the wave could not be announced: a person decides."""
    RETRYING = 5
    """A person has requested a retry of its failed impacts; the scope has not done it yet."""
    SKIPPED = 6
    """A person has skipped or canceled it, or the scope was removed."""
    LEFT = 7
    """It will never be done, because the campaign is aborted. Never stored: see `Campaign.effective_state`."""
    UNANNOUNCED = 8
    """It is announced, but no document shows its events. Never stored: see `Campaign.is_unannounced`."""

    @property
    def is_settled(self) -> bool:
        """Whether the scope continues with the next wave."""
        return self in (WaveState.DONE, WaveState.SKIPPED)

    @property
    def is_open(self) -> bool:
        """Whether its events are open in the scope."""
        return self in (WaveState.ANNOUNCED, WaveState.CLEARED, WaveState.RETRYING)

    @property
    def text(self) -> str:
        """The state as one word, for people and programs."""
        return self.name.lower()


class Wave(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One wave of a scope. Times are whole seconds since the scope's `base`, so that they are short."""

    update_domain: int
    planned: int
    """The planned start."""
    state: WaveState = WaveState.PLANNED
    at: int = 0
    """Announced: its not_before; cleared: when; settled or failed: when."""
    vms: int = 0
    """The number of its VMs; before its announcement, the planned number."""

    def with_state(self, state: WaveState, at: int) -> "Wave":
        """Return the wave in another state."""
        return Wave(self.update_domain, self.planned, state, at, self.vms)


class ScopeProgress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The progress of a scope."""

    scope: str
    base: int
    """The planned start of its first wave, in seconds since the campaign began."""
    waves: tuple[Wave, ...]
    seen: int = 0
    """The last line of the scope's journal up to which added, removed and moved VMs are known."""
    closed: bool = False
    """Whether all waves are settled and every VM was in one."""

    @property
    def current(self) -> int:
        """The number, from 1, of the first wave that is not settled; one more than the last if all are."""
        for n, wave in enumerate(self.waves, 1):
            if wave.state is not WaveState.DONE and wave.state is not WaveState.SKIPPED:
                return n
        return len(self.waves) + 1

    @property
    def current_state(self) -> WaveState | None:
        """The state of the current wave; None if there is none."""
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


class WaveFailure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The reason why a wave of a scope has failed."""

    wave: int
    at: datetime
    why: str = ""
    unknown: bool = False
    """Whether the outcome of some of its work is unknown."""


class ClosedGate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Since when the health gate is closed, and why."""

    since: datetime
    why: str
    retry_at: datetime = msgspec.field(name="again_at")
    """The time of the next check."""


class StateChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Who moved the campaign to its state, when and why."""

    by: str
    at: datetime
    why: str = ""


class Notification(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A notification that may not have been sent yet. `n` is the number of its journal entry."""

    n: int
    what: str
    at: datetime
    why: str = ""


class Campaign(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A campaign that was started."""

    id: str
    spec: CampaignSpec
    state: CampaignState
    by: str
    started_at: datetime
    """In whole seconds: the times of scopes count from here."""
    state_change: StateChange = msgspec.field(name="said")
    scopes: tuple[ScopeProgress, ...]
    selected: Counts
    """All that were selected when it was planned: the base of percentages."""
    unannounced: Counts = ALL_ANNOUNCED
    """Those of them that would not hear of it when it was planned."""
    why: str = ""
    """Why it was started."""
    planned_end: datetime | None = None
    ended_at: datetime | None = None
    failures: int = 0
    """How many waves have failed since it was last resumed."""
    attempts: dict[str, int] = {}
    """The number of attempts of unfinished waves, by `wave/scope`, if there was more than one."""
    retries: dict[str, int] = {}
    """The scope's last journal entry when a person requested a retry, by `wave/scope`, for waves that are RETRYING:
    what has failed since is not retried. An older version has saved none."""
    wave_failures: dict[str, WaveFailure] = msgspec.field(default_factory=dict, name="troubles")
    """The reasons of the newest failures of current waves. `failed_waves` yields all."""
    gate: ClosedGate | None = None
    entries: int = 0
    seen_keys: tuple[SeenKey, ...] = msgspec.field(default=(), name="answered")
    notifications: tuple[Notification, ...] = msgspec.field(default=(), name="untold")

    def __post_init__(self) -> None:
        if not is_guid(self.id) or self.id != self.id.upper():
            raise Invalid(f"campaign id {self.id!r} is not an upper-case GUID")
        if self.started_at.microsecond:
            raise Invalid("a campaign must start at a whole second")

    @property
    def name(self) -> str:
        """Its name. Two campaigns that have not ended cannot have the same name, as far as their starter can see."""
        return self.spec.name

    @property
    def actor(self) -> str:
        """Its name in journals."""
        return f"{CAMPAIGN_PREFIX}{self.name}"

    def effective_state(self, wave: Wave) -> WaveState:
        """Return the state of a wave as shown to users: in an aborted campaign, no wave is planned."""
        return WaveState.LEFT if wave.state is WaveState.PLANNED and self.state.is_aborted else wave.state

    def is_unannounced(self, progress: ScopeProgress, scope: Scope | None) -> bool:
        """Return whether the current wave of a scope is announced, but no document shows its events."""
        if scope is None or progress.current_state is not WaveState.ANNOUNCED:
            return False
        own = [event for event in scope.events if event.campaign == self.id]
        if all(event.announced for event in own):  # the usual case needs no request id, which takes a while to derive
            return False
        request = self.request(progress.scope, progress.current)
        announced = [event.announced for event in own if event.request == request]
        return bool(announced) and not any(announced)

    def progress(self, scope: str) -> ScopeProgress | None:
        """Return the progress of a scope; None if the campaign does not include it."""
        return next((progress for progress in self.scopes if progress.scope == scope), None)

    def moment(self, progress: ScopeProgress, seconds: int) -> datetime:
        """Convert a wave's time to a datetime."""
        return self.started_at + timedelta(seconds=progress.base + seconds)

    def seconds(self, progress: ScopeProgress, moment: datetime) -> int:
        """Convert a datetime to a wave's time, rounded up, so that nothing begins too early."""
        return -((self.started_at - moment) // SECOND) - progress.base

    def rested_at(self, progress: ScopeProgress, gap: timedelta) -> datetime:
        """Return when the gap after the scope's previous wave is over."""
        ends = [wave.at for wave in progress.waves[: progress.current - 1] if wave.vms]
        return self.moment(progress, max(ends)) + gap if ends else FAR_PAST

    def attempt(self, scope: str, n: int) -> int:
        """Return the number of the current attempt of a wave, from 1."""
        return self.attempts.get(f"{n}/{scope}", 1)

    def retry_seen(self, scope: str, n: int) -> int | None:
        """Return the scope's last journal entry when the retry of a wave was requested; None: unknown."""
        return self.retries.get(f"{n}/{scope}")

    def request(self, scope: str, n: int) -> str:
        """Derive the id of a wave's request: the same attempt of a wave always has the same id."""
        name, attempt = f"{n}/{scope}", self.attempt(scope, n)
        return str(uuid5(UUID(self.id), name if attempt == 1 else f"{name}/{attempt}")).upper()


def coming_waves(campaign: Campaign) -> Iterator[tuple[ScopeProgress, int, Wave]]:
    """Yield the waves that are not announced yet, each with its scope and its number; none if it has ended."""
    if campaign.state.is_over or campaign.state.is_aborted:
        return
    for progress in campaign.scopes:
        for n, wave in enumerate(progress.waves, 1):
            if wave.state is WaveState.PLANNED:
                yield progress, n, wave


def effective_counts(campaign: Campaign, counts: dict[WaveState, int]) -> dict[WaveState, int]:
    """Return the counts by state as shown to users: see `Campaign.effective_state`."""
    if not campaign.state.is_aborted:
        return counts
    return counts | {WaveState.LEFT: counts[WaveState.PLANNED], WaveState.PLANNED: 0}


def failed_waves(
    campaign: Campaign, failed: Mapping[str, ScopeProgress]
) -> Iterator[tuple[ScopeProgress, WaveFailure]]:
    """Yield the failed waves of scopes, with their reasons; the newest failures last."""
    known = campaign.wave_failures
    for progress in failed.values():
        if progress.scope not in known:
            n = progress.current
            at = campaign.moment(progress, progress.wave(n).at)
            yield progress, WaveFailure(wave=n, at=at, why="see the campaign's journal")
    for scope, failure in known.items():
        if scope in failed:
            yield failed[scope], failure


def check_size(campaign: Campaign) -> None:
    """Refuse a campaign whose record could exceed the size limit."""
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
    """Encodes campaign records as `encode` does, but a scope of a remembered campaign only if it has changed.

    A record of 25,000 waves has half a megabyte, of which a save changes a few hundred bytes.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[ScopeProgress, ...], list[msgspec.Raw]]] = {}
        """By remembered campaign: its scopes as last encoded. They need several times the memory of the record."""

    def remember(self, id_: str) -> None:
        """Remember the encoded scopes of a campaign from now on; for one that this process runs, and saves often."""
        self._known[id_] = (), []

    def forget(self, id_: str) -> None:
        """Forget the encoded scopes of a campaign."""
        self._known.pop(id_, None)

    def __call__(self, campaign: Campaign) -> bytes:
        if campaign.id not in self._known:
            return encode(campaign)
        before, parts = self._known[campaign.id]
        self.remember(campaign.id)  # an error must not leave parts of this record with the scopes of another one
        if len(before) == len(campaign.scopes):
            for i, (old, new) in enumerate(zip(before, campaign.scopes, strict=True)):
                if new is not old:
                    parts[i] = msgspec.Raw(encode(new))
        else:
            parts = [msgspec.Raw(encode(progress)) for progress in campaign.scopes]
        if not campaign.state.is_over:
            self._known[campaign.id] = campaign.scopes, parts
        return encode(msgspec.structs.replace(campaign, scopes=parts))
