"""Run the exam: scenarios in parallel, each with its own service and process; retry inconclusive ones alone."""

import os
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec

from forewarn.testing.exam.catalog import ExamScenario
from forewarn.testing.exam.checks import Finding, Polarity
from forewarn.testing.exam.report import Report
from forewarn.testing.exam.scenario_run import ExamOptions, Result, ScenarioRun

TIMING_CHECKS = frozenset({"asks", "asks-often", "approves", "prepares", "recovers"})
"""Checks that a slow handler breaks, so that a busy machine can be the cause."""

JOBS_PER_CORE = 3
"""How many scenarios run in parallel per core: a handler waits most of the time."""


def inconclusive(scenarios: Sequence[ExamScenario], results: Sequence[Result]) -> list[ExamScenario]:
    """Return the scenarios whose result a busy machine may have caused: the exam has measured that it was busy.

    They did not end within the time limit, or the handler was late. Something that the handler must not do, but did,
    is always conclusive, and so is an api-version that does not show the event.
    """
    return [scenario for scenario, result in zip(scenarios, results, strict=True) if _is_inconclusive(result)]


def _is_inconclusive(result: Result) -> bool:
    is_late = all(map(_may_be_late, result.broken))
    return result.is_starved and is_late and (bool(result.broken) or not result.is_finished)


def _may_be_late(finding: Finding) -> bool:
    kind = re.sub(r"-E\d+$", "", finding.demand)
    return finding.mood is Polarity.MUST and kind in TIMING_CHECKS and not finding.is_conclusive


class ExamObserver(Protocol):
    """Observes the progress of the exam; called from several threads."""

    def planned(self, scenarios: Sequence[ExamScenario], *, at_once: int, tries: int) -> None:
        """Report which scenarios run next: all of them, and later those that are retried."""
        ...

    def began(self, scenario: ExamScenario) -> None:
        """Report that a scenario begins."""
        ...

    def stepped(self, scenario: ExamScenario, step: str) -> None:
        """Report the next step of a scenario."""
        ...

    def ended(self, result: Result) -> None:
        """Report the result of a scenario."""
        ...


class NullObserver:
    """An observer that does nothing."""

    def planned(self, scenarios: Sequence[ExamScenario], *, at_once: int, tries: int) -> None:
        """Do nothing."""

    def began(self, scenario: ExamScenario) -> None:
        """Do nothing."""

    def stepped(self, scenario: ExamScenario, step: str) -> None:
        """Do nothing."""

    def ended(self, result: Result) -> None:
        """Do nothing."""


def examine(
    ask: ExamOptions, scenarios: Sequence[ExamScenario], *, jobs: int | None = None, watcher: ExamObserver | None = None
) -> Report:
    """Run a program in all scenarios, in parallel. Inconclusive scenarios run once more, one at a time.

    Raises LaunchFailed if the program cannot be started.
    """
    watcher = watcher or NullObserver()
    run = _Exam(ask, watcher)
    at_once = 1 if ask.markers.are_shared else jobs or JOBS_PER_CORE * (os.cpu_count() or 1)
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="forewarn-exam")
    # This thread only waits, so that a KeyboardInterrupt at any time leaves nothing half started.
    try:
        watcher.planned(scenarios, at_once=at_once, tries=1)
        results = list(pool.map(run.run_scenario, scenarios))
        if retries := inconclusive(scenarios, results):
            watcher.planned(retries, at_once=1, tries=2)
        retried = {one.scenario: one for one in _run_sequentially(pool, run, retries)}
    except BaseException:
        run.end()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return Report(results=tuple(retried.get(result.scenario, result) for result in results))


def _run_sequentially(pool: ThreadPoolExecutor, exam: "_Exam", scenarios: Sequence[ExamScenario]) -> Iterator[Result]:
    for scenario in scenarios:
        yield pool.submit(exam.run_scenario, scenario, tries=2).result()


class _Exam:
    """Runs scenarios in several threads."""

    def __init__(self, options: ExamOptions, observer: ExamObserver) -> None:
        self._options, self._observer = options, observer
        self._lock = threading.Lock()
        self._runs: list[ScenarioRun] = []
        self._is_ended = False

    def run_scenario(self, scenario: ExamScenario, tries: int = 1) -> Result:
        """Run one scenario."""
        run = ScenarioRun(self._options, scenario, lambda step: self._observer.stepped(scenario, step))
        with self._lock:
            self._runs.append(run)
            if self._is_ended:
                run.stop()
        self._observer.began(scenario)
        result = msgspec.structs.replace(run.run(), tries=tries)
        self._observer.ended(result)
        return result

    def end(self) -> None:
        """Stop all running scenarios."""
        with self._lock:
            self._is_ended = True
            for run in self._runs:
                run.stop()
