"""Campaign routes: plan, start, list, pause, resume, abort, retry and skip."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import aclosing, suppress
from functools import partial
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from litestar import Controller, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, JSONBody, QueryParameter
from litestar.response import Stream

from forewarn.api import v1
from forewarn.api.v1.campaign_spec import spec_from_request
from forewarn.core.access import Role
from forewarn.core.campaign.record import Campaign, CampaignState
from forewarn.core.campaign.spec import CampaignPolicy, CampaignSpec, HttpCheck, Selection
from forewarn.core.errors import (
    CampaignScopeNotFound,
    CoreError,
    Invalid,
    InvalidCampaignState,
    KeyConflict,
    NotAnnounced,
    NoticeTooShort,
    PlacementFailed,
    ResourceExists,
    TypeNotReleased,
)
from forewarn.core.idempotency import IdempotencyKey
from forewarn.fleet.campaign.service import IsVisible
from forewarn.fleet.campaign.time_zones import find_zone
from forewarn.fleet.errors import CampaignNotFound, FleetError, GateNotFound
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.fleet.service import Fleet
from forewarn.operator.auth import Caller, CallerDep, requires
from forewarn.operator.campaign_planner import EncodedPlan
from forewarn.operator.error_responses import domain_error_body
from forewarn.operator.errors import GateNotAllowed, OperatorError, PlanFailed, SelectionNotAllowed
from forewarn.operator.lookup import can_see_campaign, find_campaign
from forewarn.operator.parameters import (
    CAMPAIGN_ERRORS,
    After,
    CampaignId,
    IdempotencyKeyDep,
    Limit,
    change_error_specs,
    error_specs,
)
from forewarn.operator.process_worker import ProgressCallback
from forewarn.operator.routes.fleet_file import NDJSON
from forewarn.operator.state import AppState
from forewarn.operator.views.campaigns import show_campaign, show_plan_summary, show_waves

WAVES_PER_CHUNK = 200
"""How many waves of a plan are sent per chunk."""

PLAN_PATH = "plan"
"""The path of planning, which takes the place of a campaign's name."""

UNLIMITED_KEYS = ("hosts", "tags", "all")
"""Keys of a selection that only a caller without a limit to scopes may use."""

OnlyState = Annotated[CampaignState | None, QueryParameter(name="state", description="Only campaigns in this state.")]
OnlyOpen = Annotated[bool, QueryParameter(name="open", description="Only campaigns that have not ended.")]
OnlyWaveScope = Annotated[
    str | None, QueryParameter(name="scope", max_length=128, description="Only waves of this scope.")
]
OnlyWaveState = Annotated[v1.WaveState | None, QueryParameter(name="state", description="Only waves in this state.")]
AfterWave = Annotated[
    str, QueryParameter(name="after", pattern=r"^[0-9]{0,9}$", description="`next` of the previous page.")
]
Accept = Annotated[
    str | None,
    HeaderParameter(
        name="Accept", max_length=1024, description=f"`{NDJSON}`: stream one line per step, the last with the plan."
    ),
]

PLAN_ERRORS = change_error_specs(
    GateNotFound,
    GateNotAllowed,
    SelectionNotAllowed,
    NoticeTooShort,
    NotAnnounced,
    PlacementFailed,
    TypeNotReleased,
    ResourceExists,
    KeyConflict,
    PlanFailed,
)
CHANGE_ERRORS = change_error_specs(*CAMPAIGN_ERRORS, CampaignScopeNotFound, InvalidCampaignState, KeyConflict)

_encode = msgspec.json.Encoder().encode


