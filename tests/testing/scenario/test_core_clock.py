"""Tests of the simulated clock: it advances from change to change, and the platform does its work on the way."""

from datetime import datetime, timedelta

from forewarn.core.change import Change
from forewarn.core.event import EventType
from forewarn.core.schedule import schedule
from forewarn.testing.scenario.core_campaigns import CoreCampaigns
from forewarn.testing.scenario.core_clock import SimulatedClock
from forewarn.testing.scenario.core_state import CoreState
from tests.core.sample_scopes import schedule_request, scope, vm

MINUTE = timedelta(minutes=1)


def clock_with_a_reboot(*, lasting: timedelta | None = None) -> tuple[CoreState, SimulatedClock]:
    """Return a clock whose state has a Reboot of web-0 at 10:15; `lasting` makes the platform automatic."""
    state = CoreState()
    clock = SimulatedClock(state, CoreCampaigns(state))
    if lasting is not None:
        clock.use_automatic_platform(lasting)
    state.save("web", Change(scope("web", vm("web-0", host="hv-0"), vm("web-1", domain=1, host="hv-1")), (), None))
    request = schedule_request(EventType.REBOOT, "web-0")
    state.apply("web", lambda value: schedule(value, request, state.context, now=state.now), named=["web-0"])
    state.facts = []
    return state, clock


def at(state: CoreState, minutes: int) -> datetime:
    return state.names.moment(timedelta(hours=10, minutes=minutes))


def test_clock_without_changes_moves_to_the_limit_and_never_back() -> None:
    state = CoreState()
    clock = SimulatedClock(state, CoreCampaigns(state))
    assert not clock.advance(at(state, 30))
    assert not clock.advance(at(state, 10))
    assert (state.now, state.facts) == (at(state, 30), [])


def test_advance_stops_at_the_next_change() -> None:
    state, clock = clock_with_a_reboot()
    assert clock.advance(at(state, 60))
    assert (state.now, state.facts) == (at(state, 15), ["E1 Started (due), incarnation 3"])
    assert not clock.advance(at(state, 60))
    assert state.now == at(state, 60)


def test_change_after_the_limit_does_not_happen() -> None:
    state, clock = clock_with_a_reboot()
    clock.advance_to(at(state, 14))
    assert (state.now, state.facts) == (at(state, 14), [])


def test_platform_is_automatic_on_request() -> None:
    state = CoreState()
    clock = SimulatedClock(state, CoreCampaigns(state))
    assert not clock.is_automatic
    clock.use_automatic_platform(None)
    assert clock.is_automatic


def test_automatic_platform_begins_and_finishes_its_work() -> None:
    state, clock = clock_with_a_reboot(lasting=5 * MINUTE)
    clock.advance_to(at(state, 19))
    assert state.facts == ["E1 Started (due), incarnation 3", "E1 on web-0 begun"]
    state.facts = []
    clock.advance_to(at(state, 20))
    assert state.facts == ["E1 on web-0 done after 5m", "E1 Completed after 5m, incarnation 4"]
    assert state.now == at(state, 20)


def test_work_of_a_removed_scope_is_dropped() -> None:
    state, clock = clock_with_a_reboot(lasting=5 * MINUTE)
    clock.advance_to(at(state, 16))
    state.save("web", Change(None, (), None))
    state.facts = []
    clock.advance_to(at(state, 60))
    assert (state.now, state.facts) == (at(state, 60), [])


def test_begin_work_starts_only_what_is_possible_now() -> None:
    state, clock = clock_with_a_reboot(lasting=5 * MINUTE)
    clock.begin_work()
    assert state.facts == []
