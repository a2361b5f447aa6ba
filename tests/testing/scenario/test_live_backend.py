"""Tests of the live backend: clocks, programs as the handler, and clean-up."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.api import v1
from forewarn.client import NotAllowed, ScheduledEvents
from forewarn.core.journal import EntryKind
from forewarn.testing.scenario import (
    Cancelled,
    CoreBackend,
    LiveBackend,
    Scenario,
    ScenarioError,
    Step,
    StepResult,
    commands,
    library_scenarios,
    max_duration,
    parse,
    required_setup,
    run_script,
)
from forewarn.testing.scenario.grammar import COMMAND_SYNTAX
from forewarn.testing.scenario.live_commands import run_command
from forewarn.testing.service import Forewarn
from tests.testing.scenario.backends import NO_FLEET, render, run_on_core, run_on_service

GUARD = 60.0
PAUSE = 0.005
"""The poll interval of the handler, in seconds."""

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
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


def differing(played: list[StepResult]) -> list[StepResult]:
    return [each for each in played if not each.is_as_expected]


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


def test_backend_waits_for_the_program_before_moving_the_clock() -> None:
    with Forewarn(NO_FLEET, start=NOON) as service:
        spectator = ObservingProgram(service)
        with LiveBackend(service.api, program=spectator) as backend:
            list(run_script(parse(f"{WEB}wait 1m\nhandler web-0\nwait 1m\nwait 1m\n"), backend))
        assert service.now == NOON + timedelta(minutes=3)
    assert spectator.moments == [NOON + timedelta(minutes=1), NOON + timedelta(minutes=2)]


def test_scenario_starts_at_a_whole_second() -> None:
    with Forewarn(NO_FLEET) as service:
        service.advance("0.25s")
        with LiveBackend(service.api) as backend:
            assert differing(list(run_script(RESTART.script, backend))) == []


def test_journal_can_be_read_after_a_position() -> None:
    with Forewarn() as service:
        lines = list(service.api.journal())
        assert list(service.api.journal(after=lines[2].position)) == lines[3:]
        backwards = list(service.api.journal(newest_first=True, after=lines[2].position))
        assert backwards == [lines[1], lines[0]]


def test_times_are_not_compared_with_a_system_clock() -> None:
    script = parse(
        f"{WEB}schedule Reboot web-0 in 10m  →  E1 Scheduled not_before 10:10, incarnation 2\n"
        "expect E1 Started within 10m\n"
        "expect E1 Completed within 5m\n"
        "schedule Freeze web-0 in 10h → E2 Scheduled not_before 20:17, incarnation 5\n"
        "expect nothing within 1m\n"
    )
    with Forewarn(NO_FLEET, manual_time=False, speed=600) as service, LiveBackend(service.api, speed=600) as backend:
        played = list(run_script(script, backend))
    assert differing(played) == []


def test_missing_facts_are_reported_with_a_system_clock() -> None:
    script = parse(f"{WEB}schedule Reboot web-0 in 10h → E1 Scheduled not_before 20:00\nexpect E1 Started within 1s\n")
    with Forewarn(NO_FLEET, manual_time=False, speed=600) as service, LiveBackend(service.api, speed=600) as backend:
        assert [each.step.command for each in differing(list(run_script(script, backend)))] == [
            each.command for each in script.steps[-2:]
        ]


def test_scenario_can_be_cancelled_from_another_thread_and_cleans_up() -> None:
    script = parse(f"{WEB}schedule Reboot web-0 in 1d\nexpect E1 Started within 2d\n")
    with Forewarn(NO_FLEET, manual_time=False) as service:
        with LiveBackend(service.api) as backend:

            def cancel_at_the_end(step: Step) -> None:
                if isinstance(step.command, commands.Expect):
                    threading.Thread(target=backend.cancel).start()

            with pytest.raises(Cancelled):
                list(run_script(script, backend, on_step=cancel_at_the_end))
            with pytest.raises(Cancelled):
                list(run_script(script, backend))
        assert list(service.api.scopes()) == []


def test_scenario_with_a_manual_clock_can_be_cancelled() -> None:
    script = parse(f"{WEB}schedule Reboot web-0 in 1d\nwait 2d\n")
    with Forewarn(NO_FLEET) as service, LiveBackend(service.api) as backend:
        plays = run_script(script, backend)
        next(plays)
        backend.cancel()
        with pytest.raises(Cancelled):
            next(plays)


def test_faults_give_the_same_facts_as_on_the_core() -> None:
    text = (
        f"{WEB}fault 410 web-0 times 1 →\nfault reset times 1 →\nquery web-0 →\nrestart web-0 →\n"
        "fault slow web-0 of 1s for 1m →\nclear faults →\napprove E1 by web-0 →\n"
    )
    assert run_on_service(text) == run_on_core(text)


def test_faults_and_holds_end_with_the_scenario() -> None:
    script = parse(f'{WEB}fault 500\nfault hang web-1 for 1d\nhold all "moving house"\n')
    with Forewarn(NO_FLEET) as service:
        with LiveBackend(service.api) as backend:
            assert differing(list(run_script(script, backend))) == []
            assert len(service.api.faults().faults) == 2
        assert list(service.api.faults().faults) == []
        assert service.api.holds().fleet is None


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


WAITS: dict[str, tuple[commands.Command, timedelta | None, timedelta]] = {
    "wait": (commands.Wait(time=10 * MINUTE), None, SECOND),
    "expect": (commands.Expect(subject="nothing", happening=(), within=20 * MINUTE), None, 2 * SECOND),
    "time in the past": (commands.Tick(time=timedelta(hours=9)), None, timedelta(0)),
    "command": (commands.Query(vm="web-0"), None, timedelta(0)),
    "command at a time in the past": (commands.Wait(time=10 * MINUTE), timedelta(hours=9), SECOND),
}


@pytest.fixture(scope="module")
def fast_backend() -> Iterator[LiveBackend]:
    with Forewarn(NO_FLEET, manual_time=False, speed=600) as service, LiveBackend(service.api, speed=600) as backend:
        yield backend


@pytest.mark.parametrize("case", WAITS)
def test_max_wait_is_in_real_time(case: str, fast_backend: LiveBackend) -> None:
    command, at, wait = WAITS[case]
    assert fast_backend.max_wait(command, at) == wait


def test_max_wait_for_a_time_of_day_is_the_time_left(fast_backend: LiveBackend) -> None:
    """A day of the scenario takes 144 seconds here, and some have passed."""
    wait = fast_backend.max_wait(commands.Tick(time=timedelta(days=1, hours=10)), None)
    assert timedelta(0) < wait <= 144 * SECOND
    assert fast_backend.max_wait(commands.Query(vm="web-0"), timedelta(days=1, hours=10)) <= wait


@pytest.mark.parametrize("case", WAITS)
def test_max_wait_is_zero_with_a_manual_clock(case: str, service: Forewarn) -> None:
    command, at, _ = WAITS[case]
    with LiveBackend(service.api) as backend:
        assert backend.max_wait(command, at) == timedelta(0)
    assert CoreBackend().max_wait(command, at) == timedelta(0)


def test_max_duration_is_the_sum_of_all_waits() -> None:
    script = parse(f"{WEB}wait 5m\nexpect nothing within 10m at 10:20\ntick 10:25\nquery web-0\ntick\n")
    assert max_duration(script) == 30 * MINUTE
    assert max_duration(parse(f"{WEB}tick 10:25\n")) == 25 * MINUTE


UNSUPPORTED = {
    "work": ("scope a standalone\nvm x\nfail x\nbegin E1", "E1", "the platform of a service carries out its work"),
    "state": ("scope a standalone\nstate a", "a", "a service does not show this"),
    "outage": ("outage 1d", "outage", "a running service cannot do this"),
    "policy": ("policy production", "policy", "the policy of a running service cannot be changed"),
    "later policy": ("scope a standalone\npolicy idle 1d", "policy", "the policy of a running service cannot be"),
    "time of work": ("platform automatic lasting 5s", "lasting", "a service's settings decide how long work takes"),
    "clock": ("tick 09:00", "tick", "the clock of a service cannot go back"),
    "unknown scope": ("query a/x", "query", "unknown scope"),
    "no scope": ("vm x", "vm", "no scope defined yet"),
    "label": ("scope a standalone\ncancel E1", "E1", "no event has this label yet"),
    "ambiguous VM": ("scope a standalone\nvm x\nscope b standalone\nvm x\nquery x", "x", "several scopes have a VM"),
    "fleet": ("fleet demonstration", "demonstration", "the service has no scope db-0"),
    "refused": ("scope a standalone\nrestart x", "x", "scope a has no VM x (vm-not-found); a line without an arrow"),
}


@pytest.fixture(scope="module")
def service() -> Iterator[Forewarn]:
    with Forewarn(NO_FLEET) as running:
        yield running


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_error_names_the_unsupported_word(case: str, service: Forewarn) -> None:
    text, word, problem = UNSUPPORTED[case]
    with LiveBackend(service.api) as backend, pytest.raises(ScenarioError) as caught:
        list(run_script(parse(text), backend))
    assert caught.value.problem.startswith(problem)
    assert (caught.value.line, caught.value.word) == (len(text.splitlines()), word)
    assert list(service.api.scopes()) == []