class CampaignController(Controller):
    """Campaigns. A token that is limited to scopes sees campaigns whose scopes are all among them."""

    path = "/v1/campaigns"
    tags = ("campaigns",)

    @get(operation_id="listCampaigns", summary="List campaigns", opt=requires(Role.VIEWER), responses=error_specs())
    async def list_campaigns(
        self,
        state: AppState,
        caller: CallerDep,
        only_state: OnlyState = None,
        only_open: OnlyOpen = False,
        after: After = "",
        limit: Limit = v1.PAGE,
    ) -> v1.CampaignPage:
        """List campaigns, newest first."""
        return await read_campaigns(state.fleet, caller, state=only_state, is_open=only_open, after=after, limit=limit)

    @post(
        f"/{PLAN_PATH}",
        operation_id="planCampaign",
        summary="Plan a campaign",
        status_code=200,
        opt=requires(Role.VIEWER),
        responses={
            200: ResponseSpec(
                data_container=v1.CampaignPlan,
                description="Every wave, and the unplaced VMs.",
                generate_examples=False,
            ),
            **PLAN_ERRORS,
        },
    )
    async def plan(
        self, state: AppState, caller: CallerDep, data: JSONBody[v1.StartCampaign], accept: Accept = None
    ) -> Stream:
        """Plan a campaign: every wave with its times, hosts and VMs, and the unplaced VMs. Nothing is announced."""
        spec = plannable_spec(state, caller, data)
        if NDJSON in (accept or ""):
            return Stream(_progress_lines(state, caller, spec), media_type=NDJSON)
        return Stream(_plan_chunks(await _plan(state, caller, spec)), media_type="application/json")

    @post(operation_id="startCampaign", summary="Start a campaign", opt=requires(Role.OPERATOR), responses=PLAN_ERRORS)
    async def start(
        self, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep, data: JSONBody[v1.StartCampaign]
    ) -> v1.Campaign:
        """Plan a campaign and start it. If VMs cannot be placed, or would not hear of it, nothing is started."""
        return await start_campaign(state, caller, idempotency_key, data)

    @get(
        "/{campaign:str}",
        operation_id="showCampaign",
        summary="Show a campaign",
        opt=requires(Role.VIEWER),
        responses=error_specs(*CAMPAIGN_ERRORS),
    )
    async def show(self, state: AppState, caller: CallerDep, campaign: CampaignId) -> v1.Campaign:
        """Show a campaign: progress by wave, what it waits for and why, its expected end, and failures."""
        return await show_campaign(state.fleet, find_campaign(state.fleet, caller, campaign))

    @get(
        "/{campaign:str}/waves",
        operation_id="listWaves",
        summary="List the waves of a campaign",
        opt=requires(Role.VIEWER),
        responses=error_specs(*CAMPAIGN_ERRORS),
    )
    async def list_waves(
        self,
        state: AppState,
        caller: CallerDep,
        campaign: CampaignId,
        waves_of: OnlyWaveScope = None,
        waves_that: OnlyWaveState = None,
        after: AfterWave = "",
        limit: Limit = v1.PAGE,
    ) -> v1.WavePage:
        """List the waves of a campaign by scope, each with its planned time and state."""
        found = find_campaign(state.fleet, caller, campaign)
        return show_waves(state.fleet, found, scope=waves_of, state=waves_that, after=after, limit=limit)

    @post(
        "/{campaign:str}/pause",
        operation_id="pauseCampaign",
        summary="Pause a campaign",
        status_code=200,
        opt=requires(Role.OPERATOR),
        responses=CHANGE_ERRORS,
    )
    async def pause(
        self,
        state: AppState,
        caller: CallerDep,
        idempotency_key: IdempotencyKeyDep,
        campaign: CampaignId,
        data: JSONBody[v1.PauseCampaign],
    ) -> v1.Campaign:
        """Pause a campaign: no further wave is announced or starts. Started events continue."""
        id_ = find_campaign(state.fleet, caller, campaign).id
        return await show_campaign(
            state.fleet,
            await state.fleet.campaigns.pause(id_, by=caller.name, why=data.reason, idempotency_key=idempotency_key),
        )

    @post(
        "/{campaign:str}/resume",
        operation_id="resumeCampaign",
        summary="Resume a campaign",
        status_code=200,
        opt=requires(Role.OPERATOR),
        responses=CHANGE_ERRORS,
    )
    async def resume(
        self,
        state: AppState,
        caller: CallerDep,
        idempotency_key: IdempotencyKeyDep,
        campaign: CampaignId,
        data: JSONBody[v1.ResumeCampaign],
    ) -> v1.Campaign:
        """Resume a paused or halted campaign. Earlier failures no longer count towards the next halt."""
        id_ = find_campaign(state.fleet, caller, campaign).id
        return await show_campaign(
            state.fleet,
            await state.fleet.campaigns.resume(id_, by=caller.name, why=data.reason, idempotency_key=idempotency_key),
        )

    @post(
        "/{campaign:str}/abort",
        operation_id="abortCampaign",
        summary="Abort a campaign",
        status_code=200,
        opt=requires(Role.OPERATOR),
        responses=CHANGE_ERRORS,
    )
    async def abort(
        self,
        state: AppState,
        caller: CallerDep,
        idempotency_key: IdempotencyKeyDep,
        campaign: CampaignId,
        data: JSONBody[v1.AbortCampaign],
    ) -> v1.Campaign:
        """Abort a campaign permanently. Scheduled events are canceled; started events continue."""
        id_ = find_campaign(state.fleet, caller, campaign).id
        return await show_campaign(
            state.fleet,
            await state.fleet.campaigns.abort(id_, by=caller.name, why=data.reason, idempotency_key=idempotency_key),
        )

    @post(
        "/{campaign:str}/retry",
        operation_id="retryWave",
        summary="Retry a failed wave",
        status_code=200,
        opt=requires(Role.OPERATOR),
        responses=CHANGE_ERRORS,
    )
    async def retry(
        self,
        state: AppState,
        caller: CallerDep,
        idempotency_key: IdempotencyKeyDep,
        campaign: CampaignId,
        data: JSONBody[v1.RetryWave],
    ) -> v1.Campaign:
        """Retry the failed wave of a scope."""
        id_ = find_campaign(state.fleet, caller, campaign).id
        return await show_campaign(
            state.fleet,
            await state.fleet.campaigns.retry(
                id_, data.scope, by=caller.name, why=data.reason, idempotency_key=idempotency_key
            ),
        )

    @post(
        "/{campaign:str}/skip",
        operation_id="skipWave",
        summary="Skip a wave",
        status_code=200,
        opt=requires(Role.OPERATOR),
        responses=CHANGE_ERRORS,
    )
    async def skip(
        self,
        state: AppState,
        caller: CallerDep,
        idempotency_key: IdempotencyKeyDep,
        campaign: CampaignId,
        data: JSONBody[v1.SkipWave],
    ) -> v1.Campaign:
        """Skip the failed or waiting wave of a scope and continue with the next one."""
        id_ = find_campaign(state.fleet, caller, campaign).id
        return await show_campaign(
            state.fleet,
            await state.fleet.campaigns.skip(
                id_, data.scope, by=caller.name, why=data.reason, idempotency_key=idempotency_key
            ),
        )


