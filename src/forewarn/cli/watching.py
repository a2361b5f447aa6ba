"""Telling changes as they happen: in lines, and on a terminal with a countdown below them."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime

import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from forewarn.cli.output import Output, write
from forewarn.cli.sight import change_line, prospect, seen_change
from forewarn.cli.tables import GAP
from forewarn.client import Appeared, Change, Changed, Event, Gone, Started
from forewarn.client.document import event_key

COLOURS: dict[type[Change], str] = {Appeared: "yellow", Changed: "cyan", Started: "red", Gone: "green"}

Tell = Callable[[Change], None]
Now = Callable[[], datetime]


@contextmanager
def telling(output: Output, endpoint: str, name: str | None, now: Now) -> Iterator[Tell]:
    """Give what tells a change, in the form that was asked for."""
    if output is Output.JSON:
        yield lambda change: write(msgspec.json.encode(seen_change(change, name, now())).decode())
    elif sys.stdout.isatty():
        countdown = _Countdown(endpoint, now)
        with Live(console=Console(), get_renderable=countdown.text, refresh_per_second=1, transient=True) as live:
            yield countdown.telling(live)
    else:
        yield lambda change: write(GAP.join(change_line(change, now())))


class _Countdown:
    """What stands below the lines: the events that are there, and the time that is left."""

    def __init__(self, endpoint: str, now: Now) -> None:
        self._endpoint, self._now = endpoint, now
        self._events: dict[str, Event] = {}

    def text(self) -> Text:
        """Write it as it is now."""
        there = prospect(tuple(self._events.values()), self._now())
        lines: Iterable[str] = there or [f"Nothing is planned. Watching {self._endpoint} until Ctrl-C."]
        return Text("\n".join(lines), style="dim")

    def telling(self, live: Live) -> Tell:
        """Return what writes a change above it."""

        def tell(change: Change) -> None:
            self._take(change)
            when, what, about = change_line(change, self._now())
            line = Text.assemble(when, GAP, (what, COLOURS[type(change)]), GAP, about)
            live.console.print(line, soft_wrap=True)
            live.refresh()

        return tell

    def _take(self, change: Change) -> None:
        # The display is drawn by another thread, so it gets a new dictionary and never a changing one.
        id_ = event_key(change.event)
        others = {other: event for other, event in self._events.items() if other != id_}
        self._events = others if isinstance(change, Gone) else {**others, id_: change.event}
