"""How far an exam is: a line that changes on a terminal, else one line for each scenario that has ended."""

import shutil
import sys
import threading
from typing import TYPE_CHECKING, Self

from forewarn.cli.output import harmless, say

if TYPE_CHECKING:
    from forewarn.testing.exam import Result, Sheet


class Progress:
    """Is told from several threads, and shows it on stderr."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._is_live = sys.stderr.isatty()
        self._lock = threading.Lock()
        self._done = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._draw("")

    def began(self, sheet: "Sheet") -> None:
        """Show that a scenario begins."""
        self.stepped(sheet, "")

    def stepped(self, sheet: "Sheet", step: str) -> None:
        """Show what is played next."""
        if self._is_live:
            with self._lock:
                self._draw(f"{self._done} of {self._total} scenarios. {sheet.name}: {step}")

    def ended(self, result: "Result") -> None:
        """Show what was found."""
        with self._lock:
            self._done += result.tries == 1
            if self._is_live:
                self._draw("")
            mark = "✓" if result.is_passed else "✗" if result.broken else "?"
            broken = ", ".join(finding.demand for finding in result.broken) or result.problem or ""
            again = ", once more and alone" if result.tries > 1 else ""
            say(f"{mark} {result.scenario}{again}{f': {broken}' if broken else ''}")

    def _draw(self, line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{harmless(line)[:width]}")
        sys.stderr.flush()
