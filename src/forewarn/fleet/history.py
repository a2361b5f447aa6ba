"""History: what the journal is asked by the people who run the fleet, in their words.

"Why did this VM pause at 03:12" is one question: `about(replica, vm="web-0", since=…, until=…)`. It finds every line
that names the VM (events that affect it, their approvals, what was done to it) and what held for its whole scope, such
as a hold. The line of the start says why: due, approved by whom, or failed hardware.
"""

from datetime import datetime

from forewarn.core.journal import EntryKind
from forewarn.fleet.replica import Replica
from forewarn.store.port import JournalQuery, Key, Kind

PAGE = 100


def about(
    replica: Replica,
    *,
    scope: str | None = None,
    vm: str | None = None,
    event: str | None = None,
    dids: tuple[EntryKind, ...] = (),
    by: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    page: int = 0,
    newest_first: bool = False,
    limit: int = PAGE,
) -> JournalQuery:
    """Make the query for a page. `page` is the position of the last line of the page before; 0 is the first page.

    Scopes and VMs that are gone have a history, too: such a VM is named `scope/name`, or by its bare name with its
    scope. A bare name alone must be of a VM that is there, and unambiguous.
    """
    if vm is not None:
        scope, vm = _place(replica, scope, vm)
    return JournalQuery(
        key=None if scope is None else Key(Kind.SCOPE, scope),
        event=None if event is None else event.upper(),
        vm=vm,
        dids=dids,
        by=by,
        since=since,
        until=until,
        after=0 if newest_first else page,
        before=page if newest_first and page else None,
        newest_first=newest_first,
        limit=limit,
    )


def _place(replica: Replica, scope: str | None, vm: str) -> tuple[str, str]:
    in_scope, slash, name = vm.rpartition("/")
    if slash:
        return in_scope, name
    if scope is not None:
        return scope, vm
    view, found = replica.find(vm)
    return view.id, found.name
