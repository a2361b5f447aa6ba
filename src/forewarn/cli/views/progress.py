"""Progress on stderr: a bar for long requests, and a status line that is drawn again when something changes."""

import shutil
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from forewarn.cli.output import sanitize, write_message

if TYPE_CHECKING:
    from rich.progress import Progress

KIB = 1024

MIN_TOTAL = 100
"""Shorter work ends before a user could look at a bar."""

CLEAR_LINE = "\r\x1b[K"
"""Moves to the beginning of the line and clears it."""


class ProgressBar:
    """A progress bar for work of at least `MIN_TOTAL` items; leaving the context restores the terminal.

    `writes_end=False` writes nothing if stderr is not a terminal, for commands that report the end themselves.
    """

    def __init__(self, title: str, *, writes_end: bool = True) -> None:
        self._title = title
        self._writes_end = writes_end
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def show(self, done: int, total: int) -> None:
        """Show the progress."""
        if total < MIN_TOTAL or not (self._writes_end or sys.stderr.isatty()):
            return
        if self._bar is None:
            self._bar = self._create_bar(total)
        self._bar.update(self._bar.task_ids[0], completed=done)
        if done >= total:
            self._bar.stop()

    def end(self) -> None:
        """Stop the bar and restore the terminal."""
        if self._bar is not None:
            self._bar.stop()

    def _create_bar(self, total: int) -> "Progress":
        from rich.console import Console
        from rich.progress import MofNCompleteColumn, Progress

        bar = Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=Console(stderr=True))
        bar.add_task(self._title, total=total)
        bar.start()
        return bar


class StepProgressBars:
    """Shows the steps of long work on a terminal."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._bars: dict[str, ProgressBar] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def show(self, step: str, done: int, total: int) -> None:
        """Show the progress of a step. Bytes are counted in units of 1024."""
        if total == 1:
            if sys.stderr.isatty():
                write_message(f"{step}.")
            return
        if step not in self._bars:
            self._stack.close()
            self._bars[step] = self._stack.enter_context(ProgressBar(step, writes_end=False))
        unit = KIB if step.startswith("Copying") else 1
        self._bars[step].show(done // unit, total // unit)


def draw_status(line: str, end: str = "") -> None:
    """Draw a line over the last one; if it is too long, cut `line` but not `end`. A final newline keeps it."""
    width = max(shutil.get_terminal_size().columns - 1 - len(end.rstrip("\n")), 1)
    shown = sanitize(line)
    cut = shown if len(shown) <= width else f"{shown[: width - 1]}…"
    sys.stderr.write(f"{CLEAR_LINE}{cut}{end}")
    sys.stderr.flush()
