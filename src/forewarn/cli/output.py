"""Results go to stdout, as a table for people or as JSON for programs; everything else that is said goes to stderr."""

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec


class Output(StrEnum):
    """How results are shown."""

    TABLE = "table"
    JSON = "json"


def say(sentence: str) -> None:
    """Tell the user something that is no result."""
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()


def write(text: str) -> None:
    """Write a line of the result."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def write_json(value: Any) -> None:
    """Write the result for programs."""
    write(msgspec.json.format(msgspec.json.encode(value)).decode())


def write_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write the result for people: with lines on a terminal, plain where another program may read it."""
    if sys.stdout.isatty():
        _write_drawn(columns, rows)
    else:
        _write_plain([columns, *rows])


def _write_drawn(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def _write_plain(lines: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        write("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def moment_text(moment: datetime) -> str:
    """Write a moment for people."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
