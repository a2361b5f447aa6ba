"""A Forewarn process under test, from the outside."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from bench.process import Talk, talking, wait_for
from bench.service import Counted, Look, Made, Ready, Schedule, Task

UNREACHED = 1_000_000_000
"""A rate limit that is in force, and that nobody reaches."""


class Served:
    """The process, its port, and what one may ask of it."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self.pid = talk.pid
        ready = talk.hear(Ready)
        self.port = ready.port
        self.operator_url = ready.operator_url
        self.token = Path(ready.token_file).read_text(encoding="ascii").strip()

    def look(self) -> Counted:
        """Return what the endpoint has counted."""
        self._talk.tell(Look())
        return self._talk.hear(Counted)

    def schedule(self, vms: tuple[str, ...], *, not_before: datetime | None = None) -> tuple[tuple[str, str], ...]:
        """Make events and return pairs of scope and event."""
        self._talk.tell(Schedule(vms, not_before))
        return self._talk.hear(Made).events

    def wait_until_held(self, number: int) -> None:
        """Return as soon as so many requests are held."""
        wait_for(lambda: self.look().held == number, f"{number} held requests")


@contextmanager
def serving(task: Task) -> Iterator[Served]:
    """Run the process for a while."""
    with talking("bench.service", task) as talk:
        yield Served(talk)
