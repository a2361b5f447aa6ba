"""Scenario runner of `forewarn scenario run`: choose the backend, show progress, collect the results."""

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import ServiceNotFound
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.extras import require_server
from forewarn.cli.options.connection import connect
from forewarn.cli.output import write_message
from forewarn.cli.views.progress import draw_status
from forewarn.core.duration import format_duration
from forewarn.testing.scenario import (
    NOTHING,
    Backend,
    CoreBackend,
    LiveBackend,
    Scenario,
    ScenarioError,
    ScenarioNotAllowed,
    ServiceSetup,
    Step,
    StepResult,
    max_duration,
    measure,
    required_setup,
    run_script,
    speed_problem,
    step_result,
    verdict_of,
)

SECOND = timedelta(seconds=1)


class ScenarioOptions(NamedTuple):
    """Where scenarios run: on the core, in a private service, else in the running service."""

    core: bool
    private: bool
    speed: float | None
    service_options: Mapping[str, Any]


class ScenarioResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a scenario. `error` is set if it cannot run."""

    name: str
    title: str
    backend: str
    verdict: v1.ScenarioVerdict
    seconds: float
    steps: Sequence[v1.ScenarioStep]
    error: str | None = None

    def failure_lines(self) -> Iterator[str]:
        """Yield the differences from the expected facts, with their lines."""
        if self.error is not None:
            yield f"{self.name}: {self.error}"
        for step in self.steps:
            if not step.passed:
                yield f"{self.name}, line {step.line}: {step.text}"
                yield from (f"    expected:  {fact}" for fact in _expected_lines(step))
                yield from (f"    happened:  {fact}" for fact in step.facts)


def _expected_lines(step: v1.ScenarioStep) -> Iterator[str]:
    """Yield what the scenario expects of a step."""
    if step.awaited is not None:
        yield step.awaited
    yield from step.expected or ()
    if step.expected == ():
        yield f"(no facts after the arrow; write `{NOTHING}` if nothing follows)"


def run_scenarios(scenarios: Sequence[Scenario], options: ScenarioOptions) -> list[ScenarioResult]:
    """Run scenarios one after the other and show their progress."""
    running = (
        None if options.core or options.private or options.speed is not None else _find_service(options.service_options)
    )
    return [_run_scenario(scenario, options, _matching_service(running, scenario)) for scenario in scenarios]


def _matching_service(running: ApiClient | None, scenario: Scenario) -> ApiClient | None:
    """Return the running service, or None if the scenario needs other settings than it has."""
    if running is None:
        return None
    if required_setup(scenario.script) != ServiceSetup():
        write_message(f"{scenario.name} needs a service with its own policy, so it runs in a private one.")
        return None
    if (problem := speed_problem(measure(scenario.script), running.clock())) is not None:
        write_message(f"{scenario.name} runs in a private service: {problem}.")
        return None
    return running


def _find_service(service_options: Mapping[str, Any]) -> ApiClient | None:
    """Return the running service, or None."""
    try:
        api = connect(**service_options)
        is_manual = api.clock().manual
    except ServiceNotFound:
        return None
    if not is_manual:
        write_message(
            f"{api.url} uses real time, so scenarios wait; --private runs them in a private service, without waiting."
        )
    return api


def _run_scenario(scenario: Scenario, options: ScenarioOptions, running: ApiClient | None) -> ScenarioResult:
    title = f"{scenario.name}: {scenario.title}" if scenario.title else scenario.name
    write_message(f"{title}{_time_limit_text(_max_wait(scenario, options, running))}")
    lines: list[v1.ScenarioStep] = []
    error: str | None = None
    name = "the rules" if options.core else "a private service" if running is None else running.url
    began = time.monotonic()
    try:
        with _backend(scenario, options, running) as backend, _StepProgress() as progress:
            for played in run_script(
                scenario.script, backend, on_step=lambda step: progress.begin(step, _step_wait(backend, step))
            ):
                progress.end(played)
                lines.append(step_result(played))
    except ScenarioError as wrong:
        error = str(wrong)
    return ScenarioResult(
        name=scenario.name,
        title=scenario.title,
        backend=name,
        verdict=verdict_of(lines) if error is None else v1.ScenarioVerdict.INVALID,
        seconds=time.monotonic() - began,
        steps=lines,
        error=error,
    )


@contextmanager
def _backend(scenario: Scenario, options: ScenarioOptions, running: ApiClient | None) -> Iterator[Backend]:
    if options.core:
        yield CoreBackend()
    elif running is not None:
        try:
            backend = LiveBackend(running, speed=running.clock().speed)
        except ScenarioNotAllowed as error:
            raise CliError(ExitCode.REFUSED, f"{error}; --private runs them in a private service") from None
        with backend:
            yield backend
    else:
        with _private_backend(scenario, options.speed) as private:
            yield private


@contextmanager
def _private_backend(scenario: Scenario, speed: float | None) -> Iterator[Backend]:
    with require_server():
        from forewarn.testing.service import Forewarn
    wanted = required_setup(scenario.script)
    speed_factor = 1.0 if speed is None else speed
    settings = {**wanted.settings, "speed": wanted.policy.speed * speed_factor}
    with (
        Forewarn({"scopes": []}, manual_time=speed is None, settings=settings) as service,
        LiveBackend(service.api, setup=wanted, speed=speed_factor) as backend,
    ):
        yield backend


def _max_wait(scenario: Scenario, options: ScenarioOptions, running: ApiClient | None) -> timedelta:
    """Return how long a scenario may take in real time; zero with a manual clock."""
    if running is None:
        return timedelta(0) if options.speed is None else max_duration(scenario.script) / options.speed
    clock = running.clock()
    return timedelta(0) if clock.manual else max_duration(scenario.script) / clock.speed


def _step_wait(backend: Backend, step: Step) -> timedelta:
    return backend.max_wait(step.command, step.at)


def _time_limit_text(wait: timedelta) -> str:
    """Return the time limit as text; empty if there is no wait."""
    return f"  (up to {format_duration(SECOND * math.ceil(wait / SECOND))})" if wait else ""


class _StepProgress:
    """Shows each step on stderr when it has ended, and before that on a terminal or if the step may take a while."""

    def __init__(self) -> None:
        self._is_live = sys.stderr.isatty()

    def __enter__(self) -> "_StepProgress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            draw_status("")

    def begin(self, step: Step, wait: timedelta) -> None:
        """Show the current step and its time limit."""
        line, up_to = f"  … {step.text.strip()}", _time_limit_text(wait)
        if self._is_live:
            draw_status(line, up_to)
        elif wait:
            write_message(line + up_to)

    def end(self, played: StepResult) -> None:
        """Show the result of the step."""
        mark = "✓" if played.is_as_expected else "✗"
        followed = f"  →  {'; '.join(played.facts)}" if played.step.expected or played.facts != (NOTHING,) else ""
        line = f"  {mark} {played.step.text.strip()}{followed}"
        if self._is_live:
            draw_status(line, "\n")
        else:
            write_message(line)
