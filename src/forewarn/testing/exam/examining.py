"""The whole exam: scenarios side by side, each with a program and a service of its own."""

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec

from forewarn.testing.exam.demands import Finding, Verdict
from forewarn.testing.exam.sheets import Sheet
from forewarn.testing.exam.sitting import Ask, Result, Sitting

PER_CORE = 3
"""How many scenarios run at a time for each core: a handler waits most of the time."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in all scenarios, in their order."""

    results: tuple[Result, ...]

    @property
    def is_passed(self) -> bool:
        """Whether nothing was broken anywhere, and everything was seen."""
        return all(result.is_passed for result in self.results)

    @property
    def findings(self) -> tuple[tuple[str, Finding], ...]:
        """All findings, each with its scenario."""
        return tuple((result.scenario, finding) for result in self.results for finding in result.findings)

    @property
    def broken(self) -> frozenset[tuple[str, str]]:
        """The scenarios and demands of all that was broken."""
        return frozenset((result.scenario, finding.demand) for result in self.results for finding in result.broken)

    @property
    def as_json(self) -> dict[str, object]:
        """The report for programs."""
        return {
            "passed": self.is_passed,
            **{verdict.replace(" ", "_"): self._count(verdict) for verdict in Verdict},
            "scenarios": [{"passed": result.is_passed, **msgspec.to_builtins(result)} for result in self.results],
        }

    def _count(self, verdict: Verdict) -> int:
        return sum(finding.verdict is verdict for _, finding in self.findings)


class Watcher(Protocol):
    """Who is told how far the exam is, from several threads."""

    def began(self, sheet: Sheet) -> None:
        """Hear that a scenario begins."""
        ...

    def stepped(self, sheet: Sheet, step: str) -> None:
        """Hear what is played next."""
        ...

    def ended(self, result: Result) -> None:
        """Hear what was found."""
        ...


class Nobody:
    """Does not want to be told."""

    def began(self, sheet: Sheet) -> None:
        """Do nothing."""

    def stepped(self, sheet: Sheet, step: str) -> None:
        """Do nothing."""

    def ended(self, result: Result) -> None:
        """Do nothing."""


def examine(ask: Ask, sheets: Sequence[Sheet], *, jobs: int | None = None, watcher: Watcher | None = None) -> Report:
    """Examine a program in scenarios side by side. One whose time was over too early is tried once more, alone.

    Raises NotBegun where there is no such program.
    """
    exam = _Exam(ask, watcher or Nobody())
    at_once = 1 if ask.markers.are_shared else jobs or PER_CORE * (os.cpu_count() or 1)
    with ThreadPoolExecutor(at_once, thread_name_prefix="forewarn-exam") as pool:
        futures = [pool.submit(exam.sit, sheet) for sheet in sheets]
        try:
            results = [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            exam.end()
            raise
    return Report(results=tuple(map(exam.settled, sheets, results)))


class _Exam:
    """Scenarios while they are played, in several threads."""

    def __init__(self, ask: Ask, watcher: Watcher) -> None:
        self._ask, self._watcher = ask, watcher
        self._lock = threading.Lock()
        self._sittings: list[Sitting] = []
        self._is_ended = False

    def sit(self, sheet: Sheet) -> Result:
        """Play one scenario. Others have to wait for what is not finished, so it is not told of yet."""
        sitting = Sitting(self._ask, sheet, lambda step: self._watcher.stepped(sheet, step))
        with self._lock:
            self._sittings.append(sitting)
            if self._is_ended:
                sitting.end()
        self._watcher.began(sheet)
        result = sitting.run()
        if result.is_finished or result.broken:
            self._watcher.ended(result)
        return result

    def settled(self, sheet: Sheet, result: Result) -> Result:
        """Return a result that stands: what was too late, on a busy machine say, has a second chance."""
        if result.is_finished or result.broken:
            return result
        second = Sitting(self._ask, sheet, lambda step: self._watcher.stepped(sheet, step)).run()
        self._watcher.ended(second)
        return second

    def end(self) -> None:
        """End everything that runs."""
        with self._lock:
            self._is_ended = True
            for sitting in self._sittings:
                sitting.end()
