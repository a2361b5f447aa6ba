"""Playing scenarios for `forewarn scenario run`: where, what is shown meanwhile, and what is said at the end."""

import math
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from forewarn.api.client import ApiClient
from forewarn.api.errors import NoService
from forewarn.cli.exits import Exit, Stop
from forewarn.cli.extras import needing_server
from forewarn.cli.output import harmless, say
from forewarn.cli.reaching import connect
from forewarn.core.duration import format_duration
from forewarn.testing.scenario import (
    NOTHING,
    CoreStage,
    Expect,
    LiveStage,
    NotAnEmulator,
    Played,
    Scenario,
    ScenarioError,
    Stage,
    Step,
    Wanted,
    longest,
    play,
    wanted_by,
)

if TYPE_CHECKING:
    from forewarn.testing.service import Forewarn


SECOND = timedelta(seconds=1)


class Choice(NamedTuple):
    """Where scenarios are played: on the core, in a private service, else in the one that is found."""

    core: bool
    private: bool
    speed: float | None
    where: Mapping[str, Any]


class Verdict(StrEnum):
    """How a scenario ended."""

    AS_TOLD = "as told"
    DIFFERS = "differs"
    BROKEN = "cannot be played"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A step that was played. `expected` null: the story does not say what follows; `awaited`: what it waits for."""

    line: int
    text: str
    expected: Sequence[str] | None
    facts: Sequence[str]
    as_told: bool
    awaited: str | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a scenario. `error` says where it cannot be played."""

    name: str
    title: str
    stage: str
    verdict: Verdict
    seconds: float
    steps: Sequence[Line]
    error: str | None = None

    def complaints(self) -> Iterator[str]:
        """Say what was different, and where."""
        if self.error is not None:
            yield f"{self.name}: {self.error}"
        for step in self.steps:
            if not step.as_told:
                yield f"{self.name}, line {step.line}: {step.text}"
                yield from (f"    told:      {fact}" for fact in _told(step))
                yield from (f"    happened:  {fact}" for fact in step.facts)


def _told(line: Line) -> Iterator[str]:
    """Say what the story tells of a line."""
    if line.awaited is not None:
        yield line.awaited
    yield from line.expected or ()
    if line.expected == ():
        yield f"(the arrow says nothing of it: where nothing follows, it says `{NOTHING}`)"


def play_all(scenarios: Sequence[Scenario], choice: Choice) -> list[Result]:
    """Play scenarios one after the other, and show how far they are."""
    found = None if choice.core or choice.private or choice.speed is not None else _found(choice.where)
    return [_played(scenario, choice, _suitable(found, scenario)) for scenario in scenarios]


def _suitable(found: ApiClient | None, scenario: Scenario) -> ApiClient | None:
    """Return the service that was found, unless the story wants one that runs otherwise: that cannot be changed."""
    if found is None or wanted_by(scenario.story) == Wanted():
        return found
    say(f"{scenario.name} wants a service with a policy of its own, so it is played in a private one.")
    return None


def _found(where: Mapping[str, Any]) -> ApiClient | None:
    """Find the service that runs, if one does."""
    try:
        api = connect(**where)
    except NoService:
        return None
    if not api.clock().manual:
        say(
            f"The clock of {api.url} is real, so stories wait; --private plays them in a service of their own, at once."
        )
    return api


def _played(scenario: Scenario, choice: Choice, found: ApiClient | None) -> Result:
    title = f"{scenario.name}: {scenario.title}" if scenario.title else scenario.name
    say(f"{title}{_up_to(_longest(scenario, choice, found))}")
    lines: list[Line] = []
    error: str | None = None
    name = "the rules" if choice.core else "a private service" if found is None else found.url
    began = time.monotonic()
    try:
        with _stage(scenario, choice, found) as stage, _Progress() as progress:
            for played in play(scenario.story, stage, on_step=lambda step: progress.begin(step, _wait(stage, step))):
                progress.end(played)
                lines.append(_line(played))
    except ScenarioError as wrong:
        error = str(wrong)
    return Result(
        name=scenario.name,
        title=scenario.title,
        stage=name,
        verdict=_verdict(lines, error),
        seconds=time.monotonic() - began,
        steps=lines,
        error=error,
    )


