"""Tests of the core backend: the facts of each kind of command, refusals, invalid commands and times."""

from datetime import timedelta

import pytest

from forewarn.testing.scenario import CommandResult, CoreBackend, InvalidCommand, commands, parse
from forewarn.testing.scenario.core_backend import run_command
from forewarn.testing.scenario.core_state import CoreState
from forewarn.testing.scenario.grammar import COMMAND_SYNTAX

WEB = "scope web availability-set\nvm web-0 web-1 domain 0"
AUTOMATIC = f"platform automatic lasting 5m\n{WEB}"


def run_lines(text: str, backend: CoreBackend | None = None) -> list[CommandResult]:
    """Execute the commands of a scenario, one after the other."""
    target = backend or CoreBackend()
    return [target.execute(step.command, step.at) for step in parse(text).steps]


def facts_of_last_line(text: str) -> tuple[str, ...]:
    return run_lines(text)[-1].facts


def test_core_backend_implements_every_command() -> None:
    base = run_command.dispatch(object)
    of_time = {commands.UsePlatform, commands.Wait, commands.Expect}
    of_campaigns = {
        commands.StartCampaign,
        commands.PauseCampaign,
        commands.ResumeCampaign,
        commands.AbortCampaign,
        commands.RetryWave,
        commands.SkipWave,
        commands.SetGate,
    }
    by_the_backend = {form.command for form in COMMAND_SYNTAX.values() if run_command.dispatch(form.command) is base}
    assert by_the_backend == of_time | of_campaigns


def test_command_of_the_backend_itself_has_no_function() -> None:
    with pytest.raises(TypeError, match="Wait is not for this backend"):
        run_command(commands.Wait(time=timedelta(minutes=1)), CoreState())


def test_event_runs_from_its_creation_to_its_end() -> None:
    script = f"{WEB}\nschedule Reboot web-0\ntick 10:15\nbegin E1\ndone E1 at 10:16"
    assert [result.facts for result in run_lines(script)[2:]] == [
        ("E1 Scheduled not_before 10:15, incarnation 2",),
        ("E1 Started (due), incarnation 3", "impact E1 web-0"),
        ("E1 on web-0 begun",),
        ("E1 on web-0 done after 1m", "E1 Completed after 1m, incarnation 4"),
    ]


def test_automatic_platform_does_its_work_while_time_passes() -> None:
    assert facts_of_last_line(f"{AUTOMATIC}\nschedule Reboot web-0\nwait 1h") == (
        "E1 Started (due), incarnation 3",
        "E1 on web-0 begun",
        "E1 on web-0 done after 5m",
        "E1 Completed after 5m, incarnation 4",
    )


def test_refusal_is_a_fact_and_changes_nothing() -> None:
    backend = CoreBackend()
    run_lines(WEB, backend)
    before = dict(backend.state.scopes)
    (refused,) = run_lines("restart web-9", backend)
    assert refused == CommandResult(("refused vm-not-found: scope web has no VM web-9",))
    assert backend.state.scopes == before


def test_existing_scope_is_refused() -> None:
    (fact,) = facts_of_last_line(f"{WEB}\nscope web standalone")
    assert fact.startswith("refused ")


def test_demonstration_fleet_can_be_created_once() -> None:
    backend = CoreBackend()
    first, again = run_lines("fleet demonstration\nfleet demonstration", backend)
    assert first.facts == ()
    assert sorted(backend.state.scopes) == ["batch", "db-0", "shop", "web"]
    assert again.facts[0].startswith("refused ")


def test_repeated_request_is_known() -> None:
    script = f"{WEB}\nschedule Reboot web-0 request r1\nschedule Reboot web-0 request r1"
    assert facts_of_last_line(script) == ("E1 is known",)


def test_hold_of_everything_delays_events_until_it_is_released() -> None:
    script = f'{WEB}\nhold all "audit"\nschedule Reboot web-0\ntick 11:00\nexplain E1\nrelease all'
    held, _, waiting, explained, released = (result.facts for result in run_lines(script)[2:])
    assert held == ("everything held by operator (audit)",)
    assert waiting == ()
    assert explained == ("all maintenance is held by operator: audit",)
    assert released[0] == "everything released by operator"
    assert released[1].startswith("E1 Started (due)")


def test_expectation_is_met_within_its_time_only() -> None:
    script = f"{AUTOMATIC}\nschedule Reboot web-0\nexpect E1 Started within 14m\nexpect E1 Started within 1m"
    too_early, started = run_lines(script)[-2:]
    assert too_early == CommandResult((), is_met=False)
    assert started.is_met
    assert started.facts[0] == "E1 Started (due), incarnation 3"


def test_clock_jumps_back_unless_the_platform_is_automatic() -> None:
    backend = CoreBackend()
    run_lines(f"{WEB}\ntick 09:00", backend)
    assert backend.state.now == backend.state.names.moment(timedelta(hours=9))
    with pytest.raises(InvalidCommand, match="the clock is already at 10:00 and cannot go back"):
        run_lines(f"{AUTOMATIC}\ntick 09:00")


def test_simulated_time_needs_no_waiting() -> None:
    assert CoreBackend().max_wait(commands.Wait(time=timedelta(days=1)), timedelta(hours=12)) == timedelta(0)


def test_facts_must_be_exactly_the_expected_ones() -> None:
    backend = CoreBackend()
    assert backend.matches(["E1 Started (due), incarnation 3"], ["E1 Started (due), incarnation 3"])
    assert not backend.matches(["E1 Started (due), incarnation 3"], ["E1 Started (due), incarnation 4"])
