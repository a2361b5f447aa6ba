"""Tests of commands in a running service: their facts, and errors for commands that a service cannot execute."""

import itertools
import time
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace

import msgspec
import pytest

from forewarn.core.errors import ScopeEventNotFound
from forewarn.core.scope import ScopeKind
from forewarn.testing.scenario import (
    CoreBackend,
    InvalidCommand,
    LiveBackend,
    ScenarioError,
    commands,
    live_commands,
    parse,
    run_script,
)
from forewarn.testing.scenario.grammar import COMMAND_SYNTAX
from forewarn.testing.scenario.live_commands import run_command, wait_for_port
from forewarn.testing.scenario.live_state import LiveState
from forewarn.testing.scenario.render import Names
from forewarn.testing.service import Forewarn
from tests.testing.scenario.backends import NO_FLEET, render, run_on_core, run_on_service

WEB = "platform automatic\nscope web availability-set\nvm web-0 domain 0\nvm web-1 domain 1\n"
NEVER = "11111111-2222-3333-4444-555555555555"


@pytest.fixture(scope="module")
def service() -> Iterator[Forewarn]:
    with Forewarn(NO_FLEET) as running:
        yield running


@pytest.fixture
def web(service: Forewarn) -> Iterator[LiveState]:
    """A scenario that has created the scope `web` with the VMs `web-0` and `web-1`."""
    state = LiveState(service.api, Names())
    run_command(commands.AddScope(scope="web", kind=ScopeKind.AVAILABILITY_SET), state)
    run_command(commands.AddVms(names=("web-0", "web-1")), state)
    state.new_facts()
    yield state
    state.clean_up()


def test_live_backend_implements_every_command() -> None:
    base = run_command.dispatch(object)
    of_the_backend = {
        commands.SetPolicy,
        commands.UsePlatform,
        commands.Handler,
        commands.Tick,
        commands.Wait,
        commands.Expect,
    }
    assert {
        form.command for form in COMMAND_SYNTAX.values() if run_command.dispatch(form.command) is base
    } == of_the_backend


def test_command_of_the_backend_itself_has_no_function(web: LiveState) -> None:
    with pytest.raises(TypeError, match="Wait is not for this backend"):
        run_command(commands.Wait(time=timedelta(minutes=1)), web)


def test_inventory_is_changed_through_the_api(web: LiveState) -> None:
    run_command(commands.ChangeVm(vm="web-1", domain=3, host="hv-1"), web)
    run_command(commands.RemoveVm(vm="web-0"), web)
    assert [(vm.name, vm.update_domain, vm.host) for vm in web.api.vms(scope="web")] == [("web-1", 3, "hv-1")]
    run_command(commands.RemoveScope(scope="web", force=True), web)
    assert list(web.api.scopes()) == []


def test_document_is_read_as_the_vm(web: LiveState) -> None:
    assert run_command(commands.Restart(vm="web-0"), web) == []
    first, event = run_command(commands.Document(vm="web-1"), web)
    assert first.startswith("epoch ")
    assert first.endswith(", incarnation 2")
    assert event.startswith("E1 Scheduled Reboot web-0 from User not_before ")


def test_repeated_request_is_known(web: LiveState) -> None:
    run_command(commands.Restart(vm="web-0", request="once"), web)
    web.new_facts()
    assert run_command(commands.Restart(vm="web-0", request="once"), web) == ["E1 is known"]


def test_vm_cannot_approve_an_unknown_event(web: LiveState) -> None:
    with pytest.raises(ScopeEventNotFound, match=NEVER):
        run_command(commands.Approve(vm="web-0", events=(NEVER,)), web)


def test_campaign_of_an_event_is_invalid(web: LiveState) -> None:
    (step,) = parse("schedule Reboot web-0 campaign kernel").steps
    with pytest.raises(InvalidCommand, match="a campaign creates its events itself: campaign"):
        run_command(step.command, web)


def test_vm_of_a_listening_service_gets_a_port(web: LiveState) -> None:
    vm = wait_for_port(web, web.find("web-0"))
    assert vm.guest_url is not None
    assert wait_for_port(web, vm) is vm


def test_faults_give_the_same_facts_as_on_the_core() -> None:
    text = (
        f"{WEB}fault 410 web-0 times 1 →\nfault reset times 1 →\nquery web-0 →\nrestart web-0 →\n"
        "fault slow web-0 of 1s for 1m →\nclear faults →\napprove E1 by web-0 →\n"
    )
    assert run_on_service(text) == run_on_core(text)


def test_demonstration_fleet_gives_the_same_facts_and_stays() -> None:
    text = (
        "platform automatic\nfleet demonstration\nhandler batch_0\n"
        "schedule Reboot web-0 web-1 →\nredeploy FrontEnd_IN_0 →\nevict batch_0 →\nfail db-0 →\n"
        "expect E3 Completed within 1h →\n"
        "wait 1h →\ndocument web-5 →\n"
    )
    script = parse(text)
    with Forewarn() as service:
        with LiveBackend(service.api) as backend:
            by_service = render(script, list(run_script(script, backend)))
        assert {scope.id for scope in service.api.scopes()} == {"db-0", "web", "batch", "shop"}
    assert by_service == render(script, list(run_script(script, CoreBackend())))


UNSUPPORTED = {
    "work": ("scope a standalone\nvm x\nfail x\nbegin E1", "E1", "the platform of a service carries out its work"),
    "state": ("scope a standalone\nstate a", "a", "a service does not show this"),
    "outage": ("outage 1d", "outage", "a running service cannot do this"),
    "unknown scope": ("query a/x", "query", "unknown scope"),
    "no scope": ("vm x", "vm", "no scope defined yet"),
    "label": ("scope a standalone\ncancel E1", "E1", "no event has this label yet"),
    "ambiguous VM": ("scope a standalone\nvm x\nscope b standalone\nvm x\nquery x", "x", "several scopes have a VM"),
    "fleet": ("fleet demonstration", "demonstration", "the service has no scope db-0"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_error_names_the_unsupported_word(case: str, service: Forewarn) -> None:
    text, word, problem = UNSUPPORTED[case]
    with LiveBackend(service.api) as backend, pytest.raises(ScenarioError) as caught:
        list(run_script(parse(text), backend))
    assert caught.value.problem.startswith(problem)
    assert (caught.value.line, caught.value.word) == (len(text.splitlines()), word)
    assert list(service.api.scopes()) == []


def test_port_of_a_new_vm_is_awaited_however_slow_the_machine_is(
    web: LiveState, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm = web.find("web-0")
    hours = itertools.count(step=3600.0)
    # The service runs in this process, too: only the scenario's clock jumps.
    monkeypatch.setattr(live_commands, "time", SimpleNamespace(sleep=time.sleep, monotonic=lambda: next(hours)))
    found = wait_for_port(web, msgspec.structs.replace(vm, guest_url=None))
    assert found.guest_url is not None
    assert found == wait_for_port(web, vm)


def test_vm_without_a_port_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_commands, "PORT_CHECKS", 2)
    with Forewarn(["a-0"], settings={"listen": "none"}) as service:
        vm = next(service.api.vms())
        with pytest.raises(InvalidCommand, match="start it with --listen"):
            wait_for_port(LiveState(service.api, Names()), vm)
