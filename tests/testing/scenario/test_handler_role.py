"""Tests of the handler role: a program acts as the handler, and the scenario waits for it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.api import v1
from forewarn.client import NotAllowed, ScheduledEvents
from forewarn.core.journal import EntryKind
from forewarn.core.scope import ScopeKind
from forewarn.testing.scenario import (
    LiveBackend,
    Scenario,
    commands,
    library_scenarios,
    parse,
    required_setup,
    run_script,
)
from forewarn.testing.scenario.handler_role import HandlerRole
from forewarn.testing.scenario.journal_watcher import JournalWatcher
from forewarn.testing.scenario.live_state import LiveState
from forewarn.testing.scenario.render import Names
from forewarn.testing.service import Forewarn
from tests.testing.scenario.backends import NO_FLEET, differing

GUARD = 60.0
PAUSE = 0.005
"""The poll interval of the handler, in seconds."""

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)

WEB = "platform automatic\nscope web availability-set\nvm web-0 domain 0\nvm web-1 domain 1\n"

RESTART = next(scenario for scenario in library_scenarios() if scenario.name == "user-restart")


class Handler:
    """A handler in a thread: it polls and, with `approves`, approves the events of its VM."""

    def __init__(self, *, approves: bool) -> None:
        self._approves = approves
        self._thread = threading.Thread(target=self._run)
        self._ended = threading.Event()
        self._polled = threading.Condition()
        self._polls = 0
        self.vm: v1.Vm | None = None
        self.approved: list[str] = []

    def start(self, vm: v1.Vm) -> None:
        self.vm = vm
        self._thread.start()
        self.catch_up()

    def catch_up(self) -> None:
        """Wait until a poll that begins after this call has been handled."""
        with self._polled:
            until = self._polls + 2
            assert self._polled.wait_for(lambda: self._polls >= until or self._ended.is_set(), GUARD)

    def has_time(self, began_at: float, timeout: float) -> bool:
        return time.monotonic() - began_at < timeout

    def end(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(GUARD)

    def _run(self) -> None:
        assert self.vm is not None
        with ScheduledEvents(self.vm.guest_url, name=self.vm.name) as client:
            while not self._ended.wait(PAUSE):
                try:
                    self._poll(client, self.vm.name)
                except NotAllowed:
                    self._ended.set()
                with self._polled:
                    self._polls += 1
                    self._polled.notify_all()

    def _poll(self, client: ScheduledEvents, name: str) -> None:
        for event in client.get().affecting(name).events:
            if self._approves and not event.is_started and event.id not in self.approved:
                self.approved.append(event.id)
                client.approve(event)


@contextmanager
def handled(*, approves: bool) -> Iterator[Handler]:
    handler = Handler(approves=approves)
    try:
        yield handler
    finally:
        handler.end()


def test_program_acts_as_the_handler() -> None:
    with Forewarn(NO_FLEET) as service, handled(approves=True) as handler:
        with LiveBackend(service.api, program=handler, timeout=GUARD) as backend:
            played = list(run_script(RESTART.script, backend))
        entries = list(service.api.journal(actions=[EntryKind.APPROVED]))
    assert differing(played) == []
    assert handler.vm is not None
    assert handler.vm.name == "web-0"
    assert [(entry.actor, entry.event) for entry in entries] == [("vm:web-0", id_) for id_ in handler.approved]
    assert len(handler.approved) == 1


APPROVED = {
    "cancelled-event": 1,
    "event-for-another-vm": 0,
    "eviction-30s": 1,
    "eviction-8s": 1,
    "hardware-failure": 0,
    "host-update": 1,
    "live-migration": 1,
    "predicted-failure": 1,
    "service-off-for-a-day": 1,
    "storm-of-20": 1,
    "terminate-on-scale-in": 1,
    "two-events-at-once": 2,
    "user-restart": 1,
    "withdrawn-and-scheduled-again": 2,
}
"""How many events the handler must approve."""


@pytest.mark.parametrize(
    "scenario", [each for each in library_scenarios() if each.handler], ids=lambda scenario: scenario.name
)
def test_every_shipped_scenario_runs_with_a_program_as_handler(scenario: Scenario) -> None:
    wanted = required_setup(scenario.script)
    with Forewarn(NO_FLEET, settings=wanted.settings) as service, handled(approves=True) as handler:
        with LiveBackend(service.api, setup=wanted, program=handler, timeout=GUARD) as backend:
            played = list(run_script(scenario.script, backend))
        entries = list(service.api.journal(actions=[EntryKind.APPROVED], actor="vm:web-0"))
    assert differing(played) == []
    assert [entry.event for entry in entries] == handler.approved
    assert len(entries) == APPROVED[scenario.name]


def test_scenario_does_not_approve_in_place_of_the_program() -> None:
    with Forewarn(NO_FLEET) as service, handled(approves=False) as handler:
        with LiveBackend(service.api, program=handler, timeout=0.01) as backend:
            played = list(run_script(RESTART.script, backend))
        assert list(service.api.journal(actions=[EntryKind.APPROVED])) == []
        (started,) = service.api.journal(actions=[EntryKind.STARTED])
    assert started.reason == "due"
    assert differing(played) == []


class ObservingProgram:
    """A program that records the times of `catch_up`."""

    def __init__(self, service: Forewarn) -> None:
        self._service = service
        self.moments: list[datetime] = []

    def start(self, vm: v1.Vm) -> None:
        assert vm.guest_url is not None

    def catch_up(self) -> None:
        self.moments.append(self._service.now)

    def has_time(self, began_at: float, timeout: float) -> bool:
        return time.monotonic() - began_at < timeout


def test_backend_waits_for_the_program_before_moving_the_clock() -> None:
    with Forewarn(NO_FLEET, start=NOON) as service:
        spectator = ObservingProgram(service)
        with LiveBackend(service.api, program=spectator) as backend:
            list(run_script(parse(f"{WEB}wait 1m\nhandler web-0\nwait 1m\nwait 1m\n"), backend))
        assert service.now == NOON + timedelta(minutes=3)
    assert spectator.moments == [NOON + timedelta(minutes=1), NOON + timedelta(minutes=2)]


class FakeProgram:
    """A program that records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self, vm: v1.Vm) -> None:
        assert vm.guest_url is not None
        self.calls.append(f"start {vm.name}")

    def catch_up(self) -> None:
        self.calls.append("catch up")

    def has_time(self, began_at: float, timeout: float) -> bool:
        return time.monotonic() - began_at < timeout


