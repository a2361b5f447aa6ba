"""Time charts: rows of bars over a time axis, as time-chart.js draws them, and as a table for screen readers."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

import msgspec
from markupsafe import Markup


class BarKind(StrEnum):
    """What a bar means; `KINDS` in chart-drawing.js has their patterns and the same names."""

    NOTICE = "notice"
    APPROVAL = "approval"
    WAITING = "waiting"
    IMPACT = "impact"
    STUCK = "stuck"
    PLANNED = "planned"
    EXPECTED = "expected"
    WAVE = "wave"


BAR_NAMES = {
    BarKind.NOTICE: "Notice",
    BarKind.APPROVAL: "Approved",
    BarKind.WAITING: "Due, but it waits",
    BarKind.IMPACT: "Impact",
    BarKind.STUCK: "Stuck",
    BarKind.PLANNED: "Planned notice",
    BarKind.EXPECTED: "Expected impact",
    BarKind.WAVE: "Wave",
}


class ChartOutcome(StrEnum):
    """How an item has ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELED = "canceled"


class BackgroundKind(StrEnum):
    """What a time range behind the bars means."""

    WINDOW = "window"
    BLACKOUT = "blackout"
    STOP = "stop"
    """A campaign starts nothing: it is paused or halted, or its gate is closed."""


BACKGROUND_NAMES = {
    BackgroundKind.WINDOW: "Window",
    BackgroundKind.BLACKOUT: "Black-out",
    BackgroundKind.STOP: "Stop",
}


TABLE_LINES = 100
"""How many items a page of the table has."""

NAMES_SHOWN = 5
"""How many VMs or hosts of an item the facts name."""


def name_list(names: Sequence[str], shown: int = NAMES_SHOWN) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - shown:,} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def to_seconds(moment: datetime) -> int:
    """Return a time as a chart has it: whole seconds since 1970."""
    return int(moment.timestamp())


def to_moment(seconds: int) -> datetime:
    """Return a time of a chart as a datetime."""
    return datetime.fromtimestamp(seconds, UTC)


class ChartBar(msgspec.Struct, frozen=True, array_like=True):
    """One phase of an item. Without an end it lasts until the present."""

    kind: BarKind
    start: int
    end: int | None


class ChartItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event or a wave: what a user hovers over and opens. The bars follow each other."""

    label: str
    bars: tuple[ChartBar, ...]
    facts: tuple[tuple[str, str], ...]
    href: str | None = None
    mark: ChartOutcome | None = None
    plan: bool = False
    """Whether it is in a lane of its own above the others, to compare plan and reality."""


class ChartRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row of a chart. Items that overlap are drawn below each other."""

    label: str
    items: tuple[ChartItem, ...]
    href: str | None = None
    note: str = ""


class ChartBackground(msgspec.Struct, frozen=True, kw_only=True):
    """A time range behind all rows."""

    kind: BackgroundKind
    start: int = msgspec.field(name="from")
    end: int = msgspec.field(name="to")
    label: str


class TablePhase(NamedTuple):
    """A bar as the table shows it; without an end it lasts until the present."""

    name: str
    start: datetime
    end: datetime | None


class TableRow(NamedTuple):
    """A line of the table: an item of a row."""

    row: ChartRow
    item: ChartItem
    phases: tuple[TablePhase, ...]


class TablePage(NamedTuple):
    """A page of the table: its lines, and the numbers of the first and the last of them."""

    number: int
    lines: list[TableRow]
    first: int
    last: int


class TableSpan(NamedTuple):
    """A background as the list below the table shows it."""

    name: str
    label: str
    start: datetime
    end: datetime


class TimeChart(msgspec.Struct, frozen=True, kw_only=True):
    """A chart, and the range that it shows first. With `follow`, the range moves with the present."""

    start: int = msgspec.field(name="from")
    end: int = msgspec.field(name="to")
    rows: tuple[ChartRow, ...]
    backgrounds: tuple[ChartBackground, ...] = ()
    follow: bool = False

    @property
    def item_count(self) -> int:
        """The number of items in all rows."""
        return sum(len(row.items) for row in self.rows)

    def table(self, number: int) -> TablePage:
        """Return a page of the table, row by row and in order of time; the last one if there are fewer."""
        number = max(1, min(number, -(-self.item_count // TABLE_LINES)))
        first = (number - 1) * TABLE_LINES
        lines = list(islice(self._lines(), first, first + TABLE_LINES))
        return TablePage(number, lines, first + 1, first + len(lines))

    def _lines(self) -> Iterator[TableRow]:
        for row in self.rows:
            for item in sorted(row.items, key=lambda item: min((bar.start for bar in item.bars), default=0)):
                phases = (
                    TablePhase(
                        BAR_NAMES[bar.kind], to_moment(bar.start), None if bar.end is None else to_moment(bar.end)
                    )
                    for bar in item.bars
                )
                yield TableRow(row, item, tuple(phases))

    @property
    def ranges(self) -> list[TableSpan]:
        """The backgrounds, as a list below the table shows them."""
        return [
            TableSpan(BACKGROUND_NAMES[each.kind], each.label, to_moment(each.start), to_moment(each.end))
            for each in self.backgrounds
        ]


def chart_data(chart: TimeChart) -> Markup:
    """Return the data of a chart for a JSON element of a page. Nothing in it can end the element."""
    text = msgspec.json.encode(chart).decode()
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - without the characters that have a meaning in HTML
