"""Live view of `forewarn watch`: holds, open events with countdown, newest journal entries."""

import os
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC
from itertools import islice

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import ServiceUnreachable
from forewarn.cli.live.event_view import STYLES
from forewarn.cli.live.journal_stream import (
    DISCONNECTED_MESSAGE,
    REFRESH_INTERVAL,
    JournalStream,
    KeyInput,
    connection_error,
)
from forewarn.cli.live.service_clock import MANUAL_CLOCK_HINT, ServiceClock, countdown_text
from forewarn.cli.output import moment_text, sanitize
from forewarn.cli.views.event import SHORT_ID, blockers_text, hold_text, journal_row
from forewarn.cli.views.tables import GAP, Row

MAX_EVENTS = 500
"""More events than this are asked for by nobody who looks at a screen."""

MAX_CELL_WIDTH = 16
"""A cell in the middle is cut to this."""

MIN_LAST_WIDTH = 32
"""Where the last cell, which says why, would get less than this, other columns are left out."""

EVENT_DROP_ORDER = (3, 2, 1)
"""The scope, the type, the status: whether it has started is seen from its time."""

JOURNAL_DROP_ORDER = (4, 2, 5)
"""The event, the place, and who has done it."""

MIN_EVENTS = 3
JOURNAL_SHARE = 3
"""The journal gets one line of so many, or what the events leave."""


class FleetSnapshot:
    """What the screen shows, as it was when the service was asked last."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self.refresh()

    def refresh(self) -> None:
        """Ask the service."""
        self.clock = ServiceClock(self._api.clock())
        self.holds = self._api.holds()
        events = islice(self._api.events(), MAX_EVENTS)
        self.events = sorted(events, key=lambda event: (event.started_at is None, event.not_before))


def show_watch(api: ApiClient, stream: JournalStream, newest: Sequence[v1.JournalEntry]) -> None:
    """Show holds, events and journal until the user presses q."""
    snapshot, lines = FleetSnapshot(api), deque(newest, maxlen=max(len(newest), 200))
    stream_error = request_error = ""
    console = Console(highlight=False)
    with _key_input(stream), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_render(api.url, snapshot, lines, stream_error or request_error, console), refresh=True)
            items = list(stream.wait(REFRESH_INTERVAL))
            if any(isinstance(each, KeyInput) and each.key in "qQ" for each in items):
                return
            stream_error = connection_error(items, stream_error)
            lines.extend(each for each in items if isinstance(each, v1.JournalEntry))
            if (request_error or any(not isinstance(each, KeyInput) for each in items)) and not stream_error:
                request_error = _refresh(snapshot)


def _refresh(snapshot: FleetSnapshot) -> str:
    try:
        snapshot.refresh()
    except ServiceUnreachable as error:
        return str(error)
    return ""


@contextmanager
def _key_input(stream: JournalStream) -> Iterator[None]:
    """Let keys be news, each when it is pressed, and not be seen."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    tty.setcbreak(stdin)
    threading.Thread(target=_read_keys, args=(stdin, stream), daemon=True).start()
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def _read_keys(stdin: int, stream: JournalStream) -> None:
    while key := os.read(stdin, 1):
        stream.put(KeyInput(key.decode(errors="replace")))


def _render(
    url: str, snapshot: FleetSnapshot, lines: Sequence[v1.JournalEntry], error_text: str, console: Console
) -> RenderableType:
    head = _header(url, snapshot, error_text)
    room = console.size.height - sum(len(each.wrap(console, console.size.width)) for each in head) - 3
    for_events = min(len(snapshot.events), max(MIN_EVENTS, room - room // JOURNAL_SHARE))
    for_journal = max(0, room - max(for_events, 1))
    return Group(
        *head,
        Text(),
        _event_lines(snapshot, for_events, console.size.width),
        Text(),
        _journal_lines(list(lines)[-for_journal:] if for_journal else [], console.size.width),
    )


def _header(url: str, snapshot: FleetSnapshot, error_text: str) -> list[Text]:
    count = f"{len(snapshot.events)}{' or more' if len(snapshot.events) == MAX_EVENTS else ''} open events"
    head = [Text.assemble((f"{moment_text(snapshot.clock.now)}", "bold"), f"  {url}  {count}  (q ends)")]
    head += [Text(DISCONNECTED_MESSAGE + error_text, "red")] if error_text else []
    head += [Text(MANUAL_CLOCK_HINT, "dim")] if snapshot.clock.is_manual else []
    held = snapshot.holds.holds
    return [*head, *(Text(sanitize(hold_text(hold)), "yellow") for hold in held)]


def _event_lines(snapshot: FleetSnapshot, limit: int, width: int) -> RenderableType:
    if not snapshot.events:
        return Text("No open events.", "dim")
    rows = [
        (
            event.id[:SHORT_ID],
            event.status,
            event.type.value,
            event.scope,
            ", ".join(event.vms),
            countdown_text(event, snapshot.clock.now),
            blockers_text(event),
        )
        for event in snapshot.events[:limit]
    ]
    return _aligned([("EVENT", "STATUS", "TYPE", "SCOPE", "VMS", "TIME", "WAITS FOR"), *rows], width, EVENT_DROP_ORDER)


def _journal_lines(entries: Sequence[v1.JournalEntry], width: int) -> RenderableType:
    rows = [(f"{entry.at.astimezone(UTC):%H:%M:%SZ}", *journal_row(entry)[1:]) for entry in entries]
    return _aligned(rows, width, JOURNAL_DROP_ORDER)


def _aligned(rows: Sequence[Row], width: int, drop_order: Sequence[int]) -> Text:
    """Draw rows of one line each; the last cell gets what the others leave, and what does not fit is cut.

    `drop_order` are columns that are left out where that would be too little, the first of them first.
    """
    widths = [min(max(map(len, cells)), MAX_CELL_WIDTH) for cells in zip(*rows, strict=True)]
    shown = list(range(len(widths) - 1))
    for column in drop_order:
        if sum(widths[n] + len(GAP) for n in shown) > width - MIN_LAST_WIDTH and column in shown:
            shown.remove(column)
    drawn = Text(no_wrap=True, overflow="ellipsis")
    for number, row in enumerate(rows):
        drawn.append("\n" if number else "")
        for n in shown:
            drawn.append(_cut(sanitize(row[n]), widths[n]).ljust(widths[n]), STYLES.get(row[n], ""))
            drawn.append(GAP)
        drawn.append(sanitize(row[-1]))
    return drawn


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else f"{cell[: width - 1]}…"