async def start_campaign(
    state: AppState, caller: Caller, idempotency_key: IdempotencyKey | None, data: v1.StartCampaign
) -> v1.Campaign:
    """Plan a campaign and start it; a repeated request returns the campaign that it started before."""
    if (before := state.fleet.campaigns.find_by_key(idempotency_key)) is not None:
        return await show_campaign(state.fleet, before)
    spec = checked_spec(caller, data)
    sees = partial(can_see_campaign, caller)
    state.fleet.campaigns.check(spec, sees)
    plan = await (await _plan(state, caller, spec)).decode()
    started = await state.fleet.campaigns.start(
        spec,
        plan,
        by=caller.name,
        why=data.reason,
        idempotency_key=idempotency_key,
        is_visible=sees,
        unannounced=data.unannounced,
    )
    return await show_campaign(state.fleet, started)


def plannable_spec(state: AppState, caller: Caller, request: v1.CampaignRequest) -> CampaignSpec:
    """Return the campaign spec of a request to plan it, after the checks that need no plan."""
    spec = checked_spec(caller, request)
    with suppress(ResourceExists):  # matters only at the start; the plan has a warning
        state.fleet.campaigns.check(spec, partial(can_see_campaign, caller))
    return spec


def checked_spec(caller: Caller, request: v1.CampaignRequest) -> CampaignSpec:
    """Return the campaign spec of a request; check its values and the caller's permissions."""
    spec = spec_from_request(request)
    if spec.name == PLAN_PATH:
        raise Invalid(f"must not be {PLAN_PATH}, which is the path of planning; use another name", "name")
    if isinstance(spec.policy.gate, HttpCheck):
        _check_gate(caller, spec.policy.gate)
    _check_selection(caller, spec.selection)
    _check_zones(spec.policy)
    return spec


def _check_zones(policy: CampaignPolicy) -> None:
    """Refuse unknown time zones; the error names the key."""
    named = {f"policy.windows[{n}].zone": window.zone for n, window in enumerate(policy.windows) if window.zone}
    for key, zone in {"policy.zone": policy.zone, **named}.items():
        try:
            find_zone(zone)
        except Invalid as error:
            raise error.below(key) from None


def _check_selection(caller: Caller, selection: Selection) -> None:
    """Refuse a selection that could include other scopes than the caller's, without revealing whether there are any."""
    if caller.scopes and any(getattr(selection, key) for key in UNLIMITED_KEYS):
        raise SelectionNotAllowed(caller.name, caller.scopes)
    for name in selection.scopes:
        caller.check_scope(name)


def _check_gate(caller: Caller, gate: HttpCheck) -> None:
    if not caller.role.includes(Role.ADMIN):
        raise GateNotAllowed(caller.name, caller.role)
    if "@" in urlsplit(gate.url).netloc:
        raise Invalid(
            "must not contain a password, because everyone who sees the campaign sees it; "
            "define the gate in the settings and use its name",
            "policy.gate.url",
        )


