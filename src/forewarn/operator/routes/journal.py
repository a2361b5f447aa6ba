"""Journal route: query what happened, when, by whom and why."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from litestar import Controller, get
from litestar.exceptions import ValidationException
from litestar.params import QueryParameter

from forewarn.api import v1
from forewarn.api.v1.common import Moment
from forewarn.core.access import Role
from forewarn.core.errors import Invalid
from forewarn.core.journal import EntryKind
from forewarn.fleet.errors import AmbiguousVm, VmNotFound
from forewarn.fleet.journal import journal_query
from forewarn.fleet.service import Fleet
from forewarn.operator.auth import Caller, CallerDep, requires
from forewarn.operator.errors import TokenVmNotFound, VmNameNotFound
from forewarn.operator.lookup import find_campaign, find_vm
from forewarn.operator.parameters import CAMPAIGN_ERRORS, Limit, OnlyCampaign, OnlyScope, error_specs
from forewarn.operator.state import AppState
from forewarn.operator.strict_request import to_utc
from forewarn.operator.views.journal import read_predicate, show_row
from forewarn.store.port import JournalQuery, JournalRow, RecordKey, RecordKind

BATCHES = 10
"""How many times the journal is read for one page at most, if the caller may not read all entries."""

MAX_REMOVAL_PAGES = 20
"""How many pages of removed VMs and scopes are searched for a name."""

OnlyVm = Annotated[
    str | None,
    QueryParameter(
        name="vm",
        min_length=1,
        max_length=257,
        description="Only entries about this VM. Specify a removed VM as `scope/name`, or by a unique bare name.",
    ),
]
OnlyEvent = Annotated[
    str | None, QueryParameter(name="event", min_length=1, max_length=64, description="Only entries about this event.")
]
OnlyAction = Annotated[
    list[EntryKind] | None, QueryParameter(name="action", description="Only entries with this action; can be repeated.")
]
OnlyActor = Annotated[
    str | None, QueryParameter(name="actor", min_length=1, max_length=512, description="Only entries of this actor.")
]
Since = Annotated[
    str | None,
    QueryParameter(max_length=40, description="Only entries from this time on.", schema_extra={"format": "date-time"}),
]
Until = Annotated[
    str | None,
    QueryParameter(max_length=40, description="Only entries before this time.", schema_extra={"format": "date-time"}),
]
NewestFirst = Annotated[bool, QueryParameter(description="Newest entries first.")]
AfterPosition = Annotated[
    str, QueryParameter(name="after", pattern=r"^[0-9]{0,18}$", description="`next` of the previous page.")
]


class JournalController(Controller):
    """The journal."""

    path = "/v1/journal"
    tags = ("journal",)

    @get(
        operation_id="readJournal",
        summary="Read the journal",
        opt=requires(Role.VIEWER),
        responses=error_specs(Invalid, VmNameNotFound, AmbiguousVm, *CAMPAIGN_ERRORS, "store-unavailable"),
    )
    async def read_journal(
        self,
        state: AppState,
        caller: CallerDep,
        only_scope: OnlyScope = None,
        only_vm: OnlyVm = None,
        only_event: OnlyEvent = None,
        only_campaign: OnlyCampaign = None,
        only_action: OnlyAction = None,
        only_actor: OnlyActor = None,
        since: Since = None,
        until: Until = None,
        newest_first: NewestFirst = False,
        after: AfterPosition = "",
        limit: Limit = v1.PAGE,
    ) -> v1.JournalPage:
        """Return the journal entries that match all filters, by default oldest first.

        The journal also has entries of removed scopes and VMs and of ended events. With a token that is limited to
        scopes a page may have fewer entries than `limit`, or none; `next` is set if there are more.
        """
        return await read_page(
            state.fleet,
            caller,
            scope=only_scope,
            vm=only_vm,
            event=only_event,
            campaign=only_campaign,
            actions=tuple(only_action or ()),
            actor=only_actor,
            since=parse_time(since, "since"),
            until=parse_time(until, "until"),
            newest_first=newest_first,
            after=int(after or 0),
            limit=limit,
        )


async def read_page(
    fleet: Fleet,
    caller: Caller,
    *,
    scope: str | None = None,
    vm: str | None = None,
    event: str | None = None,
    campaign: str | None = None,
    actions: tuple[EntryKind, ...] = (),
    actor: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    newest_first: bool = False,
    after: int = 0,
    limit: int = v1.PAGE,
) -> v1.JournalPage:
    """Return a page of the entries that match all filters and that the caller may read."""
    query = journal_query(
        fleet.replica,
        scope=scope,
        vm=vm if vm is None or scope is not None else await _full_name(fleet, caller, vm),
        event=event,
        kinds=actions,
        by=actor,
        since=since,
        until=until,
        page=after,
        newest_first=newest_first,
    )
    if campaign is not None:
        return await _page(fleet, _campaign_query(fleet, caller, query, campaign), caller, limit)
    if query.key is not None:
        caller.check_scope(query.key.id)
        if scope not in (None, query.key.id):
            return _show_page((), next_=None)
    return await _page(fleet, query, caller, limit)


def _campaign_query(fleet: Fleet, caller: Caller, query: JournalQuery, campaign: str) -> JournalQuery:
    """Restrict the query to entries of the campaign itself; those of its scopes are separate."""
    if query.key is not None:
        raise Invalid("an entry belongs to a campaign or to a scope; omit campaign, or omit scope and vm")
    id_ = find_campaign(fleet, caller, campaign).id
    return msgspec.structs.replace(query, key=RecordKey(RecordKind.CAMPAIGN, id_))


async def _full_name(fleet: Fleet, caller: Caller, vm: str) -> str:
    """Return `scope/name` of a VM. A bare name is that of an existing VM, else of the only removed one."""
    if "/" in vm:
        return vm
    try:
        view, found = find_vm(fleet, caller, vm)
    except VmNotFound:
        missing: VmNameNotFound | TokenVmNotFound = VmNameNotFound(vm)
    except TokenVmNotFound as error:
        missing = error
    else:
        return f"{view.id}/{found.name}"
    if (removed := await _removed_vm(fleet, caller, vm)) is None:
        raise missing
    return removed


async def _removed_vm(fleet: Fleet, caller: Caller, vm: str) -> str | None:
    """Find a removed VM in the newest entries of removals; None if there is none of this name."""
    found: set[str] = set()
    query = JournalQuery(kinds=(EntryKind.VM_REMOVED, EntryKind.SCOPE_REMOVED), newest_first=True)
    for _ in range(MAX_REMOVAL_PAGES):
        rows = await fleet.journal.query(query)
        for row in rows:
            if caller.can_see(row.key.id):
                same = (name for name in row.entry.vms if name.casefold() == vm.casefold())
                found.update(f"{row.key.id}/{name}" for name in same)
        if len(rows) < query.limit:
            break
        query = msgspec.structs.replace(query, before=rows[-1].position)
    if len(found) > 1:
        raise AmbiguousVm(vm, tuple(sorted(found)))
    return next(iter(found), None)


def parse_time(text: str | None, name: str) -> datetime | None:
    """Read a time with its zone. The framework would also accept a number."""
    if text is None:
        return None
    try:
        moment = msgspec.convert(text, type=Moment)
    except msgspec.ValidationError:
        raise ValidationException(f"{name} is not a time with a zone; write it like 2026-03-02T10:00:00Z") from None
    return to_utc(moment, name)


async def _page(fleet: Fleet, query: JournalQuery, caller: Caller, limit: int) -> v1.JournalPage:
    """Return a page of entries that the caller may read. A bounded number of entries is examined."""
    batch = v1.LARGEST_PAGE if caller.scopes else limit + 1
    found: list[JournalRow] = []
    can_read = read_predicate(fleet, caller)
    for _ in range(BATCHES):
        rows = await fleet.journal.query(msgspec.structs.replace(query, limit=batch))
        found += filter(can_read, rows)
        if len(found) > limit:
            return _show_page(found[:limit], next_=found[limit - 1].position)
        if len(rows) < batch:
            return _show_page(found, next_=None)
        query = _query_after(query, rows[-1].position)
    return _show_page(found, next_=query.before if query.newest_first else query.after)


def _show_page(rows: Sequence[JournalRow], *, next_: int | None) -> v1.JournalPage:
    return v1.JournalPage(entries=tuple(map(show_row, rows)), next=None if next_ is None else str(next_))


def _query_after(query: JournalQuery, position: int) -> JournalQuery:
    if query.newest_first:
        return msgspec.structs.replace(query, before=position)
    return msgspec.structs.replace(query, after=position)
