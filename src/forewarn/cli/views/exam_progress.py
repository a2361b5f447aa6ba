"""Progress of an exam on stderr: one updating line on a terminal, otherwise one line per finished scenario."""

import math
import sys
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from forewarn.cli.output import write_message
from forewarn.cli.views.progress import draw_status
from forewarn.core.duration import format_duration

if TYPE_CHECKING:
    from forewarn.testing.exam import ExamScenario, Result


class ExamProgress:
    """Shows the progress of an exam on stderr; thread-safe. A scenario takes at most `limit` seconds."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._is_live = sys.stderr.isatty()
        self._lock = threading.Lock()
        self._total = self._done = 0
        self._time_limit, self._began_at = "", 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            draw_status("")

    def planned(self, scenarios: "Sequence[ExamScenario]", *, at_once: int, tries: int) -> None:
        """Write how many scenarios run next and how long they can take."""
        with self._lock:
            self._total, self._done, self._began_at = len(scenarios), 0, time.monotonic()
            rounds = math.ceil(len(scenarios) / at_once)
            self._time_limit = format_duration(timedelta(seconds=math.ceil(rounds * self._limit)))
            if self._is_live:
                draw_status("")
            if tries == 1:
                how = "" if len(scenarios) == 1 else f", {min(at_once, len(scenarios))} at a time"
                write_message(
                    f"{_scenario_count(len(scenarios))}{how}: at most {self._time_limit} if it polls every second."
                )
            else:
                names = ", ".join(scenario.name for scenario in scenarios)
                write_message(
                    f"The machine was too busy for {names}. Running them again, one by one: at most {self._time_limit}."
                )

    def began(self, scenario: "ExamScenario") -> None:
        """Show that a scenario starts."""
        self.stepped(scenario, "")

    def stepped(self, scenario: "ExamScenario", step: str) -> None:
        """Show the current step."""
        if self._is_live:
            with self._lock:
                took = f"{time.monotonic() - self._began_at:.0f} s of at most {self._time_limit}"
                draw_status(f"{self._done} of {_scenario_count(self._total)}, {took}. {scenario.name}: {step}")

    def ended(self, result: "Result") -> None:
        """Show the result of a scenario."""
        with self._lock:
            self._done += 1
            if self._is_live:
                draw_status("")
            if result.is_passed and self._is_live:
                return
            mark = "✓" if result.is_passed else "✗" if result.broken else "?"
            broken = ", ".join(finding.demand for finding in result.broken) or result.problem or ""
            again = ", second try, alone" if result.tries > 1 else ""
            write_message(f"{mark} {result.scenario}{again}{f': {broken}' if broken else ''}")


def _scenario_count(number: int) -> str:
    return "1 scenario" if number == 1 else f"{number} scenarios"
