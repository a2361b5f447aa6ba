"""Tests of `expect … within …` and `wait`: exact with a manual clock, and the same on both backends."""

from collections.abc import Callable

import pytest

from forewarn.testing.scenario import CoreBackend, LiveBackend, StepResult, parse, required_setup, run_script
from forewarn.testing.service import Forewarn
from tests.testing.scenario.backends import NO_FLEET, run_on_core, run_on_service

WEB = "platform automatic\nscope web availability-set\nvm web-0 domain 0\nvm web-1 domain 1\n"

both_backends = pytest.mark.parametrize("tell", [run_on_core, run_on_service], ids=["core", "service"])


def last_lines(text: str, number: int) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()[-number:]]


@both_backends
def test_time_stops_at_the_expected_fact(tell: Callable[[str], str]) -> None:
    text = f"{WEB}schedule Reboot web-0 in 20m\nexpect E1 Started within 1h →\nschedule Freeze web-1 →\n"
    assert last_lines(tell(text), 2) == [
        "expect E1 Started within 1h → E1 Started (due), incarnation 3; E1 on web-0 begun",
        "schedule Freeze web-1 → E2 Scheduled not_before 10:35, incarnation 4",
    ]


@both_backends
def test_fact_may_occur_exactly_at_the_limit(tell: Callable[[str], str]) -> None:
    text = f"{WEB}schedule Reboot web-0 in 20m\nexpect E1 Started within 20m →\n"
    assert last_lines(tell(text), 1) == [
        "expect E1 Started within 20m → E1 Started (due), incarnation 3; E1 on web-0 begun"
    ]


@both_backends
def test_wait_reports_every_change_at_its_time(tell: Callable[[str], str]) -> None:
    text = f"{WEB}schedule Reboot web-0 web-1\nwait 1h →\n"
    assert last_lines(tell(text), 8) == [
        "wait 1h → E1 Started (due), incarnation 4",
        "→ E1 on web-0 begun",
        "→ E1 on web-0 done after 1m",
        "→ E1 Completed after 1m, incarnation 5",
        "→ E2 Started (due), 1m late, incarnation 6",
        "→ E2 on web-1 begun",
        "→ E2 on web-1 done after 1m",
        "→ E2 Completed after 1m, incarnation 7",
    ]


PLAYED = {
    "one second too late": ("schedule Reboot web-0 in 20m\nexpect E1 Started within 1199s", False),
    "other fact": ("schedule Reboot web-0\nexpect E1 Canceled within 1h", False),
    "other reason": ("schedule Reboot web-0\nexpect E1 Started (approved by web-0) within 1h", False),
    "with the reason": ("schedule Reboot web-0\nexpect E1 Started (due) within 1h", True),
    "part of a word": ("schedule Reboot web-0\nexpect E1 Started (du within 1h", False),
    "unknown event": ("schedule Reboot web-0\nexpect E2 Started within 1h", False),
    "fact has already occurred": ("schedule Reboot web-0\nwait 1h\nexpect E1 Started within 1s", True),
    "fact occurred before another command": (
        "schedule Reboot web-0\nwait 1h\nwait 1s\nexpect E1 Started within 1h",
        False,
    ),
    "one fact does not match twice": (
        "schedule Reboot web-0\nexpect E1 Started within 1h\nexpect E1 Started within 1h",
        False,
    ),
    "facts in another order": (
        "schedule Reboot web-0\nwait 1h\nexpect E1 Completed within 1s\nexpect E1 Started within 1s",
        True,
    ),
    "work": ("schedule Reboot web-0\nexpect E1 on web-0 begun within 1h\nexpect E1 on web-0 done within 60s", True),
    "nothing": ("schedule Reboot web-0\nexpect nothing within 899s", True),
    "nothing, but an event starts": ("schedule Reboot web-0\nexpect nothing within 900s", False),
    "nothing ignores facts about scopes": ("policy idle 1d\nquery web-0\nexpect nothing within 2d", True),
    "fact about a scope": ("policy idle 1d\nquery web-0\nexpect web disabled within 1d", True),
    "from a later time on": ("schedule Reboot web-0\nexpect E1 Completed within 1m at 10:15", True),
    "fact occurred before that time": ("schedule Reboot web-0\nexpect E1 Started within 1s at 10:20", True),
}


def played_on_both(text: str) -> list[list[StepResult]]:
    script = parse(text)
    wanted = required_setup(script)
    with Forewarn(NO_FLEET, settings=wanted.settings) as service, LiveBackend(service.api, setup=wanted) as backend:
        return [list(run_script(script, CoreBackend())), list(run_script(script, backend))]


@pytest.mark.parametrize("case", PLAYED)
def test_expectation_is_met_or_not(case: str) -> None:
    text, is_met = PLAYED[case]
    policy, rest = text.split("\n", 1) if text.startswith("policy") else ("", text)
    core, service = played_on_both(f"{policy}\n{WEB}{rest}\n")
    assert [each.is_as_expected for each in core] == [*([True] * (len(core) - 1)), is_met]
    assert [each.facts for each in service] == [each.facts for each in core]
    assert [each.is_as_expected for each in service] == [each.is_as_expected for each in core]
