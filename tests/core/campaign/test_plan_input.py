"""Input of the planner: waves of the selected VMs, and the impacts that are already expected."""

from datetime import timedelta

from forewarn.core.campaign.limits import Counts
from forewarn.core.campaign.plan_input import EventLoad, PlanScope, WaveGroup, count_selected, plan_scopes
from forewarn.core.campaign.spec import CampaignPolicy, CampaignSpec, Selection
from forewarn.core.event import EventType
from forewarn.core.impact import Failed
from forewarn.core.impact_lifecycle import begin, settle
from forewarn.core.operations import hold
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.schedule import schedule
from forewarn.core.scope import Scope
from tests.core.builders import NOW, a_request, a_scope, a_vm, saved_scope

MINUTE = timedelta(minutes=1)
CONTEXT = RuleContext(policy=EMULATOR)


def inputs(*scopes: Scope, selection: Selection | None = None, now: timedelta = timedelta(0)) -> list[PlanScope]:
    spec = CampaignSpec(
        name="kernel",
        type=EventType.REBOOT,
        selection=selection or Selection(all=True),
        policy=CampaignPolicy(expected=5 * MINUTE),
    )
    return list(plan_scopes(scopes, spec, CONTEXT, now=NOW + now))


def test_vms_of_an_update_domain_are_one_wave_in_the_order_of_domains() -> None:
    scope = a_scope(
        [
            a_vm("v0", update_domain=2, host="hv-1"),
            a_vm("v1", update_domain=0),
            a_vm("v2", update_domain=2, host="hv-0"),
            a_vm("v3", update_domain=2, host="hv-1"),
        ]
    )
    assert inputs(scope) == [
        PlanScope("web", (WaveGroup(0, ("v1",), ("web/0",)), WaveGroup(2, ("v0", "v2", "v3"), ("hv-1", "hv-0"))))
    ]


def test_scope_without_selected_vms_matters_by_its_events() -> None:
    only_a = Selection(scopes=("a",))
    vms = {id_: [a_vm(f"{id_}-0", host="hv-0")] for id_ in "abc"}
    ask = a_request("b-0", notice=20 * MINUTE, duration=10 * MINUTE)
    busy = saved_scope(schedule(a_scope(vms["b"], id="b"), ask, CONTEXT, now=NOW))
    found = inputs(a_scope(vms["a"], id="a"), busy, a_scope(vms["c"], id="c"), selection=only_a)
    assert found == [
        PlanScope("a", (WaveGroup(0, ("a-0",), ("hv-0",)),)),
        PlanScope("b", (), (EventLoad(NOW + 20 * MINUTE, NOW + 30 * MINUTE, ("hv-0",), 1),)),
    ]


def test_event_without_a_duration_is_expected_to_take_as_long_as_a_wave() -> None:
    scope = saved_scope(schedule(a_scope([a_vm("v0")]), a_request("v0", failure=True), CONTEXT, now=NOW))
    assert inputs(scope)[0].busy == (EventLoad(NOW, NOW + 5 * MINUTE, ("web/0",), 1),)


def test_event_that_should_be_over_is_expected_to_take_as_long_again() -> None:
    ask = a_request("v0", failure=True, duration=2 * MINUTE)
    scope = saved_scope(schedule(a_scope([a_vm("v0")]), ask, CONTEXT, now=NOW))
    assert inputs(scope, now=MINUTE)[0].busy[0].end == NOW + 2 * MINUTE
    assert inputs(scope, now=2 * MINUTE)[0].busy[0].end == NOW + 4 * MINUTE


def test_overdue_event_is_expected_to_start_now() -> None:
    held = saved_scope(hold(a_scope([a_vm("v0")]), by="ann", reason="audit", now=NOW))
    scope = saved_scope(schedule(held, a_request("v0", notice=MINUTE), CONTEXT, now=NOW))
    (found,) = inputs(scope, now=30 * MINUTE)
    assert found.busy == (EventLoad(NOW + 30 * MINUTE, NOW + 35 * MINUTE, ("web/0",), 1),)
    assert found.hold_text == "ann: audit"


def test_scope_with_failed_maintenance_is_stuck() -> None:
    scope = saved_scope(schedule(a_scope([a_vm("v0")]), a_request("v0", notice=timedelta(0)), CONTEXT, now=NOW))
    id_ = scope.events[0].id
    scope = saved_scope(begin(scope, id_, "v0", now=NOW))
    assert not inputs(scope)[0].stuck
    assert inputs(saved_scope(settle(scope, id_, "v0", Failed("no power"), CONTEXT, now=NOW)))[0].stuck


def test_exclusion_is_reported_with_the_first_matching_scope() -> None:
    fleet = [a_scope([a_vm(f"{id_}-0", host="hv-0")], id=id_) for id_ in "ab"]
    found = inputs(*fleet, selection=Selection(all=True, exclude_hosts=("hv-0",)))
    assert found == [PlanScope("a", excluded=(("host", "hv-0"),))]


def test_selected_hosts_are_counted_once() -> None:
    fleet = [a_scope([a_vm(f"{id_}-{n}", host=f"hv-{n}") for n in range(2)], id=id_) for id_ in "ab"]
    assert count_selected([*inputs(*fleet), PlanScope("c")]) == Counts(2, 2, 4)