async def read_campaigns(
    fleet: Fleet, caller: Caller, *, state: CampaignState | None = None, is_open: bool = False, after: str, limit: int
) -> v1.CampaignPage:
    """Return campaigns that the caller may see, newest first, after the last one of the previous page."""
    newest_first = iterate_gradually(fleet.campaigns.all()[::-1])
    visible = [campaign async for campaign in newest_first if can_see_campaign(caller, campaign)]
    wanted = [
        campaign
        for campaign in _after(visible, after)
        if state in (None, campaign.state) and not (is_open and campaign.state.is_over)
    ]
    found = wanted[:limit]
    return v1.CampaignPage(
        campaigns=[shown async for shown in _campaign_views(fleet, found)],
        next=found[-1].id if len(wanted) > limit else None,
    )


async def _campaign_views(fleet: Fleet, campaigns: Iterable[Campaign]) -> AsyncIterator[v1.Campaign]:
    for campaign in campaigns:
        with suppress(CampaignNotFound):  # pruned in the meantime
            yield await show_campaign(fleet, campaign)


def _after(campaigns: list[Campaign], last: str) -> list[Campaign]:
    """Return the campaigns after the last one of the previous page, or all."""
    places = (place for place, campaign in enumerate(campaigns, 1) if campaign.id == last)
    return campaigns[next(places, 0) :]


async def _plan(
    state: AppState, caller: Caller, spec: CampaignSpec, report: ProgressCallback | None = None
) -> EncodedPlan:
    """Plan a campaign; refuse it if it includes scopes that the caller may not see. Until then report no progress."""
    planned = await state.planner.plan(spec, None if caller.scopes else report)
    if caller.scopes:
        scopes = {wave.scope for wave in (await planned.decode()).waves}
        scopes.update(each.scope for each in planned.summary.unplaced)
        if not all(map(caller.can_see, scopes)):
            raise SelectionNotAllowed(caller.name, caller.scopes)
    sees = partial(can_see_campaign, caller)
    return planned.with_remarks((*_remarks(state.fleet, spec, sees), *await state.fleet.campaigns.overlaps(spec, sees)))


def _remarks(fleet: Fleet, spec: CampaignSpec, sees: IsVisible) -> Iterator[str]:
    """Yield warnings about what would prevent the start."""
    if fleet.campaigns.is_in_use(spec.name, sees):
        yield f"a campaign {spec.name} is still open: until it ends, a campaign needs another name to start"


class ProgressTracker:
    """The progress of a plan, for a client that follows it."""

    def __init__(self) -> None:
        self.progress = v1.PlanProgress(done=0, total=0)
        self.changed = asyncio.Event()

    def report(self, done: int, total: int) -> None:
        """Set the progress."""
        self.progress = v1.PlanProgress(done=done, total=total)
        self.changed.set()


async def follow_plan(
    state: AppState, caller: Caller, spec: CampaignSpec
) -> AsyncGenerator[v1.PlanProgress | EncodedPlan, None]:
    """Yield the progress of a plan, step by step, then the plan. Closing the iterator cancels the planning."""
    tracker = ProgressTracker()
    planning = asyncio.create_task(_plan(state, caller, spec, tracker.report))
    try:
        while not planning.done():
            yield tracker.progress
            tracker.changed.clear()
            changed = asyncio.create_task(tracker.changed.wait())
            await asyncio.wait([planning, changed], return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
        yield planning.result()
    finally:
        planning.cancel()
        with suppress(asyncio.CancelledError, CoreError, FleetError, OperatorError):
            await planning


async def _progress_lines(state: AppState, caller: Caller, spec: CampaignSpec) -> AsyncIterator[bytes]:
    """Yield the progress of a plan, one line per step, then the plan or the error.

    Closing the connection cancels the planning.
    """
    progress = v1.PlanProgress(done=0, total=0)
    try:
        async with aclosing(follow_plan(state, caller, spec)) as steps:
            async for step in steps:
                if isinstance(step, v1.PlanProgress):
                    progress = step
                    yield _encode(step) + b"\n"
                else:
                    total = step.summary.totals.vms
                    yield b'{"done":%d,"total":%d,"result":' % (total, total)
                    async for chunk in _plan_chunks(step):
                        yield chunk
                    yield b"}\n"
    except (CoreError, FleetError, OperatorError) as error:
        yield _encode(msgspec.structs.replace(progress, error=domain_error_body(error))) + b"\n"


async def _plan_chunks(planned: EncodedPlan) -> AsyncIterator[bytes]:
    """Yield a plan in chunks, because it may have a hundred thousand VMs."""
    yield b'{"waves":['
    separator = b""
    for first in range(0, len(planned.waves), WAVES_PER_CHUNK):
        yield separator + b",".join(planned.waves[first : first + WAVES_PER_CHUNK])
        separator = b","
    yield b"]," + _encode(show_plan_summary(planned.summary)).removeprefix(b'{"waves":[],')
