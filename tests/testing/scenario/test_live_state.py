"""Tests of a scenario's state in a running service: its names there, new facts, and clean-up."""

from collections.abc import Iterator

import pytest

from forewarn.api import v1
from forewarn.core.errors import ResourceExists, ScopeVmNotFound
from forewarn.core.event import EventType
from forewarn.core.journal import EntryKind
from forewarn.core.scope import ScopeKind
from forewarn.testing.scenario import InvalidCommand, LiveBackend, parse, run_script
from forewarn.testing.scenario.live_state import LiveState
from forewarn.testing.scenario.render import Names
from forewarn.testing.service import Forewarn
from tests.testing.scenario.backends import NO_FLEET, differing

WEB = "platform automatic\nscope web availability-set\nvm web-0 domain 0\nvm web-1 domain 1\n"


@pytest.fixture
def service() -> Iterator[Forewarn]:
    with Forewarn(NO_FLEET) as running:
        yield running


def add_scope(state: LiveState, name: str, *vms: str) -> None:
    state.add(v1.AddScope(id=name, kind=ScopeKind.AVAILABILITY_SET))
    for vm in vms:
        state.api.add_vm(v1.AddVm(name=vm, scope=state.scope(name)))


def schedule_reboot(state: LiveState, *vms: str) -> None:
    state.api.schedule(v1.ScheduleEvents(type=EventType.REBOOT, vms=vms))


def test_faults_and_holds_end_with_the_scenario() -> None:
    script = parse(f'{WEB}fault 500\nfault hang web-1 for 1d\nhold all "moving house"\n')
    with Forewarn(NO_FLEET) as service:
        with LiveBackend(service.api) as backend:
            assert differing(list(run_script(script, backend))) == []
            assert len(service.api.faults().faults) == 2
        assert list(service.api.faults().faults) == []
        assert service.api.holds().fleet is None


def test_journal_can_be_read_after_a_position() -> None:
    with Forewarn() as service:
        lines = list(service.api.journal())
        assert list(service.api.journal(after=lines[2].position)) == lines[3:]
        backwards = list(service.api.journal(newest_first=True, after=lines[2].position))
        assert backwards == [lines[1], lines[0]]


def test_scope_whose_name_is_in_use_gets_another_name_in_the_service(service: Forewarn) -> None:
    service.api.add_scope(v1.AddScope(id="web", kind=ScopeKind.STANDALONE))
    state = LiveState(service.api, Names())
    add_scope(state, "web", "web-0")
    assert (state.scope("web"), state.newest_scope(), state.find("web/web-0").scope) == ("web-2", "web-2", "web-2")
    assert state.new_facts() == ["web created", "web-0 added"]
    assert state.replace_ids("scope web-2 has no VM x") == "scope web has no VM x"
    state.clean_up()
    assert [scope.id for scope in service.api.scopes()] == ["web"]


def test_scope_of_the_scenario_can_be_added_once(service: Forewarn) -> None:
    state = LiveState(service.api, Names())
    add_scope(state, "web")
    with pytest.raises(ResourceExists, match="scope web"):
        add_scope(state, "web")


def test_adopted_scope_stays_after_the_clean_up(service: Forewarn) -> None:
    state = LiveState(service.api, Names())
    state.adopt(service.api.add_scope(v1.AddScope(id="web", kind=ScopeKind.STANDALONE)))
    state.clean_up()
    assert [scope.id for scope in service.api.scopes()] == ["web"]


def test_vm_is_found_by_its_name_or_with_its_scope(service: Forewarn) -> None:
    state = LiveState(service.api, Names())
    add_scope(state, "web", "web-0", "shared")
    add_scope(state, "db", "db-0", "shared")
    found = [state.find(name) for name in ("WEB-0", "db/shared")]
    assert [(vm.scope, vm.name) for vm in found] == [("web", "web-0"), ("db", "shared")]
    with pytest.raises(InvalidCommand, match="several scopes have a VM of this name; write scope/name: shared"):
        state.find("shared")
    with pytest.raises(InvalidCommand, match="unknown scope: shop"):
        state.find("shop/web-0")
    with pytest.raises(ScopeVmNotFound, match="scope db has no VM web-9"):
        state.find("web-9")


def test_unknown_names_are_invalid(service: Forewarn) -> None:
    state = LiveState(service.api, Names())
    with pytest.raises(InvalidCommand, match="no scope defined yet"):
        state.find("web-0")
    with pytest.raises(InvalidCommand, match="no event has this label yet: E1"):
        state.event("E1")
    with pytest.raises(InvalidCommand, match="unknown campaign: kernel"):
        state.campaign("kernel")


def test_facts_are_new_entries_of_the_scenarios_scopes(service: Forewarn) -> None:
    service.api.add_scope(v1.AddScope(id="other", kind=ScopeKind.STANDALONE))
    state = LiveState(service.api, Names())
    add_scope(state, "web", "web-0", "web-1")
    service.api.add_vm(v1.AddVm(name="x", scope="other"))
    assert state.new_facts(hidden=[EntryKind.VM_ADDED]) == ["web created"]
    schedule_reboot(state, "web/web-0")
    state.read_journal()
    (fact,) = state.new_facts()
    assert fact.startswith("E1 Scheduled web-0 not_before ")
    assert state.new_facts() == []


def test_vms_that_the_command_named_are_not_in_its_fact(service: Forewarn) -> None:
    state = LiveState(service.api, Names())
    add_scope(state, "web", "web-0")
    state.new_facts()
    schedule_reboot(state, "web/web-0")
    (fact,) = state.new_facts(["web-0"])
    assert fact.startswith("E1 Scheduled not_before ")


def test_removed_scope_is_forgotten(service: Forewarn) -> None:
    state = LiveState(service.api, Names())
    add_scope(state, "web")
    service.api.remove_scope("web", reason="not needed")
    assert len(state.new_facts()) == 2
    assert state.scopes == {}
