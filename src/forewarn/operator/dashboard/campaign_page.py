"""Campaign pages: the list, and one campaign with its progress per wave, what it waits for, and actions."""

import asyncio
from collections.abc import Awaitable, Callable
from secrets import token_hex
from typing import Annotated, Literal
from urllib.parse import urlencode

import msgspec
from litestar import Response, get, post
from litestar.params import QueryParameter

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.campaign.record import Campaign, CampaignState
from forewarn.core.text import Name, Text
from forewarn.operator.auth import CallerDep, requires
from forewarn.operator.dashboard.campaign_chart import CHART_KINDS, CampaignChart, progress_chart
from forewarn.operator.dashboard.pages import PAUSE_PER_ITEM, AnyRequest, changed, convert_form, read_form, render_page
from forewarn.operator.dashboard.session_middleware import ROOT
from forewarn.operator.lookup import find_campaign
from forewarn.operator.parameters import CampaignId, IdempotencyKeyDep
from forewarn.operator.routes.campaigns import read_campaigns
from forewarn.operator.routes.journal import read_page
from forewarn.operator.state import AppState
from forewarn.operator.views.campaigns import show_campaign, show_waves
from forewarn.store.port import JournalQuery, RecordKey, RecordKind

PATH = f"{ROOT}/campaigns"

MAX_CAMPAIGNS = 50
"""How many campaigns a page of the list has."""

MAX_WAVES = 200
"""How many waves the page of a campaign lists."""

MAX_ENTRIES = 50
"""How many entries of the journal it lists."""

MAX_CHART_ENTRIES = 3_000
"""How many entries of the journal, the newest, its chart uses; of older waves it shows the end only."""

AfterCampaign = Annotated[str, QueryParameter(name="after", max_length=128)]
Table = Annotated[int, QueryParameter(name="table", ge=0, le=1_000)]


class CampaignForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The form of an action on a campaign; `scope` is that of the wave to retry or skip."""

    action: Literal["pause", "resume", "abort", "retry", "skip"]
    scope: Name | None = None
    reason: Text = ""


@get(PATH, opt=requires(Role.VIEWER))
async def show_campaigns(
    request: AnyRequest, state: AppState, caller: CallerDep, after: AfterCampaign = ""
) -> Response[str]:
    """Show the newest campaigns, or those before another one."""
    position = await state.fleet.journal.end()
    page = await read_campaigns(state.fleet, caller, after=after, limit=MAX_CAMPAIGNS)
    return render_page(
        request,
        "campaigns.html",
        title="Campaigns",
        live="all",
        position=position,
        pause=PAUSE_PER_ITEM * sum(campaign.scope_count for campaign in page.campaigns),
        campaigns=page.campaigns,
        next_path=None if page.next is None else f"{PATH}?{urlencode({'after': page.next})}",
    )


@get(f"{PATH}/{{campaign:str}}", opt=requires(Role.VIEWER))
async def show_campaign_page(
    request: AnyRequest, state: AppState, caller: CallerDep, campaign: CampaignId, table: Table = 0
) -> Response[str]:
    """Show a campaign; `table` is the page of its chart's table to show."""
    position = await state.fleet.journal.end()
    found = find_campaign(state.fleet, caller, campaign)
    shown = await show_campaign(state.fleet, found)
    picture = await _picture(state, found)
    journal = await read_page(state.fleet, caller, campaign=found.id, newest_first=True, limit=MAX_ENTRIES)
    return render_page(
        request,
        "campaign.html",
        title=shown.name,
        live="all",
        position=position,
        pause=PAUSE_PER_ITEM * shown.scope_count,
        campaign=shown,
        chart=picture.chart,
        omitted=picture.omitted,
        table=table,
        waves=show_waves(state.fleet, found, scope=None, state=None, after="", limit=MAX_WAVES),
        entries=journal.entries,
        actions=_possible_actions(shown),
        request_key=token_hex(16),
    )


async def _picture(state: AppState, campaign: Campaign) -> CampaignChart:
    """Return the chart of a campaign, from its record and its journal."""
    key = RecordKey(RecordKind.CAMPAIGN, campaign.id)
    query = JournalQuery(key=key, kinds=CHART_KINDS, newest_first=True, limit=MAX_CHART_ENTRIES)
    entries = [row.entry for row in await state.fleet.journal.query(query)][::-1]
    context, now = state.fleet.scopes.rule_context, state.fleet.clock.now()
    return await asyncio.to_thread(progress_chart, campaign, entries, context, now=now)


def _possible_actions(campaign: v1.Campaign) -> list[str]:
    match campaign.state:
        case CampaignState.RUNNING:
            actions = ["pause", "abort"]
        case CampaignState.PAUSED | CampaignState.HALTED:
            actions = ["resume", "abort"]
        case _:
            return []
    return [*actions, *(["retry", "skip"] if campaign.failures else [])]


@post(f"{PATH}/{{campaign:str}}", opt=requires(Role.OPERATOR))
async def change_campaign(
    request: AnyRequest, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep, campaign: CampaignId
) -> Response[str]:
    """Pause, resume or abort a campaign, or retry or skip a wave."""
    form = convert_form(await read_form(request), CampaignForm)
    id_ = find_campaign(state.fleet, caller, campaign).id
    campaigns = state.fleet.campaigns
    if form.action in ("retry", "skip"):
        fields = {"scope": form.scope, "reason": form.reason}
        given = {name: value for name, value in fields.items() if value}
        wave: v1.RetryWave | v1.SkipWave = (
            convert_form(given, v1.RetryWave) if form.action == "retry" else convert_form(given, v1.SkipWave)
        )
        change_wave = campaigns.retry if form.action == "retry" else campaigns.skip
        await change_wave(id_, wave.scope, by=caller.name, why=wave.reason, idempotency_key=idempotency_key)
        return changed()
    if form.action == "abort":
        convert_form({"reason": form.reason}, v1.AbortCampaign)
    commands: dict[str, Callable[..., Awaitable[Campaign]]] = {
        "pause": campaigns.pause,
        "resume": campaigns.resume,
        "abort": campaigns.abort,
    }
    await commands[form.action](id_, by=caller.name, why=form.reason, idempotency_key=idempotency_key)
    return changed()
