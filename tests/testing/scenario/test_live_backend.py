"""Tests of the live backend: clocks, waits, cancellation, and clean-up."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from forewarn.testing.scenario import (
    Cancelled,
    CoreBackend,
    LiveBackend,
    ScenarioError,
    Step,
    commands,
    library_scenarios,
    max_duration,
    parse,
    run_script,
)
from forewarn.testing.scenario.live_clock import SystemLiveClock
from forewarn.testing.service import Forewarn
from tests.testing.scenario.backends import NO_FLEET, differing

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)

WEB = "platform automatic\nscope web availability-set\nvm web-0 domain 0\nvm web-1 domain 1\n"

RESTART = next(scenario for scenario in library_scenarios() if scenario.name == "user-restart")


def test_scenario_starts_at_a_whole_second() -> None:
    with Forewarn(NO_FLEET) as service:
        service.advance("0.25s")
        with LiveBackend(service.api) as backend:
            assert differing(list(run_script(RESTART.script, backend))) == []


def test_times_are_not_compared_with_a_system_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notice of three real seconds: on a busy machine, the event must not start before it is seen as scheduled."""
    monkeypatch.setattr(SystemLiveClock, "grace", MINUTE)
    script = parse(
        f"{WEB}schedule Reboot web-0 in 30m  →  E1 Scheduled not_before 10:10, incarnation 2\n"
        "expect E1 Started within 30m\n"
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


@pytest.fixture(scope="module")
def service() -> Iterator[Forewarn]:
    with Forewarn(NO_FLEET) as running:
        yield running


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
    "policy": ("policy production", "policy", "the policy of a running service cannot be changed"),
    "later policy": ("scope a standalone\npolicy idle 1d", "policy", "the policy of a running service cannot be"),
    "time of work": ("platform automatic lasting 5s", "lasting", "a service's settings decide how long work takes"),
    "clock": ("tick 09:00", "tick", "the clock of a service cannot go back"),
    "refused": ("scope a standalone\nrestart x", "x", "scope a has no VM x (vm-not-found); a line without an arrow"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_error_names_the_unsupported_word(case: str, service: Forewarn) -> None:
    text, word, problem = UNSUPPORTED[case]
    with LiveBackend(service.api) as backend, pytest.raises(ScenarioError) as caught:
        list(run_script(parse(text), backend))
    assert caught.value.problem.startswith(problem)
    assert (caught.value.line, caught.value.word) == (len(text.splitlines()), word)
    assert list(service.api.scopes()) == []
