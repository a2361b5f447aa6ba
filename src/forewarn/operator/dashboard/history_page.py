"""History page: the journal with filters that are in the URL, and its export as CSV and JSON."""

import csv
import io
from typing import Annotated, Literal
from urllib.parse import urlencode

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency, Provide
from litestar.exceptions import ValidationException
from litestar.params import QueryParameter

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.journal import EntryKind
from forewarn.operator.auth import Caller, CallerDep, requires
from forewarn.operator.dashboard.pages import AnyRequest, render_page
from forewarn.operator.dashboard.session_middleware import ROOT
from forewarn.operator.routes.journal import parse_time, read_page
from forewarn.operator.state import AppState

PATH = f"{ROOT}/history"

ENTRIES = 100
"""How many entries a page has."""

EXPORT_ENTRIES = 10_000
"""How many entries an export has at most, the newest."""

COLUMNS = ("position", "at", "action", "record_kind", "record_id", "event", "vms", "actor", "reason", "facts")

OnlyScope = Annotated[str, QueryParameter(name="scope", max_length=128)]
OnlyVm = Annotated[str, QueryParameter(name="vm", max_length=257)]
OnlyEvent = Annotated[str, QueryParameter(name="event", max_length=64)]
OnlyCampaign = Annotated[str, QueryParameter(name="campaign", max_length=128)]
OnlyAction = Annotated[str, QueryParameter(name="action", max_length=64)]
OnlyActor = Annotated[str, QueryParameter(name="actor", max_length=512)]
Since = Annotated[str, QueryParameter(name="since", max_length=40)]
Until = Annotated[str, QueryParameter(name="until", max_length=40)]
After = Annotated[str, QueryParameter(name="after", pattern=r"^[0-9]{0,18}$")]
ExportFormat = Annotated[Literal["csv", "json"], QueryParameter(name="format")]


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The filters of the page, as in its URL; an empty one does not count."""

    scope: str
    vm: str
    event: str
    campaign: str
    action: str
    actor: str
    since: str
    until: str


def provide_query(
    only_scope: OnlyScope = "",
    only_vm: OnlyVm = "",
    only_event: OnlyEvent = "",
    only_campaign: OnlyCampaign = "",
    only_action: OnlyAction = "",
    only_actor: OnlyActor = "",
    since: Since = "",
    until: Until = "",
) -> HistoryQuery:
    """Provide the filters of a request to handlers."""
    return HistoryQuery(
        scope=only_scope,
        vm=only_vm,
        event=only_event,
        campaign=only_campaign,
        action=only_action,
        actor=only_actor,
        since=since,
        until=until,
    )


HistoryQueryDep = NamedDependency[HistoryQuery]
"""The filters of a request, as handlers take them: `history_query: HistoryQueryDep`."""

DEPENDENCIES = {"history_query": Provide(provide_query, sync_to_thread=False)}


@get(PATH, opt=requires(Role.VIEWER), dependencies=DEPENDENCIES)
async def show_history(
    request: AnyRequest,
    state: AppState,
    caller: CallerDep,
    history_query: HistoryQueryDep,
    after: After = "",
) -> Response[str]:
    """Show the newest entries that match, or those before a position."""
    position = await state.fleet.journal.end()
    page = await _read(state, caller, history_query, after=int(after or 0), limit=ENTRIES)
    given = {name: value for name, value in msgspec.structs.asdict(history_query).items() if value}
    return render_page(
        request,
        "history.html",
        title="History",
        live="" if after else "all",
        position=position,
        query=history_query,
        actions=[kind.value for kind in EntryKind],
        entries=page.entries,
        is_filtered=bool(given),
        next_path=None if page.next is None else f"{PATH}?{urlencode(given | {'after': page.next})}",
        export_path=f"{PATH}/export?{urlencode(given)}{'&' if given else ''}",
        export_entries=EXPORT_ENTRIES,
    )


@get(f"{PATH}/export", opt=requires(Role.VIEWER), dependencies=DEPENDENCIES)
async def export_history(
    state: AppState,
    caller: CallerDep,
    history_query: HistoryQueryDep,
    format_: ExportFormat = "csv",
) -> Response[bytes]:
    """Return the newest entries that match as a file."""
    entries: list[v1.JournalEntry] = []
    after = 0
    while len(entries) < EXPORT_ENTRIES:
        page = await _read(state, caller, history_query, after=after, limit=v1.LARGEST_PAGE)
        entries += page.entries
        if page.next is None:
            break
        after = int(page.next)
    entries = entries[:EXPORT_ENTRIES]
    headers = {"Content-Disposition": f'attachment; filename="forewarn-journal.{format_}"'}
    if format_ == "json":
        return Response(msgspec.json.encode(entries), media_type="application/json", headers=headers)
    return Response(write_csv(entries), media_type="text/csv", headers=headers)


async def _read(state: AppState, caller: Caller, query: HistoryQuery, *, after: int, limit: int) -> v1.JournalPage:
    try:
        actions = (EntryKind(query.action),) if query.action else ()
    except ValueError:
        raise ValidationException(f"there is no action {query.action}") from None
    return await read_page(
        state.fleet,
        caller,
        scope=query.scope or None,
        vm=query.vm or None,
        event=query.event or None,
        campaign=query.campaign or None,
        actions=actions,
        actor=query.actor or None,
        since=parse_time(_with_zone(query.since), "since"),
        until=parse_time(_with_zone(query.until), "until"),
        newest_first=True,
        after=after,
        limit=limit,
    )


def _with_zone(text: str) -> str | None:
    """Return a time of a form, which has neither seconds nor a zone, as a time in UTC."""
    if not text:
        return None
    return f"{text}:00Z" if len(text) == len("2026-03-02T10:00") else text


def write_csv(entries: list[v1.JournalEntry]) -> bytes:
    """Return entries as CSV. Text that a spreadsheet would take for a formula gets an apostrophe before it."""
    content = io.StringIO()
    writer = csv.writer(content)
    writer.writerow(COLUMNS)
    for entry in entries:
        facts = " ".join(f"{name}={value}" for name, value in entry.facts.items())
        row = (
            *(entry.position, entry.at.isoformat().replace("+00:00", "Z"), entry.action.value, entry.record_kind),
            *(entry.record_id, entry.event or "", " ".join(entry.vms), entry.actor, entry.reason, facts),
        )
        writer.writerow([f"'{cell}" if str(cell)[:1] in tuple("=+-@\t\r") else cell for cell in row])
    return content.getvalue().encode()
