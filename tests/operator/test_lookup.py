"""Lookup of VMs and events that the caller may see; everything else is not found."""

import pytest

from forewarn.core.access import Role
from forewarn.core.event import EventType
from forewarn.fleet.errors import AmbiguousVm, CampaignNotFound, VmNotFound
from forewarn.operator.auth import Caller
from forewarn.operator.errors import JournalEventNotFound, ScopeNotAllowed, TokenVmNotFound
from forewarn.operator.lookup import can_see_campaign, check_event, find_campaign, find_vm
from tests.core.sample_scopes import schedule_request, scope, vm
from tests.fleet.campaign.campaigns import campaign_spec, start_campaign
from tests.fleet.fleets import run_fleet

SCOPES = (scope("web", vm("web-0"), vm("same")), scope("db", vm("db-0"), vm("same")), scope("web-2", vm("same")))
ALL = Caller(token="tk_ann", name="ann", role=Role.ADMIN, scopes=())
WEB = Caller(token="tk_ci", name="ci", role=Role.OPERATOR, scopes=("web",))


async def test_bare_name_is_looked_for_among_the_vms_that_the_caller_may_see() -> None:
    async with run_fleet(*SCOPES) as fleet:
        assert find_vm(fleet, ALL, "DB-0")[1].name == "db-0"
        assert find_vm(fleet, WEB, "same")[0].id == "web"
        with pytest.raises(AmbiguousVm) as ambiguous:
            find_vm(fleet, Caller(token="tk_ci", name="ci", role=Role.VIEWER, scopes=("web*",)), "same")
        assert ambiguous.value.candidates == ("web/same", "web-2/same")
        with pytest.raises(TokenVmNotFound):
            find_vm(fleet, WEB, "db-0")
        with pytest.raises(VmNotFound) as missing:
            find_vm(fleet, ALL, "nothing")
        assert not isinstance(missing.value, TokenVmNotFound)


async def test_scope_named_in_full_is_refused_whether_it_exists_or_not() -> None:
    async with run_fleet(*SCOPES) as fleet:
        for name in ("db/db-0", "nothing/db-0"):
            with pytest.raises(ScopeNotAllowed):
                find_vm(fleet, WEB, name)
        assert find_vm(fleet, WEB, "web/same")[0].id == "web"


async def test_event_is_known_while_it_is_open_and_after_it_has_ended() -> None:
    async with run_fleet(*SCOPES) as fleet:
        ((_, id_),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "db-0"))
        await check_event(fleet, ALL, id_.lower())
        await fleet.events.cancel(id_, by="test")
        await check_event(fleet, ALL, id_.lower())
        for caller, event in ((WEB, id_), (ALL, "0F0E0D0C-0B0A-4908-8706-050403020100")):
            with pytest.raises(JournalEventNotFound):
                await check_event(fleet, caller, event)


async def test_campaign_is_seen_by_those_who_see_all_its_scopes() -> None:
    async with run_fleet(*SCOPES) as fleet:
        campaign = await start_campaign(fleet, campaign_spec())
        every = Caller(token="tk_ci", name="ci", role=Role.VIEWER, scopes=("web*", "db"))
        assert [can_see_campaign(caller, campaign) for caller in (ALL, every, WEB)] == [True, True, False]
        assert find_campaign(fleet, every, "kernel").id == campaign.id
        with pytest.raises(CampaignNotFound):
            find_campaign(fleet, WEB, "kernel")
