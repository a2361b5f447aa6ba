"""Campaign types: spec, policy, plan, waves and progress."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from forewarn.api.v1.common import Duration, ErrorResponse, Moment, Reason, Request, Response, Text
from forewarn.api.v1.inventory import Name
from forewarn.core.campaign.record import CampaignState
from forewarn.core.campaign.spec import (
    MAX_BLACKOUTS,
    MAX_NAMES,
    MAX_RETRIES,
    MAX_URL_LENGTH,
    MAX_WINDOWS,
    HttpCheck,
    WaveKind,
    Weekday,
)
from forewarn.core.duration import format_duration
from forewarn.core.event import EventType

__all__ = [
    "AbortCampaign",
    "BlackoutView",
    "Campaign",
    "CampaignBlackout",
    "CampaignFailure",
    "CampaignPage",
    "CampaignPlan",
    "CampaignPolicy",
    "CampaignRequest",
    "CampaignSelection",
    "CampaignSpec",
    "CampaignType",
    "CampaignWave",
    "CampaignWindow",
    "ClosedGate",
    "GateView",
    "HttpGate",
    "PauseCampaign",
    "PlanProgress",
    "PlannedWave",
    "PolicyView",
    "ResumeCampaign",
    "RetryWave",
    "SelectionView",
    "SkipWave",
    "StartCampaign",
    "UnplacedVms",
    "WavePage",
    "WaveProgress",
    "WaveState",
    "WindowView",
]

Pattern = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._/*?\[\]!-]{1,260}$")]
"""A name, or a pattern such as `web-*`."""

Patterns = Annotated[Sequence[Pattern], msgspec.Meta(max_length=MAX_NAMES)]
PositiveCount = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
Percent = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3})? ?%$")]
Retries = Annotated[int, msgspec.Meta(ge=0, le=MAX_RETRIES)]
Status = Annotated[int, msgspec.Meta(ge=100, le=599)]
Start = Annotated[str, msgspec.Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
End = Annotated[str, msgspec.Meta(pattern=r"^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$")]
Zone = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+/-]{0,63}$")]
Url = Annotated[str, msgspec.Meta(pattern=r"^https?://[!-~]+$", max_length=MAX_URL_LENGTH)]

_DEFAULTS = HttpCheck(url="http://localhost")


class CampaignType(StrEnum):
    """What planned maintenance can be."""

    FREEZE = EventType.FREEZE.value
    REBOOT = EventType.REBOOT.value
    REDEPLOY = EventType.REDEPLOY.value


class WaveState(StrEnum):
    """How a wave stands. A cleared one may start, or has started; a failed one waits for a person.

    One that is abandoned will never be done, because the campaign is aborted.
    """

    PLANNED = "planned"
    ANNOUNCED = "announced"
    CLEARED = "cleared"
    DONE = "done"
    FAILED = "failed"
    RETRYING = "retrying"
    SKIPPED = "skipped"
    ABANDONED = "abandoned"


class CampaignSelection(Request, frozen=True):
    """Which VMs: those of the scopes, those on the hosts, those with all the tags, or all. Exclusions come last.

    Names may be patterns such as `web-*`. A VM is excluded as `scope/name`, or by a bare name in any scope; one of the
    tags in `exclude_tags` is enough to be excluded.
    """

    scopes: Patterns = ()
    hosts: Patterns = ()
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    all: bool = False
    exclude_scopes: Patterns = ()
    exclude_hosts: Patterns = ()
    exclude_vms: Patterns = ()
    exclude_tags: dict[str, str] = msgspec.field(default_factory=dict)


class CampaignWindow(Request, frozen=True):
    """When waves may start: on these days (none are all), by the clocks of a time zone.

    An end that is not after the start is on the next day.
    """

    start: Start
    end: End
    days: Annotated[Sequence[Weekday], msgspec.Meta(max_length=len(Weekday))] = ()
    zone: Zone | None = None


class CampaignBlackout(Request, frozen=True):
    """A time in which nothing of the campaign happens."""

    start: Moment
    end: Moment
    why: Text = ""


class HttpGate(Request, frozen=True):
    """A gate that a campaign brings along: open while a GET is answered with the expected status.

    It needs the role admin, because the service asks on behalf of whoever says it.
    """

    url: Url
    expect_status: Status = _DEFAULTS.expect_status
    timeout: Duration = format_duration(_DEFAULTS.timeout)
    retries: Retries = _DEFAULTS.retries
    pause: Duration = format_duration(_DEFAULTS.pause)


class CampaignPolicy(Request, frozen=True):
    """When waves may start, how many at once, and when to stop.

    What each key means is in docs/reference/campaign-policy.md.
    """

    waves: WaveKind = WaveKind.UPDATE_DOMAIN
    gap: Duration = "30m"
    notice: Duration | None = None
    expected: Duration | None = None
    scopes_at_once: PositiveCount | Percent | None = None
    hosts_at_once: PositiveCount | Percent | None = None
    vms_at_once: PositiveCount | Percent | None = None
    windows: Annotated[Sequence[CampaignWindow], msgspec.Meta(max_length=MAX_WINDOWS)] = ()
    blackouts: Annotated[Sequence[CampaignBlackout], msgspec.Meta(max_length=MAX_BLACKOUTS)] = ()
    zone: Zone = "UTC"
    must_end_inside: bool = False
    gate: Name | HttpGate | None = None
    gate_patience: Duration = "30m"
    halt_after: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = 1
    advance: bool = True


class CampaignRequest(Request, frozen=True):
    """Maintenance over a selection of VMs, wave by wave, as it is asked for."""

    name: Name
    type: CampaignType
    selection: CampaignSelection
    duration: Duration | None = None
    description: Text = ""
    policy: CampaignPolicy = CampaignPolicy()
    start_at: Moment | None = None


class StartCampaign(CampaignRequest, frozen=True, kw_only=True):
    """Roll maintenance over a selection of VMs, wave by wave. To plan it, the same is asked."""

    reason: Text = ""


class SelectionView(CampaignSelection, frozen=True, forbid_unknown_fields=False):
    """The selection, as it was asked for."""


class WindowView(CampaignWindow, frozen=True, forbid_unknown_fields=False):
    """A window, as it was asked for."""


class BlackoutView(CampaignBlackout, frozen=True, forbid_unknown_fields=False):
    """A black-out, as it was asked for."""


class GateView(HttpGate, frozen=True, forbid_unknown_fields=False):
    """A gate, as it was asked for."""


class PolicyView(CampaignPolicy, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The policy, as it was asked for."""

    windows: Sequence[WindowView] = ()
    blackouts: Sequence[BlackoutView] = ()
    gate: str | GateView | None = None


