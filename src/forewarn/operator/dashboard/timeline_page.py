"""Timeline page: events and waves of past and coming hours as bars, per scope, host or VM; its state is in the URL."""

from datetime import datetime, timedelta
from typing import Annotated
from urllib.parse import urlencode

import msgspec
from litestar import Response, get
from litestar.exceptions import ValidationException
from litestar.params import QueryParameter

from forewarn.core.access import Role
from forewarn.core.campaign.windows import Span
from forewarn.core.event import EventType
from forewarn.operator.auth import CallerDep, requires
from forewarn.operator.dashboard.pages import PAUSE_PER_ITEM, AnyRequest, render_page
from forewarn.operator.dashboard.session_middleware import ROOT
from forewarn.operator.dashboard.time_chart import TABLE_LINES, TimeChart, to_seconds
from forewarn.operator.dashboard.timeline import MAX_ITEMS, read_timeline
from forewarn.operator.dashboard.timeline_item import Grouping, TimelineFilter
from forewarn.operator.lookup import can_see_campaign, find_campaign
from forewarn.operator.routes.journal import parse_time
from forewarn.operator.state import AppState

PATH = f"{ROOT}/timeline"

HOURS = {1: "1 hour", 6: "6 hours", 24: "24 hours", 72: "3 days", 168: "7 days", 744: "31 days"}
"""The ranges to choose from; each moves with the present."""

MAX_HOURS = 92 * 24

PAST = 0.25
"""The share of a range that is before the present."""

Search = Annotated[str, QueryParameter(name="q", max_length=128)]
GroupBy = Annotated[Grouping, QueryParameter(name="group")]
OnlyType = Annotated[str, QueryParameter(name="type", max_length=64)]
OnlyCampaign = Annotated[str, QueryParameter(name="campaign", max_length=128)]
Hours = Annotated[int, QueryParameter(name="hours", ge=1, le=MAX_HOURS)]
From = Annotated[str, QueryParameter(name="from", max_length=40)]
To = Annotated[str, QueryParameter(name="to", max_length=40)]
Table = Annotated[int, QueryParameter(name="table", ge=0, le=MAX_ITEMS // TABLE_LINES)]


class TimelineQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the page, as in its URL. Without `from` and `to` the range moves with the present."""

    q: str = ""
    group: Grouping = "scope"
    type: str = ""
    campaign: str = ""
    hours: int = 24
    start: str = msgspec.field(default="", name="from")
    end: str = msgspec.field(default="", name="to")
    table: int = 0
    """The page of the table to show; 0: it is not open."""

    def range(self, now: datetime) -> Span:
        """Return the range to show."""
        start, end = parse_time(self.start or None, "from"), parse_time(self.end or None, "to")
        length = timedelta(hours=self.hours)
        if start is None and end is None:
            return Span(now - PAST * length, now + (1 - PAST) * length)
        found = Span(
            start if start is not None else (end or now) - length, end if end is not None else (start or now) + length
        )
        if not timedelta(0) < found.end - found.start <= timedelta(hours=MAX_HOURS):
            raise ValidationException(f"to must be after from, by at most {MAX_HOURS // 24} days")
        return found

    @property
    def is_following(self) -> bool:
        """Whether the range moves with the present."""
        return not self.start and not self.end


@get(PATH, opt=requires(Role.VIEWER))
async def show_timeline(
    request: AnyRequest,
    state: AppState,
    caller: CallerDep,
    search: Search = "",
    group_by: GroupBy = "scope",
    only_type: OnlyType = "",
    only_campaign: OnlyCampaign = "",
    hours: Hours = 24,
    from_: From = "",
    to: To = "",
    table: Table = 0,
) -> Response[str]:
    """Show the timeline."""
    query = TimelineQuery(
        q=search, group=group_by, type=only_type, campaign=only_campaign, hours=hours, start=from_, end=to, table=table
    )
    if only_type and only_type not in list(EventType):
        raise ValidationException(f"type is one of {', '.join(EventType)} (got {only_type})")
    position = await state.fleet.journal.end()
    shown = query.range(state.fleet.clock.now())
    campaign = find_campaign(state.fleet, caller, only_campaign) if only_campaign else None
    wanted = TimelineFilter(
        text=search.strip().casefold(), type=only_type, campaign="" if campaign is None else campaign.id
    )
    part = await read_timeline(state, caller, shown, wanted, group_by)
    chart = TimeChart(
        start=to_seconds(shown.start),
        end=to_seconds(shown.end),
        rows=part.rows,
        backgrounds=part.backgrounds,
        follow=query.is_following,
    )
    return render_page(
        request,
        "timeline.html",
        title="Timeline",
        live="all",
        position=position,
        query=query,
        chart=chart,
        omissions=part.omissions,
        hours=HOURS,
        pause=PAUSE_PER_ITEM * chart.item_count,
        campaigns=[each for each in state.fleet.campaigns.all()[::-1] if can_see_campaign(caller, each)],
        is_filtered=bool(query.q or query.type or query.campaign),
        all_path=f"{PATH}?{urlencode({'group': query.group, 'hours': query.hours})}",
        table_path=f"{PATH}?{urlencode(msgspec.to_builtins(query) | {'table': ''})}",
    )
