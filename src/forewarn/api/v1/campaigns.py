"""Campaign types: spec, policy, plan, waves and progress.

The types of the spec are in `forewarn.api.v1.campaign_spec`, derived from the core.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from forewarn.api.v1.campaign_spec import (
    CampaignBlackout,
    CampaignPolicy,
    CampaignRequest,
    CampaignSelection,
    CampaignSpec,
    CampaignWindow,
    HttpGate,
    PolicyView,
    SelectionView,
    StartCampaign,
)
from forewarn.api.v1.common import ErrorResponse, Reason, Request, Response
from forewarn.core.campaign.record import CampaignState
from forewarn.core.event_type import CampaignType
from forewarn.core.text import Name, Text

__all__ = [
    "AbortCampaign",
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
]


class WaveState(StrEnum):
    """The state of a wave. A cleared wave may start or has started; a failed wave needs an operator.

    An abandoned wave will never run, because the campaign was aborted. An unannounced wave is scheduled, but its VMs do
    not hear of it.
    """

    PLANNED = "planned"
    ANNOUNCED = "announced"
    CLEARED = "cleared"
    DONE = "done"
    FAILED = "failed"
    RETRYING = "retrying"
    SKIPPED = "skipped"
    ABANDONED = "abandoned"
    UNANNOUNCED = "unannounced"


class PlannedWave(Response, frozen=True):
    """A wave of a plan: an update domain of a scope. `number` counts the waves of the scope from 1.

    `announced`: whether its VMs would hear of it now.
    """

    scope: str
    number: int
    update_domain: int
    announce_at: datetime
    not_before: datetime
    ends_at: datetime
    hosts: Sequence[str]
    vms: Sequence[str]
    announced: bool = True


class UnplacedVms(Response, frozen=True):
    """VMs that do not fit into the plan. `policy_key` is the key that excludes them, `excess` by how much."""

    scope: str
    update_domain: int
    vms: Sequence[str]
    policy_key: str
    excess: str
    reason: str


class CampaignPlan(Response, frozen=True):
    """A plan: every wave in the order of their starts. Each selected VM is in one wave or unplaced.

    The counts include everything that is selected; percentages refer to them. `unannounced_…` count those that would
    not hear of it now.
    """

    waves: Sequence[PlannedWave]
    unplaced: Sequence[UnplacedVms]
    ends_at: datetime | None
    scope_count: int
    host_count: int
    vm_count: int
    warnings: Sequence[str] = ()
    unannounced_scope_count: int = 0
    unannounced_vm_count: int = 0


class PlanProgress(Response, frozen=True):
    """A line of the stream during planning; the last line has the plan or the error."""

    done: int
    total: int
    result: CampaignPlan | None = None
    error: ErrorResponse | None = None


class WaveProgress(Response, frozen=True):
    """The progress of the n-th waves of all scopes: number of waves and VMs, and number of waves by state."""

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
    unannounced: int = 0


class CampaignWave(Response, frozen=True):
    """A wave of a scope. `state_changed_at` is the time of its state; its not_before until it is cleared."""

    scope: str
    number: int
    update_domain: int
    state: WaveState
    planned_at: datetime
    state_changed_at: datetime | None
    vm_count: int


class WavePage(Response, frozen=True):
    """A page of waves of a campaign, sorted by scope. `next` is the parameter `after` of the next page."""

    waves: Sequence[CampaignWave]
    next: str | None


class CampaignFailure(Response, frozen=True):
    """A scope with a failed wave, which an operator must retry or skip."""

    scope: str
    number: int
    update_domain: int
    failed_at: datetime
    reason: str


class ClosedGate(Response, frozen=True):
    """A closed gate: since when, why, its next check and its name."""

    since: datetime
    reason: str
    next_check_at: datetime
    name: str = ""


class Campaign(Response, frozen=True):
    """A campaign. `explanation` has what it waits for, in sentences; `expected_end_at` is an estimate that changes.

    `created_by` and `reason`: who started it and why. `state_changed_by`, `state_changed_at` and `state_reason`: who
    changed its state, when and why. `scope_count`, `host_count` and `vm_count` count what was selected at planning,
    `finished_…` what is done or skipped, `unannounced_…` what would not hear of it at planning. Of very many failures,
    only the newest have a reason. `is_stuck`: the campaign is Running but needs an operator, because every unfinished
    scope has a failed wave or waits for limits that failed waves use up.
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
    unannounced_scope_count: int = 0
    unannounced_vm_count: int = 0


class CampaignPage(Response, frozen=True):
    """A page of campaigns, newest first. `next` is the parameter `after` of the next page."""

    campaigns: Sequence[Campaign]
    next: str | None


class PauseCampaign(Request, frozen=True):
    """Pause a campaign: no further wave starts. Started events continue."""

    reason: Text = ""


class ResumeCampaign(Request, frozen=True):
    """Resume a paused or halted campaign."""

    reason: Text = ""


class AbortCampaign(Request, frozen=True):
    """Abort the campaign. Scheduled events are canceled; started events continue."""

    reason: Reason


class RetryWave(Request, frozen=True):
    """Retry the failed wave of a scope."""

    scope: Name
    reason: Text = ""


class SkipWave(Request, frozen=True):
    """Skip the failed or waiting wave of a scope."""

    scope: Name
    reason: Reason
