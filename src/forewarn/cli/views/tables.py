"""Tables fitted to the terminal: short ids, whole URLs; a narrow terminal gets fewer columns."""

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import NamedTuple

from forewarn.api.cells import cell_of
from forewarn.cli.colours import Colour, coloured
from forewarn.cli.output import sanitize, write, write_message

GAP = "  "
SHORT_ID = 8
"""The length of an id on a terminal; longer if ids of the table begin with the same characters."""
MIN_WIDTH = 40
"""A column that can fold moves below its row rather than be narrower than this."""


class Column(NamedTuple):
    """A column and how it adapts to a narrow terminal; by default it does not."""

    title: str
    drop_order: int = 0
    """If not 0, the column can be dropped; the highest number is dropped first, what users came for last."""
    max_width: int | None = None
    """Longer cells are wrapped."""
    can_fold: bool = False
    """Its cells are wrapped into the remaining width, or moved to indented lines below. Only for the last column."""
    colours: Mapping[str, Colour] = {}
    """The colours of cells, by their text."""
    has_ids: bool = False
    """Its cells are ids. A terminal shows their beginning, which commands accept instead of the whole id."""


Row = Sequence[str]


def write_table(columns: Sequence[Column], rows: Iterable[Row]) -> None:
    """Write a table: fitted to a terminal; otherwise every row complete on one line, for programs that read it."""
    cells = [[sanitize(single_line(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _write_fitted(columns, _shorten_ids(columns, cells), shutil.get_terminal_size().columns)
        return
    lines = [[column.title for column in columns], *cells]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        write(_join_cells(line, widths))


def write_details(rows: Iterable[tuple[str, str]]) -> None:
    """Write the properties of one object, one per line, without empty ones."""
    known = [(name, sanitize(single_line(value))) for name, value in rows if value]
    widest = max(len(name) for name, _ in known)
    room = shutil.get_terminal_size().columns - widest - len(GAP)
    for name, value in known:
        lines = wrap(value, max(room, MIN_WIDTH), break_on_hyphens=False) if sys.stdout.isatty() else [value]
        for number, line in enumerate(lines):
            write(_join_cells(("" if number else name, line), (widest, 0)))


def single_line(text: str) -> str:
    """Join several lines, such as a program's output, into one."""
    return " / ".join(line.strip() for line in text.splitlines()) if "\n" in text else text


def _shorten_ids(columns: Sequence[Column], rows: Sequence[Row]) -> list[Row]:
    lengths = [short_length([row[n] for row in rows]) if column.has_ids else None for n, column in enumerate(columns)]
    return [[cell[:length] for cell, length in zip(row, lengths, strict=True)] for row in rows]


def short_length(ids: Iterable[str]) -> int:
    """Return how many characters of these ids are enough to tell them apart, and at least SHORT_ID."""
    known = set(ids)
    longest = max(map(len, known), default=0)
    lengths = range(SHORT_ID, longest)
    return next((length for length in lengths if len({id_[:length] for id_ in known}) == len(known)), longest)


def _write_fitted(columns: Sequence[Column], rows: Sequence[Row], width: int) -> None:
    shown = list(range(len(columns)))
    below: int | None = None
    while _width(columns, rows, shown) > width:
        if below is None and columns[shown[-1]].can_fold:
            below = shown.pop()
        elif any(columns[n].drop_order for n in shown):
            shown.remove(max(shown, key=lambda n: columns[n].drop_order))
        else:
            break
    for line in _table_lines(columns, rows, shown, below, width):
        write(line)
    if missing := [column.title for n, column in enumerate(columns) if n not in shown and n != below]:
        write_message(f"Too narrow for {', '.join(missing)}; -o json shows everything.")


def _table_lines(
    columns: Sequence[Column], rows: Sequence[Row], shown: list[int], below: int | None, width: int
) -> Iterator[str]:
    widths = [_cell_width(columns[n], [row[n] for row in rows]) for n in shown]
    if columns[shown[-1]].can_fold:
        longest = max(len(row[shown[-1]]) for row in [*rows, [column.title for column in columns]])
        widths[-1] = min(longest, width - sum(widths[:-1]) - len(GAP) * len(widths[:-1]))
    yield _join_cells([columns[n].title for n in shown], widths)
    yield _join_cells(["─" * each for each in widths], widths)
    for row in rows:
        folded = [
            wrap(row[n], each) if _can_wrap(columns[n]) else [row[n]] for n, each in zip(shown, widths, strict=True)
        ]
        colours = [columns[n].colours.get(row[n]) for n in shown]
        for number in range(max(map(len, folded))):
            yield _join_cells([cell[number] if number < len(cell) else "" for cell in folded], widths, colours)
        if below is not None:
            yield from wrap(row[below], max(width, MIN_WIDTH), initial_indent=GAP, subsequent_indent=GAP)


def _width(columns: Sequence[Column], rows: Sequence[Row], shown: list[int]) -> int:
    """Return the width that is needed to show these columns completely."""
    widths = [_cell_width(columns[n], [row[n] for row in rows]) for n in shown]
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _cell_width(column: Column, cells: list[str]) -> int:
    natural = max(map(len, [column.title, *cells]))
    most = MIN_WIDTH if column.can_fold else column.max_width
    return natural if most is None else min(natural, most)


def _can_wrap(column: Column) -> bool:
    return column.can_fold or column.max_width is not None


def _join_cells(cells: Sequence[str], widths: Sequence[int], colours: Sequence[Colour | None] = ()) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    padded[-1] = padded[-1].rstrip()
    shown = [coloured(cell, colour) for cell, colour in zip(padded, colours, strict=True)] if colours else padded
    return GAP.join(shown).rstrip()


def with_cells(
    items: Sequence[object], columns: Sequence[Column], rows: Iterable[Row]
) -> tuple[Sequence[Column], Iterable[Row]]:
    """Return columns and rows of a list, with the cell of each item if the list has several cells."""
    cells = [cell_of(item) for item in items]
    if not any(cells):
        return columns, rows
    return (Column("CELL"), *columns), ((cell or "", *row) for cell, row in zip(cells, rows, strict=True))
