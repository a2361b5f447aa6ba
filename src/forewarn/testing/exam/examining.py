"""The whole exam: scenarios side by side, each with a program and a service of its own."""

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec

from forewarn.testing.exam.demands import Finding, Verdict
from forewarn.testing.exam.doubts import doubtful
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
    def unfinished(self) -> tuple[Result, ...]:
        """Where nobody can say what the program would have done: nothing was broken, and the story was not over."""
        return tuple(result for result in self.results if not result.is_finished and not result.broken)

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

    def planned(self, sheets: Sequence[Sheet], *, at_once: int, tries: int) -> None:
        """Hear which scenarios are played next: all of them, and later those that deserve a second try."""
        ...

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

    def planned(self, sheets: Sequence[Sheet], *, at_once: int, tries: int) -> None:
        """Do nothing."""

    def began(self, sheet: Sheet) -> None:
        """Do nothing."""

    def stepped(self, sheet: Sheet, step: str) -> None:
        """Do nothing."""

    def ended(self, result: Result) -> None:
        """Do nothing."""


def examine(ask: Ask, sheets: Sequence[Sheet], *, jobs: int | None = None, watcher: Watcher | None = None) -> Report:
    """Examine a program in scenarios side by side. What a busy machine may have spoilt is tried once more, alone.

    Raises NotBegun where there is no such program.
    """
    watcher = watcher or Nobody()
    exam = _Exam(ask, watcher)
    at_once = 1 if ask.markers.are_shared else jobs or PER_CORE * (os.cpu_count() or 1)
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="forewarn-exam")
    # Here nothing is done but waiting, so that an interruption, at whatever moment, finds nothing half begun.
    try:
        watcher.planned(sheets, at_once=at_once, tries=1)
        results = list(pool.map(exam.sit, sheets))
        if spoilt := doubtful(sheets, results):
            watcher.planned(spoilt, at_once=1, tries=2)
        again = {one.scenario: one for one in _one_by_one(pool, exam, spoilt)}
    except BaseException:
        exam.end()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return Report(results=tuple(again.get(result.scenario, result) for result in results))


def _one_by_one(pool: ThreadPoolExecutor, exam: "_Exam", sheets: Sequence[Sheet]) -> Iterator[Result]:
    for sheet in sheets:
        yield pool.submit(exam.sit, sheet, tries=2).result()


class _Exam:
    """Scenarios while they are played, in several threads."""

    def __init__(self, ask: Ask, watcher: Watcher) -> None:
        self._ask, self._watcher = ask, watcher
        self._lock = threading.Lock()
        self._sittings: list[Sitting] = []
        self._is_ended = False

    def sit(self, sheet: Sheet, tries: int = 1) -> Result:
        """Play one scenario."""
        sitting = Sitting(self._ask, sheet, lambda step: self._watcher.stepped(sheet, step))
        with self._lock:
            self._sittings.append(sitting)
            if self._is_ended:
                sitting.end()
        self._watcher.began(sheet)
        result = msgspec.structs.replace(sitting.run(), tries=tries)
        self._watcher.ended(result)
        return result

    def end(self) -> None:
        """End everything that runs."""
        with self._lock:
            self._is_ended = True
            for sitting in self._sittings:
                sitting.end()
