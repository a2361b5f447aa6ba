"""Which VM, event or campaign is meant, by somebody who may not see all: what is of others is as if it were not there.

Whoever names a scope in full is told that it is none of theirs, whether there is such a scope or not.
"""

from functools import partial

from forewarn.core.campaign.record import Campaign
from forewarn.core.vm import Vm
from forewarn.fleet.errors import AmbiguousVm, VmNotFound
from forewarn.fleet.replica import ScopeView
from forewarn.fleet.service import Fleet
from forewarn.operator.access import Caller
from forewarn.operator.errors import NeverKnown, NotSeen
from forewarn.store.port import JournalQuery


def find_vm(fleet: Fleet, caller: Caller, name: str) -> tuple[ScopeView, Vm]:
    """Find a VM by `scope/name`, or by its bare name where only one that the caller may see bears it."""
    scope, slash, _ = name.rpartition("/")
    if slash:
        caller.check(scope)
        return fleet.replica.find(name)
    try:
        return fleet.replica.find(_full_name(fleet, caller, name))
    except VmNotFound:
        raise (NotSeen(name, caller.name, caller.scopes) if caller.scopes else VmNotFound(name)) from None


def _full_name(fleet: Fleet, caller: Caller, name: str) -> str:
    try:
        view, vm = fleet.replica.find(name)
    except AmbiguousVm as error:
        several = error.candidates
    else:
        several = (f"{view.id}/{vm.name}",)
    seen = tuple(full for full in several if caller.sees(full.rpartition("/")[0]))
    if len(seen) > 1:
        raise AmbiguousVm(name, seen)
    if not seen:
        raise VmNotFound(name)
    return seen[0]


async def check_event(fleet: Fleet, caller: Caller, id_: str) -> None:
    """Refuse an event that there never was, open or ended, in a scope that the caller may see."""
    home = await _home(fleet, id_)
    if home is None or not caller.sees(home):
        raise NeverKnown(id_, caller.scopes)


def sees_campaign(caller: Caller, campaign: Campaign) -> bool:
    """Tell whether all scopes of a campaign are among those that the token is for."""
    return not caller.scopes or all(caller.sees(progress.scope) for progress in campaign.scopes)


def find_campaign(fleet: Fleet, caller: Caller, said: str) -> Campaign:
    """Find a campaign by its id or name; one that the caller may not see is as if it were not there."""
    return fleet.campaigns.find(said, partial(sees_campaign, caller))


async def _home(fleet: Fleet, id_: str) -> str | None:
    if (found := fleet.replica.find_event(id_)) is not None:
        return found[0].id
    rows = await fleet.read_journal(JournalQuery(event=id_.upper(), limit=1))
    return rows[0].key.id if rows else None
