"""Look up VMs, events and campaigns that the caller may see; everything else is reported as not found.

A scope that the caller names in full is refused as not allowed, whether it exists or not."""

from functools import partial

from forewarn.core.campaign.record import Campaign
from forewarn.core.vm import Vm
from forewarn.fleet.errors import AmbiguousVm, VmNotFound
from forewarn.fleet.replica import ScopeView
from forewarn.fleet.service import Fleet
from forewarn.operator.auth import Caller
from forewarn.operator.errors import JournalEventNotFound, TokenVmNotFound
from forewarn.store.port import JournalQuery


def find_vm(fleet: Fleet, caller: Caller, name: str) -> tuple[ScopeView, Vm]:
    """Find a VM by `scope/name`, or by its bare name if it is unique among the VMs that the caller may see."""
    scope, slash, _ = name.rpartition("/")
    if slash:
        caller.check_scope(scope)
        return fleet.replica.find(name)
    try:
        return fleet.replica.find(_full_name(fleet, caller, name))
    except VmNotFound:
        raise (TokenVmNotFound(name, caller.name, caller.scopes) if caller.scopes else VmNotFound(name)) from None


def _full_name(fleet: Fleet, caller: Caller, name: str) -> str:
    try:
        view, vm = fleet.replica.find(name)
    except AmbiguousVm as error:
        names = error.candidates
    else:
        names = (f"{view.id}/{vm.name}",)
    visible = tuple(full for full in names if caller.can_see(full.rpartition("/")[0]))
    if len(visible) > 1:
        raise AmbiguousVm(name, visible)
    if not visible:
        raise VmNotFound(name)
    return visible[0]


async def check_event(fleet: Fleet, caller: Caller, id_: str) -> None:
    """Raise an error unless the event, open or ended, belongs to a scope that the caller may see."""
    scope = await _scope_of_event(fleet, id_)
    if scope is None or not caller.can_see(scope):
        raise JournalEventNotFound(id_, caller.scopes)


def can_see_campaign(caller: Caller, campaign: Campaign) -> bool:
    """Return whether the caller may see all scopes of a campaign."""
    return not caller.scopes or all(caller.can_see(progress.scope) for progress in campaign.scopes)


def find_campaign(fleet: Fleet, caller: Caller, id_or_name: str) -> Campaign:
    """Find a campaign by its id or name; one that the caller may not see counts as not found."""
    return fleet.campaigns.find(id_or_name, partial(can_see_campaign, caller))


async def _scope_of_event(fleet: Fleet, id_: str) -> str | None:
    if (found := fleet.replica.find_event(id_)) is not None:
        return found[0].id
    rows = await fleet.journal.query(JournalQuery(event=id_.upper(), limit=1))
    return rows[0].key.id if rows else None
