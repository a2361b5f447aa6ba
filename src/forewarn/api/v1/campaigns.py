"""Campaign types: spec, policy, plan, waves and progress.

What a campaign asks for is declared in `core/campaign/spec.py`; its types here are derived from that, one for requests
and one for responses. A new key of a policy needs no change here.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from forewarn.api.v1.common import ErrorResponse, Reason, Request, Response
from forewarn.api.v1.derived_types import DerivedTypes, Form, value_form
from forewarn.core.campaign import spec as core
from forewarn.core.campaign.record import CampaignState
from forewarn.core.campaign.spec import CampaignType
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


_ZoneName = Annotated[str, msgspec.Meta(pattern=f"^{core.ZONE}$")]

_OWN_FORMS: dict[tuple[type[msgspec.Struct], str], Form] = {
    # A record has an empty text where a window has no zone of its own, and the API null.
    (core.Window, "zone"): value_form(_ZoneName | None, lambda zone: zone or None, lambda zone: zone or ""),
}

_REQUESTS = DerivedTypes(
    Request,
    {
        core.Selection: "CampaignSelection",
        core.Window: "CampaignWindow",
        core.Blackout: "CampaignBlackout",
        core.HttpCheck: "HttpGate",
        core.CampaignPolicy: "CampaignPolicy",
        core.CampaignSpec: "CampaignRequest",
    },
    _OWN_FORMS,
)
_RESPONSES = DerivedTypes(
    Response,
    {
        core.Selection: "SelectionView",
        core.Window: "WindowView",
        core.Blackout: "BlackoutView",
        core.HttpCheck: "GateView",
        core.CampaignPolicy: "PolicyView",
        core.CampaignSpec: "CampaignSpec",
    },
    _OWN_FORMS,
)

if TYPE_CHECKING:

    class DerivedType(Request, frozen=True):
        """What a type checker knows of a derived type: it cannot see the fields."""

        def __init__(self, **fields: Any) -> None: ...

        def __getattr__(self, name: str) -> Any: ...

    CampaignSelection = DerivedType
    CampaignWindow = DerivedType
    CampaignBlackout = DerivedType
    HttpGate = DerivedType
    CampaignPolicy = DerivedType
    CampaignRequest = DerivedType
    StartCampaign = DerivedType
    SelectionView = DerivedType
    PolicyView = DerivedType
    CampaignSpec = DerivedType
else:
    CampaignSelection = _REQUESTS.derive(core.Selection)
    CampaignWindow = _REQUESTS.derive(core.Window)
    CampaignBlackout = _REQUESTS.derive(core.Blackout)
    HttpGate = _REQUESTS.derive(core.HttpCheck)
    CampaignPolicy = _REQUESTS.derive(core.CampaignPolicy)
    CampaignRequest = _REQUESTS.derive(core.CampaignSpec)
    SelectionView = _RESPONSES.derive(core.Selection)
    PolicyView = _RESPONSES.derive(core.CampaignPolicy)
    CampaignSpec = _RESPONSES.derive(core.CampaignSpec)

    class StartCampaign(CampaignRequest, frozen=True, kw_only=True):
        """Roll maintenance over a selection of VMs, wave by wave. To plan it, the same is asked."""

        reason: Text = ""


def spec_from_request(request: CampaignRequest | CampaignSpec) -> core.CampaignSpec:
    """Return the specification that a request asks for; Invalid says which value breaks which rule."""
    return _REQUESTS.read(core.CampaignSpec, request)


def spec_view(spec: core.CampaignSpec) -> CampaignSpec:
    """Return a specification as a response has it."""
    view: CampaignSpec = _RESPONSES.write(spec)
    return view


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
