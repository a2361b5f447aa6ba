"""How events that are followed are shown: live on a terminal, as lines elsewhere, an object per change for programs."""

import sys
from collections.abc import Sequence
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from forewarn.api import v1
from forewarn.cli.countdown import STANDING, ServiceTime, countdown
from forewarn.cli.feed import BACK, TROUBLE
from forewarn.cli.output import Output, harmless, moment_text, say, write, write_json_line
from forewarn.cli.showing import SHORT_ID, waits_for
from forewarn.core.scope import EventOutcome

STYLES = {
    "Started": "yellow",
    EventOutcome.COMPLETED.value: "green",
    EventOutcome.CANCELED.value: "dim",
    EventOutcome.FAILED.value: "red",
}


class View(Protocol):
    """Shows events that are followed."""

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(self, *_: object) -> None:
        """Give the terminal back."""

    def show(self, changed: Sequence[v1.EventStory], time: ServiceTime, trouble: str) -> None:
        """Show what has changed, what time it is now, and why the service cannot be reached."""


def view_for(output: Output) -> View:
    """Return the view for this output."""
    if output is Output.JSON:
        return Objects()
    return LiveTable() if sys.stdout.isatty() else Lines()


class Lines:
    """A line per change."""

    def __init__(self) -> None:
        self._trouble = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, changed: Sequence[v1.EventStory], time: ServiceTime, trouble: str) -> None:
        """Write a line for each change."""
        for story in changed:
            self.write(story, time)
        if bool(trouble) is not bool(self._trouble):
            say(TROUBLE + trouble if trouble else BACK)
        self._trouble = trouble

    def write(self, story: v1.EventStory, time: ServiceTime) -> None:
        """Write one change."""
        more = f": {text}" if (text := _more(story)) else ""
        write(f"{moment_text(time.now)}  {_short(story)}  {_what(story)}  {_status(story)}{more}")


class Objects(Lines):
    """An object per change, in one line."""

    def write(self, story: v1.EventStory, _: ServiceTime) -> None:
        """Write one change."""
        write_json_line(story)


class LiveTable:
    """A table that is always up to date, with a countdown."""

    def __init__(self) -> None:
        self._stories: dict[str, v1.EventStory] = {}
        self._live = Live(console=Console(highlight=False), auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, changed: Sequence[v1.EventStory], time: ServiceTime, trouble: str) -> None:
        """Show all events, and what time it is for them."""
        self._stories |= {story.id: story for story in changed}
        self._live.update(self._drawn(time, trouble), refresh=True)

    def _drawn(self, time: ServiceTime, trouble: str) -> RenderableType:
        table = Table(box=None, pad_edge=False, header_style="")
        for title in ("EVENT", "TYPE", "VMS", "STATUS", "TIME"):
            table.add_column(title, no_wrap=title != "VMS")
        table.add_column("", ratio=1)
        for story in self._stories.values():
            status = _status(story)
            table.add_row(
                _short(story),
                "" if story.type is None else story.type.value,
                ", ".join(story.vms),
                Text(status, STYLES.get(status, "")),
                "" if story.event is None else countdown(story.event, time.now),
                Text(harmless(_more(story))),
            )
        is_open = any(story.event is not None for story in self._stories.values())
        below = [Text(TROUBLE + trouble, "red")] if trouble else []
        below += [Text(STANDING, "dim")] if time.stands and is_open else []
        return Group(table, *below)


def _short(story: v1.EventStory) -> str:
    return story.id[:SHORT_ID]


def _what(story: v1.EventStory) -> str:
    type_ = "event" if story.type is None else story.type.value
    return f"{type_} of {', '.join(story.vms)}"


def _status(story: v1.EventStory) -> str:
    if story.event is not None:
        return story.event.status
    return "over" if story.outcome is None else story.outcome.value


def _more(story: v1.EventStory) -> str:
    return "" if story.event is None else waits_for(story.event)
