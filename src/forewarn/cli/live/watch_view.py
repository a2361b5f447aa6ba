"""The view of `forewarn watch`: holds, open events with countdown, newest journal entries."""

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC
from itertools import islice

from rich.console import Console, Group, RenderableType
from rich.text import Text

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.cli.live.event_follow import STYLES
from forewarn.cli.live.live_view import LiveContent
from forewarn.cli.live.service_clock import MANUAL_CLOCK_HINT, ServiceClock, countdown_text
from forewarn.cli.output import moment_text, sanitize
from forewarn.cli.views.event import blockers_text, hold_text, journal_row
from forewarn.cli.views.tables import GAP, SHORT_ID, Row

MAX_EVENTS = 500
"""How many events are fetched at most; a screen shows fewer."""

MAX_CELL_WIDTH = 16
"""The maximum width of a cell, except in the last column."""

MIN_LAST_WIDTH = 32
"""The last column, which has the reason, gets at least this width; other columns are dropped for it."""

EVENT_DROP_ORDER = (3, 2, 1)
"""Scope, type, status. The time also shows whether an event has started."""

JOURNAL_DROP_ORDER = (4, 2, 5)
"""Event, location, actor."""

MIN_EVENTS = 3
JOURNAL_SHARE = 3
"""The journal gets at least one line in three, and all lines that the events do not use."""


class WatchView(LiveContent[v1.JournalEntry]):
    """The whole fleet in its last fetched state. Without a terminal: the journal entries only."""

    is_full_screen = True
    is_finished = False

    def __init__(self, api: ApiClient, newest: Sequence[v1.JournalEntry], *, is_terminal: bool) -> None:
        self._api = api
        self._entries = deque(newest, maxlen=max(len(newest), 200))
        self._is_terminal = is_terminal

    def refresh(self) -> None:
        """Fetch the service's time, holds and open events; without a terminal, nothing."""
        if not self._is_terminal:
            return
        self._clock = ServiceClock(self._api.clock())
        self._holds = self._api.holds()
        events = islice(self._api.events(), MAX_EVENTS)
        self._events = sorted(events, key=lambda event: (event.started_at is None, event.not_before))

    def text_lines(self, entries: Sequence[v1.JournalEntry]) -> Iterator[str]:
        """Yield one line per journal entry."""
        for entry in entries:
            yield GAP.join(cell for cell in journal_row(entry) if cell)

    def json_objects(self, entries: Sequence[v1.JournalEntry]) -> Sequence[object]:
        """Return each journal entry."""
        return entries

    def lines_above(self, entries: Sequence[v1.JournalEntry]) -> tuple[str, ...]:
        """Keep the entries for the next redraw; no lines stay above a full screen."""
        self._entries.extend(entries)
        return ()

    def render(self, warning: Sequence[Text], console: Console) -> RenderableType:
        """Draw as many events and journal entries as fit."""
        head = self._header(warning)
        room = console.size.height - sum(len(each.wrap(console, console.size.width)) for each in head) - 3
        for_events = min(len(self._events), max(MIN_EVENTS, room - room // JOURNAL_SHARE))
        for_journal = max(0, room - max(for_events, 1))
        return Group(
            *head,
            Text(),
            _event_lines(self._events[:for_events], self._clock, console.size.width),
            Text(),
            _journal_lines(list(self._entries)[-for_journal:] if for_journal else [], console.size.width),
        )

    def _header(self, warning: Sequence[Text]) -> list[Text]:
        count = f"{len(self._events)}{' or more' if len(self._events) == MAX_EVENTS else ''} open events"
        head = Text.assemble((f"{moment_text(self._clock.now)}", "bold"), f"  {self._api.url}  {count}  (q quits)")
        hint = [Text(MANUAL_CLOCK_HINT, "dim")] if self._clock.is_manual else []
        holds = [Text(sanitize(hold_text(hold)), "yellow") for hold in self._holds.holds]
        return [head, *warning, *hint, *holds]


def _event_lines(events: Sequence[v1.Event], clock: ServiceClock, width: int) -> RenderableType:
    if not events:
        return Text("No open events.", "dim")
    rows = [
        (
            event.id[:SHORT_ID],
            event.status,
            event.type.value,
            event.scope,
            ", ".join(event.vms),
            countdown_text(event, clock.now),
            blockers_text(event),
        )
        for event in events
    ]
    return _aligned([("EVENT", "STATUS", "TYPE", "SCOPE", "VMS", "TIME", "WAITS FOR"), *rows], width, EVENT_DROP_ORDER)


def _journal_lines(entries: Sequence[v1.JournalEntry], width: int) -> RenderableType:
    rows = [(f"{entry.at.astimezone(UTC):%H:%M:%SZ}", *journal_row(entry)[1:]) for entry in entries]
    return _aligned(rows, width, JOURNAL_DROP_ORDER)


def _aligned(rows: Sequence[Row], width: int, drop_order: Sequence[int]) -> Text:
    """Draw one line per row. The last cell gets the remaining width; text that does not fit is cut.

    `drop_order` lists the columns to drop, first to last, if the last cell would be too narrow.
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
