"""Speeds at which a service plays a scenario as it is written: not too fast for its notices, nor too slow to end."""

import math
from datetime import datetime, timedelta

import msgspec

from forewarn.api import v1
from forewarn.core.duration import format_duration, parse_duration
from forewarn.core.journal import EntryKind
from forewarn.testing.scenario import commands
from forewarn.testing.scenario.core_backend import CoreBackend
from forewarn.testing.scenario.lexer import ScenarioError
from forewarn.testing.scenario.parser import Script
from forewarn.testing.scenario.runner import run_script
from forewarn.testing.scenario.setup import max_duration

MAX_SIMULATED = timedelta(days=10)
"""How much time of a scenario is simulated to measure it."""

MANUAL_TIME = "start the service with `forewarn up --manual-time`"


class ScenarioTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The times of a scenario that limit the speed, in its own time.

    `shortest_notice` is that of the events that start because they are due: if one is approved before, it does not
    matter how long its notice would have been.
    """

    duration: timedelta
    shortest_notice: timedelta | None = None


def measure(script: Script) -> ScenarioTimes:
    """Measure a scenario by playing it on the rules, in a few milliseconds; by its text if it is long or invalid."""
    longest = ScenarioTimes(duration=max_duration(script))
    if longest.duration > MAX_SIMULATED:
        return longest
    backend = CoreBackend()
    state, began_at = backend.state, backend.state.now
    backend.execute(commands.UsePlatform(way=commands.PlatformMode.AUTOMATIC), None)
    try:
        for _ in run_script(script, backend):
            pass
    except ScenarioError:
        return longest
    entries = [entry for journal in state.journals.values() for entry in journal]
    due = {entry.event for entry in entries if entry.kind is EntryKind.STARTED and entry.why == "due"}
    notices = (
        datetime.fromisoformat(entry.facts["not_before"]) - entry.at
        for entry in entries
        if entry.kind is EntryKind.SCHEDULED and entry.event in due
    )
    return ScenarioTimes(duration=state.now - began_at, shortest_notice=min(notices, default=None))


def speed_problem(times: ScenarioTimes, clock: v1.Clock, *, max_wait: timedelta | None = None) -> str | None:
    """Return why a service cannot play a scenario at its speed, and what to do; None if it can.

    `max_wait` is how long a scenario may take in real time.
    """
    lowest = 0 if clock.manual or max_wait is None else math.ceil(times.duration / max_wait)
    highest = math.inf
    floor, notice = parse_duration(clock.shortest_notice), times.shortest_notice
    if notice and floor:
        highest = max(1.0, math.floor(notice / floor))
    if lowest <= clock.speed <= highest:
        return None
    if clock.speed > highest and notice is not None:
        problem = (
            f"an event with a notice of {format_duration(notice)} would start too late at speed {clock.speed:g}, "
            f"because policy.shortest_notice is {format_duration(floor)}"
        )
        advice = f"set the speed to at most {highest:g}"
    else:
        problem = f"it takes {format_duration(times.duration)}, which is too long at speed {clock.speed:g}"
        advice = f"set the speed to at least {lowest}"
    if lowest > highest:
        advice = MANUAL_TIME
    elif not clock.manual:
        advice += f", or {MANUAL_TIME}"
    return f"{problem}; {advice}"
