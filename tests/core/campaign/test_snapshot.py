"""Snapshots: what the planner reads of a stored scope."""

from datetime import timedelta

import msgspec

from forewarn.core.campaign.plan_input import plan_scopes
from forewarn.core.campaign.snapshot import (
    RosterSnapshot,
    ScopeSnapshot,
    TraitsSnapshot,
    VmSnapshot,
)
from forewarn.core.campaign.spec import CampaignSpec, Selection
from forewarn.core.event import EventType
from forewarn.core.operations import hold
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.schedule import schedule
from forewarn.core.scope import Hold, Scope
from forewarn.core.vm import Address, Traits
from tests.core.builders import NOW, a_request, a_scope, a_vm, saved_scope

CONTEXT = RuleContext(policy=EMULATOR)


def a_full_scope() -> Scope:
    """Return a scope with a hold, an event, tags and everything that a snapshot leaves out."""
    vm = a_vm(
        "v0",
        update_domain=2,
        host="hv-0",
        addresses=(Address(ip="10.0.0.4"),),
        traits=Traits(zone="1", tags={"a": "1"}),
    )
    scope = a_scope([vm, a_vm("v1")], traits=Traits(tags={"b": "2"}), scale_set="set")
    scope = saved_scope(schedule(scope, a_request("v0", duration=timedelta(minutes=3)), CONTEXT, now=NOW))
    return saved_scope(hold(scope, by="ann", reason="audit", now=NOW))


def snapshot_of(scope: Scope) -> ScopeSnapshot:
    return msgspec.json.decode(msgspec.json.encode(scope), type=ScopeSnapshot)


def test_snapshot_has_vms_tags_events_and_hold_of_a_stored_scope() -> None:
    scope = a_full_scope()
    assert snapshot_of(scope) == ScopeSnapshot(
        id="web",
        roster=RosterSnapshot(
            (VmSnapshot("v0", 2, "hv-0", TraitsSnapshot({"a": "1"})), VmSnapshot("v1", 0, None, TraitsSnapshot()))
        ),
        traits=TraitsSnapshot({"b": "2"}),
        events=scope.events,
        hold=Hold(by="ann", at=NOW, reason="audit"),
    )


def test_plan_has_the_same_input_from_a_snapshot_as_from_the_scope() -> None:
    scope = a_full_scope()
    for selection in (
        Selection(all=True),
        Selection(tags={"a": "1", "b": "2"}),
        Selection(all=True, exclude_tags={"a": "1"}),
    ):
        spec = CampaignSpec(name="kernel", type=EventType.REBOOT, selection=selection)
        of_scope, of_snapshot = (
            list(plan_scopes([value], spec, CONTEXT, now=NOW)) for value in (scope, snapshot_of(scope))
        )
        assert of_snapshot == of_scope
