"""The live screen: holds, open events with their countdown, and the newest lines of the journal."""

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
from forewarn.api.errors import CannotReach
from forewarn.cli.countdown import STANDING, ServiceTime, countdown
from forewarn.cli.feed import TICK, TROUBLE, Feed, Pressed, trouble_after
from forewarn.cli.output import harmless, moment_text
from forewarn.cli.showing import SHORT_ID, hold_sentence, journal_row, waits_for
from forewarn.cli.tables import GAP, Row
from forewarn.cli.views import STYLES

MOST_EVENTS = 500
"""More events than this are asked for by nobody who looks at a screen."""

WIDEST = 16
"""A cell in the middle is cut to this."""

LEAST_LEFT = 32
"""Where the last cell, which says why, would get less than this, other columns are left out."""

SPARE_OF_EVENTS = (3, 2, 1)
"""The scope, the type, the status: whether it has started is seen from its time."""

SPARE_OF_JOURNAL = (4, 2, 5)
"""The event, the place, and who has done it."""

LEAST_EVENTS = 3
JOURNAL_SHARE = 3
"""The journal gets one line of so many, or what the events leave."""


class Fleet:
    """What the screen shows, as it was when the service was asked last."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self.refresh()

    def refresh(self) -> None:
        """Ask the service."""
        self.time = ServiceTime(self._api.clock())
        self.holds = self._api.holds()
        events = islice(self._api.events(), MOST_EVENTS)
        self.events = sorted(events, key=lambda event: (event.started_at is None, event.not_before))


def show_screen(api: ApiClient, feed: Feed, newest: Sequence[v1.JournalEntry]) -> None:
    """Show the screen until somebody presses q."""
    fleet, lines = Fleet(api), deque(newest, maxlen=max(len(newest), 200))
    lost = missed = ""
    console = Console(highlight=False)
    with _keys(feed), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_drawn(api.url, fleet, lines, lost or missed, console), refresh=True)
            news = list(feed.wait(TICK))
            if any(isinstance(each, Pressed) and each.key in "qQ" for each in news):
                return
            lost = trouble_after(news, lost)
            lines.extend(each for each in news if isinstance(each, v1.JournalEntry))
            if (missed or any(not isinstance(each, Pressed) for each in news)) and not lost:
                missed = _refreshed(fleet)


def _refreshed(fleet: Fleet) -> str:
    try:
        fleet.refresh()
    except CannotReach as error:
        return str(error)
    return ""


@contextmanager
def _keys(feed: Feed) -> Iterator[None]:
    """Let keys be news, each when it is pressed, and not be seen."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    tty.setcbreak(stdin)
    threading.Thread(target=_read_keys, args=(stdin, feed), daemon=True).start()
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def _read_keys(stdin: int, feed: Feed) -> None:
    while key := os.read(stdin, 1):
        feed.put(Pressed(key.decode(errors="replace")))


def _drawn(url: str, fleet: Fleet, lines: Sequence[v1.JournalEntry], trouble: str, console: Console) -> RenderableType:
    head = _head(url, fleet, trouble)
    room = console.size.height - sum(len(each.wrap(console, console.size.width)) for each in head) - 3
    for_events = min(len(fleet.events), max(LEAST_EVENTS, room - room // JOURNAL_SHARE))
    for_journal = max(0, room - max(for_events, 1))
    return Group(
        *head,
        Text(),
        _events(fleet, for_events, console.size.width),
        Text(),
        _journal(list(lines)[-for_journal:] if for_journal else [], console.size.width),
    )


def _head(url: str, fleet: Fleet, trouble: str) -> list[Text]:
    count = f"{len(fleet.events)}{' or more' if len(fleet.events) == MOST_EVENTS else ''} open events"
    head = [Text.assemble((f"{moment_text(fleet.time.now)}", "bold"), f"  {url}  {count}  (q ends)")]
    head += [Text(TROUBLE + trouble, "red")] if trouble else []
    head += [Text(STANDING, "dim")] if fleet.time.stands else []
    held = [*((fleet.holds.fleet,) if fleet.holds.fleet is not None else ()), *fleet.holds.scopes]
    return [*head, *(Text(harmless(hold_sentence(hold)), "yellow") for hold in held)]


def _events(fleet: Fleet, most: int, width: int) -> RenderableType:
    if not fleet.events:
        return Text("No open events.", "dim")
    rows = [
        (
            event.id[:SHORT_ID],
            event.status,
            event.type.value,
            event.scope,
            ", ".join(event.vms),
            countdown(event, fleet.time.now),
            waits_for(event),
        )
        for event in fleet.events[:most]
    ]
    return _lines([("EVENT", "STATUS", "TYPE", "SCOPE", "VMS", "TIME", "WAITS FOR"), *rows], width, SPARE_OF_EVENTS)


def _journal(entries: Sequence[v1.JournalEntry], width: int) -> RenderableType:
    rows = [(f"{entry.at.astimezone(UTC):%H:%M:%SZ}", *journal_row(entry)[1:]) for entry in entries]
    return _lines(rows, width, SPARE_OF_JOURNAL)


def _lines(rows: Sequence[Row], width: int, spare: Sequence[int]) -> Text:
    """Draw rows of one line each; the last cell gets what the others leave, and what does not fit is cut.

    `spare` are columns that are left out where that would be too little, the first of them first.
    """
    widths = [min(max(map(len, cells)), WIDEST) for cells in zip(*rows, strict=True)]
    shown = list(range(len(widths) - 1))
    for column in spare:
        if sum(widths[n] + len(GAP) for n in shown) > width - LEAST_LEFT and column in shown:
            shown.remove(column)
    drawn = Text(no_wrap=True, overflow="ellipsis")
    for number, row in enumerate(rows):
        drawn.append("\n" if number else "")
        for n in shown:
            drawn.append(_cut(harmless(row[n]), widths[n]).ljust(widths[n]), STYLES.get(row[n], ""))
            drawn.append(GAP)
        drawn.append(harmless(row[-1]))
    return drawn


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else f"{cell[: width - 1]}…"