@contextmanager
def run_role(program: FakeProgram | None) -> Iterator[tuple[HandlerRole, v1.Vm]]:
    """Yield a role in a service with the scope `web`, called `web-2` there, and its VM `web-0`."""
    with Forewarn(NO_FLEET) as service:
        service.api.add_scope(v1.AddScope(id="web", kind=ScopeKind.STANDALONE))
        state = LiveState(service.api, Names())
        state.add(v1.AddScope(id="web", kind=ScopeKind.STANDALONE))
        service.api.add_vm(v1.AddVm(name="web-0", scope=state.scope("web")))
        yield HandlerRole(program, GUARD, state, JournalWatcher(service.api)), state.find("web-0")


def test_role_without_a_program_is_never_active() -> None:
    with run_role(None) as (role, vm):
        role.assign(vm)
        role.catch_up()
        assert (role.handler, role.is_active) == (vm, False)
        assert not role.handles(commands.Query(vm="web-0"))
        assert not role.may_have_changed(commands.Document(vm="web-0"))


def test_program_starts_when_its_vm_is_assigned() -> None:
    program = FakeProgram()
    with run_role(program) as (role, vm):
        role.catch_up()
        assert (role.is_active, role.handles(commands.Query(vm="web-0")), program.calls) == (False, False, [])
        role.assign(vm)
        role.catch_up()
        assert (role.is_active, program.calls) == (True, ["start web-0", "catch up"])


def test_program_handles_queries_and_approvals_of_its_vm_only() -> None:
    with run_role(FakeProgram()) as (role, vm):
        role.assign(vm)
        assert [
            role.handles(commands.Query(vm="web-0")),
            role.handles(commands.Query(vm="WEB/Web-0")),
            role.handles(commands.Approve(vm="web-0", events=("E1",))),
            role.handles(commands.Query(vm="web-1")),
            role.handles(commands.Query(vm="web-2/web-0")),
            role.handles(commands.Restart(vm="web-0")),
        ] == [True, True, True, False, False, False]


def test_program_may_have_changed_what_documents_and_explanations_show() -> None:
    with run_role(FakeProgram()) as (role, vm):
        role.assign(vm)
        assert role.may_have_changed(commands.Document(vm="web-0"))
        assert role.may_have_changed(commands.Explain(event="E1"))
        assert not role.may_have_changed(commands.Query(vm="web-0"))


def test_scenario_does_not_wait_for_a_query_of_the_program() -> None:
    with run_role(FakeProgram()) as (role, vm):
        role.assign(vm)
        assert role.wait_for_program(commands.Query(vm="web-0")) == ["web created", "web-0 added"]
        assert role.wait_for_program(commands.Query(vm="web-0")) == []