def _verdict(lines: Sequence[Line], error: str | None) -> Verdict:
    if error is not None:
        return Verdict.BROKEN
    return Verdict.AS_TOLD if all(line.as_told for line in lines) else Verdict.DIFFERS


def _line(played: Played) -> Line:
    step = played.step
    return Line(
        line=step.line,
        text=step.text.strip(),
        expected=step.expected,
        facts=played.facts,
        as_told=played.is_as_told,
        awaited=_awaited(step),
    )


def _awaited(step: Step) -> str | None:
    command = step.command
    return f"{command.fact} within {format_duration(command.within)}" if isinstance(command, Expect) else None


@contextmanager
def _stage(scenario: Scenario, choice: Choice, found: ApiClient | None) -> Iterator[Stage]:
    if choice.core:
        yield CoreStage()
    elif found is not None:
        try:
            stage = LiveStage(found, speed=found.clock().speed)
        except NotAnEmulator as error:
            raise Stop(Exit.REFUSED, f"{error}; --private plays them in a service of their own") from None
        with stage:
            yield stage
    else:
        with _private_stage(scenario, choice.speed) as private:
            yield private


@contextmanager
def _private_stage(scenario: Scenario, speed: float | None) -> Iterator[Stage]:
    forewarn = needing_server(_service)
    wanted = wanted_by(scenario.story)
    faster = 1.0 if speed is None else speed
    settings = {**wanted.settings, "speed": wanted.policy.speed * faster}
    with (
        forewarn({"scopes": []}, manual_time=speed is None, settings=settings) as service,
        LiveStage(service.api, wanted=wanted, speed=faster) as stage,
    ):
        yield stage


def _service() -> "type[Forewarn]":
    from forewarn.testing.service import Forewarn

    return Forewarn


def _longest(scenario: Scenario, choice: Choice, found: ApiClient | None) -> timedelta:
    """Return for how long a scenario may have everybody wait: no time where time is moved."""
    if found is None:
        return timedelta(0) if choice.speed is None else longest(scenario.story) / choice.speed
    clock = found.clock()
    return timedelta(0) if clock.manual else longest(scenario.story) / clock.speed


def _wait(stage: Stage, step: Step) -> timedelta:
    return stage.longest_wait(step.command, step.at)


def _up_to(wait: timedelta) -> str:
    """Say how long something takes at most, if it takes any time."""
    return f"  (up to {format_duration(SECOND * math.ceil(wait / SECOND))})" if wait else ""


class _Progress:
    """Shows each step on stderr when it was played; while it is, on a terminal, and wherever it may take a while."""

    def __init__(self) -> None:
        self._is_live = sys.stderr.isatty()

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._draw("")

    def begin(self, step: Step, wait: timedelta) -> None:
        """Show what is played now, and for how long it may have everybody wait."""
        line, up_to = f"  … {step.text.strip()}", _up_to(wait)
        if self._is_live:
            self._draw(line, up_to)
        elif wait:
            say(line + up_to)

    def end(self, played: Played) -> None:
        """Show how it went."""
        mark = "✓" if played.is_as_told else "✗"
        followed = f"  →  {'; '.join(played.facts)}" if played.step.expected or played.facts != (NOTHING,) else ""
        line = f"  {mark} {played.step.text.strip()}{followed}"
        if self._is_live:
            self._draw(line, "\n")
        else:
            say(line)

    def _draw(self, line: str, end: str = "") -> None:
        """Draw a line over the last one; if there is no room for all of it, its end stays."""
        width = max(shutil.get_terminal_size().columns - 1 - len(end.rstrip("\n")), 1)
        shown = harmless(line)
        cut = shown if len(shown) <= width else f"{shown[: width - 1]}…"
        sys.stderr.write(f"\r\x1b[K{cut}{end}")
        sys.stderr.flush()
