"""The load in impact: what the events of scopes count, and what is about to start."""

from datetime import timedelta

import msgspec
import pytest

from forewarn.core.campaign.actions import (
    ClearWave,
)
from forewarn.core.campaign.limits import Counts, Load
from forewarn.core.campaign.load import (
    FleetLoad,
    has_active_work,
    has_stuck_work,
    load_of_event,
    load_of_vms,
    scope_load,
)
from forewarn.core.event import EventType
from forewarn.core.impact import ImpactState
from forewarn.core.schedule import schedule
from forewarn.core.scope import Scope
from tests.core.campaign.rollout_driver import CONDITIONS, RolloutDriver, web
from tests.core.sample_scopes import TEN, schedule_request, scope, vm

MINUTE = timedelta(minutes=1)


def test_reserved_load_counts_until_the_scope_shows_the_start() -> None:
    impacted, extra = FleetLoad(), Load("b", ("hv-9",), 1)
    hand = RolloutDriver(web())
    hand.announce_next()
    (event,) = hand.scopes["web"].events
    impacted.reserve(event.id, Load("web", ("web-hv-0",), 1))
    assert impacted.plus(extra) == Counts(2, 2, 2)
    hand.now = TEN + 15 * MINUTE
    hand.clear(ClearWave("web", 1, (event.id,), (Load("web", ("web-hv-0",), 1),)))
    assert impacted.update("web", hand.scopes["web"])
    impacted.release([event.id])
    assert impacted.plus(extra) == Counts(2, 2, 2)
    assert impacted.update("web", None)
    assert not impacted.update("web", None)
    assert impacted.plus(extra) == Counts(1, 1, 1)


def test_vm_whose_impact_is_done_no_longer_counts_as_load() -> None:
    hand = RolloutDriver(scope("web", vm("web-0", host="hv-0"), vm("web-1", host="hv-0")))
    hand.announce_next()
    (clear,) = hand.decide(TEN + 15 * MINUTE)
    hand.clear(clear)
    (event,) = hand.scopes["web"].events
    first, second = event.impacts
    done = msgspec.structs.replace(first, state=ImpactState.DONE)
    half = msgspec.structs.replace(event, impacts=(done, second))
    impacted, nothing = FleetLoad(), Load("web", ("hv-0",), 0)
    impacted.update("web", hand.scopes["web"])
    assert impacted.plus(nothing) == Counts(1, 1, 2)
    impacted.update("web", msgspec.structs.replace(hand.scopes["web"], events=(half,)))
    assert impacted.plus(nothing) == Counts(1, 1, 1)


def test_load_of_vms_counts_each_host_once_and_unknown_hosts_by_update_domain() -> None:
    vms = [vm("a", host="hv-0"), vm("b", host="hv-0"), vm("c", domain=1), vm("d", domain=1), vm("e", domain=2)]
    assert load_of_vms("web", vms) == Load("web", ("hv-0", "web/1", "web/2"), 5)


def started(*, host: str | None = "hv-0") -> Scope:
    """Return a scope with a hardware failure under both of its VMs."""
    value = scope("web", vm("web-0", host=host), vm("web-1", host=host))
    ask = schedule_request(EventType.REBOOT, "web-0", "web-1", failure=True)
    changed = schedule(value, ask, CONDITIONS, now=TEN).scope
    assert changed is not None
    return changed


def with_states(value: Scope, *states: ImpactState) -> Scope:
    (event,) = value.events
    impacts = tuple(
        msgspec.structs.replace(impact, state=state) for impact, state in zip(event.impacts, states, strict=True)
    )
    return msgspec.structs.replace(value, events=(msgspec.structs.replace(event, impacts=impacts),))


def test_load_of_an_event_is_its_vms_on_its_host() -> None:
    assert load_of_event("web", started().events[0]) == Load("web", ("hv-0",), 2)
    assert load_of_event("web", started(host=None).events[0]) == Load("web", ("web/0",), 2)


@pytest.mark.parametrize(
    ("states", "vms", "active", "stuck"),
    [
        ((ImpactState.PENDING, ImpactState.BEGUN), 2, True, False),
        ((ImpactState.RETRY, ImpactState.DONE), 1, True, False),
        ((ImpactState.FAILED, ImpactState.UNKNOWN), 2, False, True),
        ((ImpactState.FAILED, ImpactState.GIVEN_UP), 1, False, True),
        ((ImpactState.DONE, ImpactState.GONE), 0, False, False),
    ],
)
def test_work_that_is_not_settled_is_in_impact(
    states: tuple[ImpactState, ImpactState], vms: int, active: bool, stuck: bool
) -> None:
    value = with_states(started(), *states)
    assert scope_load(value) == (Load("web", ("hv-0",), vms) if vms else None)
    assert (has_active_work(value), has_stuck_work(value.events[0])) == (active, stuck)


def test_scheduled_event_is_not_in_impact() -> None:
    value = schedule(web(), schedule_request(EventType.REBOOT, "web-0"), CONDITIONS, now=TEN).scope
    assert value is not None
    assert (scope_load(value), has_active_work(value)) == (None, False)


def test_fleet_load_reports_whether_a_scope_has_changed_it() -> None:
    load = FleetLoad()
    changes = [load.update("web", value) for value in (web(), started(), started(), web(), None)]
    assert changes == [False, True, False, True, False]


def test_event_is_reserved_once_and_released_once() -> None:
    load, reserved = FleetLoad(), Load("web", ("hv-0",), 2)
    for _ in range(2):
        load.reserve("E1", reserved)
    load.update("db", msgspec.structs.replace(started(), id="db"))
    assert list(load.loads()) == [Load("db", ("hv-0",), 2), reserved]
    assert load.plus(Load("b", ("hv-9",), 1)) == Counts(3, 2, 5)
    load.release(["E1", "E1", "unknown"])
    assert load.plus(Load("b", ("hv-9",), 1)) == Counts(2, 2, 3)
