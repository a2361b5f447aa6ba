"""Tests of the state of a scenario on the core: clock, scopes, VMs, events, ids and new work."""

from datetime import timedelta

import pytest

from forewarn.core.change import Change
from forewarn.core.errors import ResourceExists, ScopeVmNotFound
from forewarn.core.event import EventType, Source
from forewarn.core.inventory import add_vm
from forewarn.core.operations import fail
from forewarn.core.schedule import schedule
from forewarn.core.scope import Scope
from forewarn.platform.port import Work
from forewarn.testing.scenario import InvalidCommand
from forewarn.testing.scenario.core_state import START_TIME, CoreState, guid
from tests.core.sample_scopes import schedule_request, scope, vm

NEVER = "11111111-2222-3333-4444-555555555555"


def state_with(*scopes: Scope) -> CoreState:
    state = CoreState()
    for each in scopes:
        state.save(each.id, Change(each, (), None))
    return state


def web_and_db() -> CoreState:
    return state_with(scope("web", vm("web-0"), vm("shared")), scope("db", vm("db-0"), vm("shared")))


def schedule_reboot(state: CoreState, scope_id: str, name: str) -> str:
    request = schedule_request(EventType.REBOOT, name)
    (event,) = state.apply(scope_id, lambda value: schedule(value, request, state.context, now=state.now), named=[name])
    return event


def fail_vm(state: CoreState, scope_id: str, name: str) -> str:
    request = fail((name,), request=guid("request"), by="platform", kind=EventType.REBOOT)
    (event,) = state.apply(scope_id, lambda value: schedule(value, request, state.context, now=state.now), named=[name])
    return event


def test_clock_starts_at_ten_and_moves_both_ways() -> None:
    state = CoreState()
    assert (START_TIME, state.now) == (timedelta(hours=10), state.names.moment(timedelta(hours=10)))
    state.set_clock(timedelta(hours=12))
    state.set_clock(timedelta(hours=9))
    assert state.now == state.names.moment(timedelta(hours=9))


def test_vm_is_found_by_its_name_or_with_its_scope() -> None:
    state = web_and_db()
    assert [state.find("db-0"), state.find("WEB-0"), state.find("web/shared")] == [
        ("db", "db-0"),
        ("web", "web-0"),
        ("web", "shared"),
    ]


def test_ambiguous_vm_and_unknown_scope_are_invalid() -> None:
    state = web_and_db()
    with pytest.raises(InvalidCommand, match="several scopes have a VM of this name; write scope/name: shared"):
        state.find("shared")
    with pytest.raises(InvalidCommand, match="unknown scope: shop"):
        state.find("shop/web-0")
    with pytest.raises(InvalidCommand, match="unknown scope: shop"):
        state.scope("shop")


def test_unknown_vm_is_not_found_in_the_newest_scope() -> None:
    with pytest.raises(ScopeVmNotFound) as caught:
        web_and_db().find("web-9")
    assert str(caught.value) == "scope db has no VM web-9"


def test_state_without_scopes_has_no_newest_scope() -> None:
    state = CoreState()
    for find in (state.newest_scope, lambda: state.find("web-0"), lambda: state.scope_of_event(NEVER)):
        with pytest.raises(InvalidCommand, match="no scope defined yet"):
            find()


def test_scope_of_an_unknown_event_is_the_newest() -> None:
    state = web_and_db()
    event = schedule_reboot(state, "web", "web-0")
    assert (state.newest_scope(), state.scope_of_event(event), state.scope_of_event(NEVER)) == ("db", "web", "db")


def test_change_is_reported_as_facts() -> None:
    state = state_with(scope("web", vm("web-0")))
    event = schedule_reboot(state, "web", "web-0")
    assert state.facts == ["E1 Scheduled not_before 10:15 by operator:test, incarnation 2"]
    assert (state.event("E1"), state.event(event)) == (event, event)
    assert [entry.event for entry in state.journals["web"]] == [event]


def test_label_without_an_event_is_invalid() -> None:
    with pytest.raises(InvalidCommand, match="no event has this label yet: E1"):
        CoreState().event("E1")


def test_rules_are_applied_to_all_scopes_or_to_none() -> None:
    state = web_and_db()
    before = dict(state.scopes)
    new = {"web": vm("web-1"), "db": vm("db-0")}
    with pytest.raises(ResourceExists):
        state.apply_all(
            {
                id_: (lambda value, each=each: add_vm(value, each, by="operator", now=state.now))  # type: ignore[misc]
                for id_, each in new.items()
            }
        )
    assert (state.scopes, state.facts) == (before, [])


def test_removed_scope_is_forgotten() -> None:
    state = web_and_db()
    state.save("db", Change(None, (), None))
    assert (list(state.scopes), state.newest_scope()) == (["web"], "web")


def test_new_work_is_reported_once() -> None:
    state = state_with(scope("web", vm("web-0", host="hv-0")))
    event = fail_vm(state, "web", "web-0")
    state.facts = []
    state.report_new_work()
    state.report_new_work()
    assert state.facts == ["impact E1 web-0"]
    assert [(found.id, impact.vm) for found, impact in state.work_of("web")] == [(event, "web-0")]


def test_platform_gets_the_work_with_vm_and_host() -> None:
    state = state_with(scope("web", vm("web-0", host="hv-0")))
    event = fail_vm(state, "web", "web-0")
    shown = state.scopes["web"].event(event)
    assert state.platform_work("web", event, "web-0") == Work(
        id=f"{event}/web-0",
        attempt=0,
        event=event,
        type=EventType.REBOOT,
        scope="web",
        vm="web-0",
        vm_id=scope("web", vm("web-0")).vm("web-0").vm_id,
        host="hv-0",
        duration=shown.duration,
        description=shown.description,
    )
    assert shown.source is Source.PLATFORM


def test_tick_applies_time_to_every_scope() -> None:
    state = web_and_db()
    schedule_reboot(state, "web", "web-0")
    schedule_reboot(state, "db", "db-0")
    state.facts = []
    state.set_clock(timedelta(hours=10, minutes=15))
    state.tick()
    assert state.facts == ["E1 Started (due), incarnation 3", "E2 Started (due), incarnation 3"]


def test_request_ids_repeat_only_for_the_same_name() -> None:
    state = CoreState()
    assert state.request_id("r1") == state.request_id("r1") == guid("request", "r1")
    assert state.request_id(None) != state.request_id(None)


def test_epochs_are_numbered_and_ids_depend_only_on_names() -> None:
    state = CoreState()
    assert [state.new_epoch(), state.new_epoch()] == ["epoch1", "epoch2"]
    assert guid("vm", "web", "web-0") == guid("vm", "web", "web-0") != guid("vm", "web", "web-1")
