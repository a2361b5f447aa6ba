"""Translation from the Markdown of git hosts (CommonMark with tables) to that of Python-Markdown, which Zensical uses.

| what                    | git hosts                              | Python-Markdown                          |
|-------------------------|----------------------------------------|------------------------------------------|
| block in a list item    | indented like the text of the item     | indented by 4 spaces, after an empty line |
| list after a paragraph  | needs no empty line                    | needs one                                |
| `|` in code in a table  | `\\|`                                   | `|`                                      |

A test compares each page in both renderings.
"""

import re
from typing import NamedTuple

MARKER = re.compile(r"(?:[-*+]|\d+[.)]) +(?=\S)")
TICKS = re.compile(r"```+")
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")


class Fence(NamedTuple):
    """An open code block."""

    ticks: str
    column: int
    """Where its lines start, counted in the source."""
    depth: int


def translate(text: str) -> str:
    """Return a page in the form that Python-Markdown renders as a git host renders the original."""
    lines: list[str] = []
    columns: list[int] = []  # where the text of each open list item starts
    fence: Fence | None = None
    for line in text.splitlines():
        content = line.lstrip(" ")
        indent = len(line) - len(content)
        if fence:
            lines.append(" " * 4 * fence.depth + line[min(indent, fence.column) :])
            if content == fence.ticks:
                fence = None
            continue
        if not content:
            lines.append("")
            continue
        while columns and indent < columns[-1]:
            columns.pop()
        marker, ticks = MARKER.match(content), TICKS.match(content)
        is_row = content.startswith("|")
        before = lines[-1].lstrip() if lines else ""
        if before and (ticks or (is_row and before[0] != "|") or (marker and not MARKER.match(before))):
            lines.append("")
        column = columns[-1] if columns else 0
        lines.append(" " * (4 * len(columns) + indent - column) + (table_row(content) if is_row else content))
        if ticks:
            fence = Fence(ticks[0], column, len(columns))
        elif marker:
            columns.append(indent + marker.end())
    return "\n".join([*lines, ""])


def table_row(line: str) -> str:
    """Return a row of a table with `|` in code as it is."""
    return CODE.sub(lambda code: code[0].replace("\\|", "|"), line)
