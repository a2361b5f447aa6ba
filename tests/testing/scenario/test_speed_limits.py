"""The speeds at which a service plays a scenario as it is written."""

from datetime import UTC, datetime, timedelta

import pytest

from forewarn.api import v1
from forewarn.testing.scenario.library import library_text
from forewarn.testing.scenario.parser import parse
from forewarn.testing.scenario.speed_limits import ScenarioTimes, measure, speed_problem

HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
SCOPE = "# T.\nscope web availability-set\nvm web-0\n"


def clock(*, speed: float, manual: bool = False) -> v1.Clock:
    """Return the clock of a service with the defaults of `forewarn up`."""
    now = datetime(2026, 3, 2, 10, tzinfo=UTC)
    return v1.Clock(now=now, manual=manual, next_change_at=None, speed=speed, shortest_notice="10s")


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("eviction-8s", ScenarioTimes(duration=timedelta(minutes=10, seconds=18), shortest_notice=8 * SECOND)),
        ("terminate-on-scale-in", ScenarioTimes(duration=1040 * SECOND, shortest_notice=300 * SECOND)),
        ("eviction-30s", ScenarioTimes(duration=timedelta(minutes=10, seconds=20))),
        ("predicted-failure", ScenarioTimes(duration=timedelta(hours=13, minutes=2))),
    ],
)
def test_scenario_is_measured_on_the_rules(name: str, times: ScenarioTimes) -> None:
    """A notice counts only if its event starts because it is due."""
    assert measure(parse(library_text(name))) == times


def test_platform_carries_out_work_as_in_a_service() -> None:
    times = measure(parse(f"{SCOPE}restart web-0\nexpect E1 Completed within 3h\n"))
    assert times == ScenarioTimes(duration=timedelta(minutes=16), shortest_notice=timedelta(minutes=15))


@pytest.mark.parametrize("line", ["wait 11d", "wait 1h\napprove E9 by web-0"], ids=["long", "invalid"])
def test_long_or_invalid_scenario_has_its_longest_duration(line: str) -> None:
    script = parse(f"{SCOPE}evict web-0 in 8s\n{line}\n")
    assert measure(script) == ScenarioTimes(duration=timedelta(days=11) if "11d" in line else HOUR)


@pytest.mark.parametrize("manual", [False, True], ids=["real", "manual"])
@pytest.mark.parametrize(("seconds", "highest"), [(8, 1), (300, 30), (900, 90)])
def test_speed_is_limited_by_the_shortest_notice(seconds: int, highest: int, manual: bool) -> None:
    times = ScenarioTimes(duration=timedelta(minutes=20), shortest_notice=timedelta(seconds=seconds))
    assert speed_problem(times, clock(speed=highest, manual=manual), max_wait=HOUR) is None
    problem = speed_problem(times, clock(speed=highest + 1, manual=manual), max_wait=HOUR)
    assert problem is not None
    assert f"set the speed to at most {highest}" in problem
    assert ("--manual-time" in problem) is not manual


def test_speed_is_limited_by_the_duration_with_real_time() -> None:
    times = ScenarioTimes(duration=timedelta(hours=13, minutes=2))
    assert speed_problem(times, clock(speed=14), max_wait=HOUR) is None
    assert speed_problem(times, clock(speed=1, manual=True), max_wait=HOUR) is None
    assert speed_problem(times, clock(speed=1)) is None
    assert speed_problem(times, clock(speed=10), max_wait=HOUR) == (
        "it takes 13h2m, which is too long at speed 10; set the speed to at least 14, "
        "or start the service with `forewarn up --manual-time`"
    )


def test_scenario_without_a_possible_speed_needs_a_manual_clock() -> None:
    times = ScenarioTimes(duration=timedelta(hours=2), shortest_notice=8 * SECOND)
    for speed in (1, 2, 60):
        problem = speed_problem(times, clock(speed=speed), max_wait=HOUR)
        assert problem is not None
        assert problem.endswith("; start the service with `forewarn up --manual-time`")


def test_service_without_a_shortest_notice_has_no_highest_speed() -> None:
    """This is also how a service of an older version is read."""
    now = datetime(2026, 3, 2, 10, tzinfo=UTC)
    older = v1.Clock(now=now, manual=False, next_change_at=None, speed=600)
    assert speed_problem(ScenarioTimes(duration=HOUR, shortest_notice=SECOND), older, max_wait=HOUR) is None
