"""Campaign routes: plan, start, list, pause, resume, abort, retry and skip."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from litestar import Controller, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, JSONBody, PathParameter, QueryParameter
from litestar.response import Stream

from forewarn.api import v1
from forewarn.api.v1.campaigns import spec_from_request
from forewarn.core.access import Role
from forewarn.core.campaign.record import Campaign, CampaignState
from forewarn.core.campaign.spec import CampaignPolicy, CampaignSpec, HttpCheck, Selection
from forewarn.core.errors import CoreError, Invalid, ResourceExists
from forewarn.fleet.campaign.service import IsVisible
from forewarn.fleet.campaign.time_zones import find_zone
from forewarn.fleet.errors import CampaignNotFound, FleetError
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.fleet.service import Fleet
from forewarn.operator.auth import Caller, CallerDep, requires
from forewarn.operator.campaign_planner import EncodedPlan
from forewarn.operator.error_responses import domain_error_body
from forewarn.operator.errors import GateNotAllowed, OperatorError, SelectionNotAllowed
from forewarn.operator.lookup import can_see_campaign, find_campaign
from forewarn.operator.pagination import first_page
from forewarn.operator.parameters import After, IdempotencyKeyDep, Limit, change_error_specs, error_specs
from forewarn.operator.process_worker import ProgressCallback
from forewarn.operator.routes.fleet_file import NDJSON
from forewarn.operator.state import AppState
from forewarn.operator.views.campaigns import show_campaign, show_plan_summary, show_waves

WAVES_PER_CHUNK = 200
"""How many waves of a plan are sent at a time."""

PLAN_PATH = "plan"
"""What follows the path of all campaigns where others have a campaign's name."""

CampaignId = Annotated[
    str, PathParameter(min_length=1, max_length=128, description="The campaign's id, or its name while it is not over.")
]
OnlyState = Annotated[CampaignState | None, QueryParameter(name="state", description="Only campaigns that stand so.")]
OnlyOpen = Annotated[bool, QueryParameter(name="open", description="Only campaigns that are not over.")]
OnlyWaveScope = Annotated[
    str | None, QueryParameter(name="scope", max_length=128, description="Only those of this scope.")
]
OnlyWaveState = Annotated[v1.WaveState | None, QueryParameter(name="state", description="Only those that stand so.")]
AfterWave = Annotated[
    str, QueryParameter(name="after", pattern=r"^[0-9]{0,9}$", description="`next` of the page before.")
]
Accept = Annotated[
    str | None,
    HeaderParameter(
        name="Accept", max_length=1024, description=f"`{NDJSON}`: a line for every step, the last with the plan."
    ),
]

PLAN_ERRORS = change_error_specs(
    _404="The settings have no gate of this name.",
    _409="The notice is too short, or, to start it, a campaign of this name is not over yet.",
    _503="The plan could not be made, or not be saved; nothing has changed.",
)
CHANGE_ERRORS = change_error_specs(
    _404="There is no such campaign, or it has no such scope.",
    _409="The campaign's state does not allow it, or the key was used for another request.",
)

_encode = msgspec.json.Encoder().encode


