"""The campaign planner: a plan in a thread is the plan of the core, and travels wave by wave."""

import pytest

from forewarn.fleet.service import Fleet
from forewarn.operator import campaign_planner
from forewarn.operator.campaign_planner import CampaignPlanner
from forewarn.operator.errors import PlanFailed
from tests.core.sample_scopes import scope, vm, web_scope
from tests.fleet.campaign.campaigns import campaign_spec, plan_campaign
from tests.fleet.fleets import run_fleet


def planner(fleet: Fleet, *ids: str) -> CampaignPlanner:
    return CampaignPlanner(fleet, lambda: ids or ("db", "web"))


async def test_plan_is_that_of_the_core_and_saves_nothing() -> None:
    async with run_fleet(web_scope(), scope("db", vm("db-0"))) as fleet:
        encoded = await planner(fleet).plan(campaign_spec())
        expected = plan_campaign(fleet, campaign_spec())
        assert await encoded.decode() == expected
        assert (len(encoded.waves), encoded.summary.waves) == (len(expected.waves), ())
        assert all(not fleet.replica.scope(id_).events for id_ in ("web", "db"))


async def test_scope_that_is_gone_meanwhile_is_left_out() -> None:
    async with run_fleet(web_scope()) as fleet:
        decoded = await (await planner(fleet, "web", "gone").plan(campaign_spec())).decode()
        assert {wave.scope for wave in decoded.waves} == {"web"}


async def test_remarks_are_added_to_those_of_the_plan() -> None:
    async with run_fleet(web_scope()) as fleet:
        encoded = await planner(fleet, "web").plan(campaign_spec())
        more = encoded.with_remarks(["one", "two"])
        assert more.summary.remarks == (*encoded.summary.remarks, "one", "two")
        assert more.waves is encoded.waves


async def test_large_fleet_is_planned_in_a_process_and_its_death_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def dies(*_: object) -> None:
        raise EOFError

    monkeypatch.setattr(campaign_planner, "SMALL_FLEET_VMS", 1)
    monkeypatch.setattr(campaign_planner, "run_in_process", dies)
    async with run_fleet(web_scope()) as fleet:
        with pytest.raises(PlanFailed):
            await planner(fleet, "web").plan(campaign_spec())
