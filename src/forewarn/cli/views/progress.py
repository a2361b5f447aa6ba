"""Progress bar for long requests, on stderr."""

import sys
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress

MIN_TOTAL = 100
"""Shorter work ends before a user could look at a bar."""


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