class CampaignSpec(CampaignRequest, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A campaign, as it was asked for. Asking for the same again is a campaign of its own."""

    selection: SelectionView
    policy: PolicyView = PolicyView()


class PlannedWave(Response, frozen=True):
    """A wave of a plan: an update domain of a scope. `number`: it is the scope's n-th, from 1."""

    scope: str
    number: int
    update_domain: int
    announce_at: datetime
    not_before: datetime
    ends_at: datetime
    hosts: Sequence[str]
    vms: Sequence[str]


class UnplacedVms(Response, frozen=True):
    """VMs that the policy leaves no place for: by which of its keys, and by how much."""

    scope: str
    update_domain: int
    vms: Sequence[str]
    policy_key: str
    excess: str
    reason: str


class CampaignPlan(Response, frozen=True):
    """Every wave before anything is announced, in the order of their starts. Each selected VM is in one, or unplaced.

    The counts are of all that are selected: what percentages are of.
    """

    waves: Sequence[PlannedWave]
    unplaced: Sequence[UnplacedVms]
    ends_at: datetime | None
    scope_count: int
    host_count: int
    vm_count: int
    warnings: Sequence[str] = ()


class PlanProgress(Response, frozen=True):
    """A line of the stream while a plan is made; the last one has the plan, or why there is none."""

    done: int
    total: int
    result: CampaignPlan | None = None
    error: ErrorResponse | None = None


class WaveProgress(Response, frozen=True):
    """How far the n-th waves of all scopes are: how many there are, their VMs, and how many of them stand how."""

    number: int
    wave_count: int
    vm_count: int
    planned: int = 0
    announced: int = 0
    cleared: int = 0
    done: int = 0
    failed: int = 0
    retrying: int = 0
    skipped: int = 0
    abandoned: int = 0


class CampaignWave(Response, frozen=True):
    """A wave of a scope. `state_changed_at`: when it came to stand as it does, for an announced one its not_before."""

    scope: str
    number: int
    update_domain: int
    state: WaveState
    planned_at: datetime
    state_changed_at: datetime | None
    vm_count: int


class WavePage(Response, frozen=True):
    """Some waves of a campaign, by scope; `next` asks for those after them."""

    waves: Sequence[CampaignWave]
    next: str | None


class CampaignFailure(Response, frozen=True):
    """A scope that cannot go on: a person has its wave retried, or skipped."""

    scope: str
    number: int
    update_domain: int
    failed_at: datetime
    reason: str


class ClosedGate(Response, frozen=True):
    """The gate is shut: since when, why, when it is asked again, and what it is called."""

    since: datetime
    reason: str
    next_check_at: datetime
    name: str = ""


class Campaign(Response, frozen=True):
    """A campaign. `explanation` says, in sentences, what it waits for; `expected_end_at` moves.

    `created_by` and `reason` tell who started it and why; `state_changed_by`, `state_changed_at` and `state_reason`
    who brought it into its state, when and why. `scope_count`, `host_count` and `vm_count` are of what was selected
    when it was planned, `finished_…` of what is done or skipped. Of very many failures, only the newest have a reason.
    `is_stuck`: it is Running, and yet nothing goes on until a person decides, because every scope that is not through
    has a failed wave, or waits for room that these take.
    """

    id: str
    name: str
    type: CampaignType
    state: CampaignState
    created_by: str
    started_at: datetime
    ended_at: datetime | None
    planned_end_at: datetime | None
    expected_end_at: datetime | None
    state_changed_by: str
    state_changed_at: datetime
    state_reason: str
    scope_count: int
    host_count: int
    vm_count: int
    wave_count: int
    finished_wave_count: int
    finished_vm_count: int
    progress: Sequence[WaveProgress]
    failures: Sequence[CampaignFailure]
    gate: ClosedGate | None
    explanation: Sequence[str]
    spec: CampaignSpec
    reason: str = ""
    is_stuck: bool = False


class CampaignPage(Response, frozen=True):
    """Some campaigns, the newest first; `next` asks for those after them."""

    campaigns: Sequence[Campaign]
    next: str | None


class PauseCampaign(Request, frozen=True):
    """Let no further wave start; what is Started ends."""

    reason: Text = ""


class ResumeCampaign(Request, frozen=True):
    """Go on after a pause or a halt."""

    reason: Text = ""


class AbortCampaign(Request, frozen=True):
    """End the campaign: what is Scheduled is canceled, what is Started ends."""

    reason: Reason


class RetryWave(Request, frozen=True):
    """Have the failed wave of a scope made once more."""

    scope: Name
    reason: Text = ""


class SkipWave(Request, frozen=True):
    """Go on in a scope without the wave that failed, or that waits."""

    scope: Name
    reason: Reason