class CampaignController(Controller):
    """Campaigns. With a token that is limited to scopes: those of which all scopes are among them."""

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
        """List campaigns, the newest first."""
        wanted = (
            campaign
            for campaign in _after(state.fleet.campaigns.all()[::-1], after)
            if only_state in (None, campaign.state) and not (only_open and campaign.state.is_over)
        )
        found, more = await first_page(_visible_campaigns(wanted, caller), limit)
        return v1.CampaignPage(
            campaigns=[shown async for shown in _campaign_views(state.fleet, found)],
            next=found[-1].id if more else None,
        )

    @post(
        f"/{PLAN_PATH}",
        operation_id="planCampaign",
        summary="Plan a campaign",
        status_code=200,
        opt=requires(Role.VIEWER),
        responses={
            200: ResponseSpec(
                data_container=v1.CampaignPlan,
                description="Every wave, and what has no place.",
                generate_examples=False,
            ),
            **PLAN_ERRORS,
        },
    )
    async def plan(
        self, state: AppState, caller: CallerDep, data: JSONBody[v1.StartCampaign], accept: Accept = None
    ) -> Stream:
        """Show every wave with its times, hosts and VMs, and what cannot be placed and why. Nothing is announced."""
        spec = checked_spec(caller, data)
        with suppress(ResourceExists):  # that only matters to whoever starts it, and is remarked
            state.fleet.campaigns.check(spec, partial(can_see_campaign, caller))
        if NDJSON in (accept or ""):
            return Stream(_progress_lines(state, caller, spec), media_type=NDJSON)
        return Stream(_plan_chunks(await _plan(state, caller, spec)), media_type="application/json")

    @post(operation_id="startCampaign", summary="Start a campaign", opt=requires(Role.OPERATOR), responses=PLAN_ERRORS)
    async def start(
        self, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep, data: JSONBody[v1.StartCampaign]
    ) -> v1.Campaign:
        """Plan a campaign and start it. If the policy leaves VMs without a place, nothing is started."""
        if (before := state.fleet.campaigns.find_by_key(idempotency_key)) is not None:
            return await show_campaign(state.fleet, before)
        spec = checked_spec(caller, data)
        sees = partial(can_see_campaign, caller)
        state.fleet.campaigns.check(spec, sees)
        plan = await (await _plan(state, caller, spec)).decode()
        started = await state.fleet.campaigns.start(
            spec, plan, by=caller.name, why=data.reason, idempotency_key=idempotency_key, is_visible=sees
        )
        return await show_campaign(state.fleet, started)

    @get(
        "/{campaign:str}",
        operation_id="showCampaign",
        summary="Show a campaign",
        opt=requires(Role.VIEWER),
        responses=error_specs(_404="There is no such campaign."),
    )
    async def show(self, state: AppState, caller: CallerDep, campaign: CampaignId) -> v1.Campaign:
        """Show a campaign: its progress wave by wave, what it waits for and why, when it ends, and what has failed."""
        return await show_campaign(state.fleet, find_campaign(state.fleet, caller, campaign))

    @get(
        "/{campaign:str}/waves",
        operation_id="listWaves",
        summary="List the waves of a campaign",
        opt=requires(Role.VIEWER),
        responses=error_specs(_404="There is no such campaign."),
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
        """List the waves of a campaign by scope, each with its planned time and how it stands."""
        found = find_campaign(state.fleet, caller, campaign)
        return show_waves(found, scope=waves_of, state=waves_that, after=after, limit=limit)

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
        """Let no further wave be announced or start; what is Started ends."""
        id_ = find_campaign(state.fleet, caller, campaign).id
        return await show_campaign(
            state.fleet,
            await state.fleet.campaigns.pause(id_, by=caller.name, why=data.reason, idempotency_key=idempotency_key),
        )

    @post(
        "/{campaign:str}/resume",
        operation_id="resumeCampaign",
        summary="Go on with a campaign",
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
        """Go on after a pause or a halt. Failures before do not count any more towards the next halt."""
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
        """End a campaign for good: what is Scheduled is canceled, what is Started ends."""
        id_ = find_campaign(state.fleet, caller, campaign).id
        return await show_campaign(
            state.fleet,
            await state.fleet.campaigns.abort(id_, by=caller.name, why=data.reason, idempotency_key=idempotency_key),
        )

    @post(
        "/{campaign:str}/retry",
        operation_id="retryWave",
        summary="Have a failed wave made once more",
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
        """Have the failed wave of a scope made once more."""
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
        summary="Go on without a wave",
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
        """Go on in a scope without its failed wave, or without the one that waits."""
        id_ = find_campaign(state.fleet, caller, campaign).id
        return await show_campaign(
            state.fleet,
            await state.fleet.campaigns.skip(
                id_, data.scope, by=caller.name, why=data.reason, idempotency_key=idempotency_key
            ),
        )


def checked_spec(caller: Caller, request: v1.CampaignRequest) -> CampaignSpec:
    """Return what the rules are asked, if the caller may, and nothing is wrong with it that shows at once."""
    spec = spec_from_request(request)
    if spec.name == PLAN_PATH:
        raise Invalid(
            f"a campaign cannot be called {PLAN_PATH}: that is where campaigns are planned; give it another name"
        )
    if isinstance(spec.policy.gate, HttpCheck):
        _check_gate(caller, spec.policy.gate)
    _check_selection(caller, spec.selection)
    _check_zones(spec.policy)
    return spec


def _check_zones(policy: CampaignPolicy) -> None:
    """Refuse zones that there are not, by the keys that name them."""
    named = {f"policy.windows[{n}].zone": window.zone for n, window in enumerate(policy.windows) if window.zone}
    for key, zone in {"policy.zone": policy.zone, **named}.items():
        try:
            find_zone(zone)
        except Invalid as error:
            raise Invalid(f"{key}: {error}") from None


def _check_selection(caller: Caller, selection: Selection) -> None:
    """Refuse what could reach beyond the caller's scopes, whether it does or not: else that could be found out."""
    if caller.scopes and (selection.all or selection.hosts or selection.tags):
        raise SelectionNotAllowed(caller.name, caller.scopes)
    for name in selection.scopes:
        caller.check_scope(name)


def _check_gate(caller: Caller, gate: HttpCheck) -> None:
    if not caller.role.includes(Role.ADMIN):
        raise GateNotAllowed(caller.name, caller.role)
    if "@" in urlsplit(gate.url).netloc:
        raise Invalid(
            "gate: everybody who sees the campaign sees its url: define a gate that needs a password in the settings, "
            "and name it"
        )


async def _visible_campaigns(campaigns: Iterable[Campaign], caller: Caller) -> AsyncIterator[Campaign]:
    async for campaign in iterate_gradually(campaigns):
        if can_see_campaign(caller, campaign):
            yield campaign


async def _campaign_views(fleet: Fleet, campaigns: Iterable[Campaign]) -> AsyncIterator[v1.Campaign]:
    for campaign in campaigns:
        with suppress(CampaignNotFound):  # it was old, and has been dropped meanwhile
            yield await show_campaign(fleet, campaign)


def _after(campaigns: tuple[Campaign, ...], last: str) -> tuple[Campaign, ...]:
    """Return those after the last one of the page before, or all of them."""
    places = (place for place, campaign in enumerate(campaigns, 1) if campaign.id == last)
    return campaigns[next(places, 0) :]


async def _plan(
    state: AppState, caller: Caller, spec: CampaignSpec, report: ProgressCallback | None = None
) -> EncodedPlan:
    """Plan, and refuse what reaches beyond the scopes of the caller; until that is known, nothing is told of it."""
    planned = await state.planner.plan(spec, None if caller.scopes else report)
    if caller.scopes:
        scopes = {wave.scope for wave in (await planned.decode()).waves}
        scopes.update(each.scope for each in planned.summary.unplaced)
        if not all(map(caller.can_see, scopes)):
            raise SelectionNotAllowed(caller.name, caller.scopes)
    sees = partial(can_see_campaign, caller)
    return planned.with_remarks((*_remarks(state.fleet, spec, sees), *await state.fleet.campaigns.overlaps(spec, sees)))


def _remarks(fleet: Fleet, spec: CampaignSpec, sees: IsVisible) -> Iterator[str]:
    """Say what does not keep anybody from planning, but from starting."""
    if fleet.campaigns.is_in_use(spec.name, sees):
        yield f"a campaign {spec.name} is not over yet: until it is, another one needs another name to be started"


class ProgressTracker:
    """How far a plan is, for somebody who follows it."""

    def __init__(self) -> None:
        self.progress = v1.PlanProgress(done=0, total=0)
        self.changed = asyncio.Event()

    def report(self, done: int, total: int) -> None:
        """Take how far it is."""
        self.progress = v1.PlanProgress(done=done, total=total)
        self.changed.set()


async def _progress_lines(state: AppState, caller: Caller, spec: CampaignSpec) -> AsyncIterator[bytes]:
    """Write how far a plan is, a line for each step, and then the plan or why there is none.

    Whoever stops reading ends the planning.
    """
    tracker = ProgressTracker()
    planning = asyncio.create_task(_plan(state, caller, spec, tracker.report))
    try:
        while not planning.done():
            yield _encode(tracker.progress) + b"\n"
            tracker.changed.clear()
            changed = asyncio.create_task(tracker.changed.wait())
            await asyncio.wait([planning, changed], return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
        planned = planning.result()
    except (CoreError, FleetError, OperatorError) as error:
        yield _encode(msgspec.structs.replace(tracker.progress, error=domain_error_body(error))) + b"\n"
        return
    finally:
        planning.cancel()
        with suppress(asyncio.CancelledError, CoreError, FleetError, OperatorError):
            await planning
    total = planned.summary.totals.vms
    yield b'{"done":%d,"total":%d,"result":' % (total, total)
    async for chunk in _plan_chunks(planned):
        yield chunk
    yield b"}\n"


async def _plan_chunks(planned: EncodedPlan) -> AsyncIterator[bytes]:
    """Write a plan piece by piece: it may tell of a hundred thousand VMs."""
    yield b'{"waves":['
    separator = b""
    for first in range(0, len(planned.waves), WAVES_PER_CHUNK):
        yield separator + b",".join(planned.waves[first : first + WAVES_PER_CHUNK])
        separator = b","
    yield b"]," + _encode(show_plan_summary(planned.summary)).removeprefix(b'{"waves":[],')
