"""Progress bar for long requests, on stderr."""

import sys
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress

MIN_TOTAL = 100
"""Less than this is done before anybody could look at a bar."""


class ProgressBar:
    """A progress bar that comes when it is worth one; leaving the context gives the terminal back.

    Work of which the command itself says the end needs no line here where nobody looks: `writes_end=False`.
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
        """Show how much is done."""
        if total < MIN_TOTAL or not (self._writes_end or sys.stderr.isatty()):
            return
        if self._bar is None:
            self._bar = self._create_bar(total)
        self._bar.update(self._bar.task_ids[0], completed=done)
        if done >= total:
            self._bar.stop()

    def end(self) -> None:
        """Give the terminal back, even if not all was done."""
        if self._bar is not None:
            self._bar.stop()

    def _create_bar(self, total: int) -> "Progress":
        from rich.console import Console
        from rich.progress import MofNCompleteColumn, Progress

        bar = Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=Console(stderr=True))
        bar.add_task(self._title, total=total)
        bar.start()
        return bar
