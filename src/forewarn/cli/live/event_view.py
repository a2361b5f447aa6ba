"""Views of followed events: a live table on a terminal, text lines elsewhere, JSON lines for programs."""

import sys
from collections.abc import Sequence
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from forewarn.api import v1
from forewarn.cli.live.journal_stream import DISCONNECTED_MESSAGE, RECONNECTED_MESSAGE
from forewarn.cli.live.service_clock import MANUAL_CLOCK_HINT, ServiceClock, countdown_text
from forewarn.cli.output import Output, moment_text, sanitize, write, write_json_line, write_message
from forewarn.cli.views.event import SHORT_ID, blockers_text
from forewarn.core.scope import EventOutcome

STYLES = {
    "Started": "yellow",
    EventOutcome.COMPLETED.value: "green",
    EventOutcome.CANCELED.value: "dim",
    EventOutcome.FAILED.value: "red",
}


class EventView(Protocol):
    """Shows events that are followed."""

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(self, *_: object) -> None:
        """Give the terminal back."""

    def show(self, changed: Sequence[v1.EventDetail], clock: ServiceClock, error_text: str) -> None:
        """Show what has changed, what time it is now, and why the service cannot be reached."""


def view_for(output: Output) -> EventView:
    """Return the view for this output."""
    if output is Output.JSON:
        return JsonEventView()
    return LiveEventView() if sys.stdout.isatty() else TextEventView()


class TextEventView:
    """A line per change."""

    def __init__(self) -> None:
        self._error_text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, changed: Sequence[v1.EventDetail], clock: ServiceClock, error_text: str) -> None:
        """Write a line for each change."""
        for detail in changed:
            self.write(detail, clock)
        if bool(error_text) is not bool(self._error_text):
            write_message(DISCONNECTED_MESSAGE + error_text if error_text else RECONNECTED_MESSAGE)
        self._error_text = error_text

    def write(self, detail: v1.EventDetail, clock: ServiceClock) -> None:
        """Write one change."""
        more = f": {text}" if (text := _blockers(detail)) else ""
        write(f"{moment_text(clock.now)}  {_short_id(detail)}  {_subject(detail)}  {_status_text(detail)}{more}")


class JsonEventView(TextEventView):
    """An object per change, in one line."""

    def write(self, detail: v1.EventDetail, _: ServiceClock) -> None:
        """Write one change."""
        write_json_line(detail)


class LiveEventView:
    """A table that is always up to date, with a countdown."""

    def __init__(self) -> None:
        self._details: dict[str, v1.EventDetail] = {}
        self._live = Live(console=Console(highlight=False), auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, changed: Sequence[v1.EventDetail], clock: ServiceClock, error_text: str) -> None:
        """Show all events, and what time it is for them."""
        self._details |= {detail.id: detail for detail in changed}
        self._live.update(self._render(clock, error_text), refresh=True)

    def _render(self, clock: ServiceClock, error_text: str) -> RenderableType:
        table = Table(box=None, pad_edge=False, header_style="")
        for title in ("EVENT", "TYPE", "VMS", "STATUS", "TIME"):
            table.add_column(title, no_wrap=title != "VMS")
        table.add_column("", ratio=1)
        for detail in self._details.values():
            status = _status_text(detail)
            table.add_row(
                _short_id(detail),
                "" if detail.type is None else detail.type.value,
                ", ".join(detail.vms),
                Text(status, STYLES.get(status, "")),
                "" if detail.event is None else countdown_text(detail.event, clock.now),
                Text(sanitize(_blockers(detail))),
            )
        is_open = any(detail.event is not None for detail in self._details.values())
        below = [Text(DISCONNECTED_MESSAGE + error_text, "red")] if error_text else []
        below += [Text(MANUAL_CLOCK_HINT, "dim")] if clock.is_manual and is_open else []
        return Group(table, *below)


def _short_id(detail: v1.EventDetail) -> str:
    return detail.id[:SHORT_ID]


def _subject(detail: v1.EventDetail) -> str:
    type_ = "event" if detail.type is None else detail.type.value
    return f"{type_} of {', '.join(detail.vms)}"


def _status_text(detail: v1.EventDetail) -> str:
    if detail.event is not None:
        return detail.event.status
    return "over" if detail.outcome is None else detail.outcome.value


def _blockers(detail: v1.EventDetail) -> str:
    return "" if detail.event is None else blockers_text(detail.event)
