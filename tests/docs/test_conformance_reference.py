"""The reference of the conformance kit has every row with the text of the code."""

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from forewarn.testing.conformance import RULES, Pace, Precondition, Rule, plain_text
from tests.testing.conformance.mock import MockEndpoint, run_mock

PAGE = Path(__file__).parents[2] / "docs/reference/conformance.md"
SHOWN_URL = "http://127.0.0.1:8180"
BEGIN, END = "<!-- from the code -->\n", "<!-- end of the code -->\n"


def tables() -> Iterator[str]:
    for section, rows in groupby(RULES, key=lambda row: row.section):
        yield f"\n## {section}\n\n| row | rule | evidence | needs |\n|---|---|---|---|\n"
        yield from map(line, rows)
    yield "\n"


def line(row: Rule) -> str:
    needs = "" if row.precondition is Precondition.NOTHING else row.precondition.value
    return f"| `{row.id}` | {plain_text(row.text)} | {row.evidence} | {needs} |\n"


def made(page: str) -> str:
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}{''.join(tables())}{END}{after}"


def test_page_has_every_row(rewrite: bool) -> None:
    page = PAGE.read_text(encoding="utf-8")
    if rewrite:
        PAGE.write_text(made(page), encoding="utf-8")
    else:
        assert page == made(page), "stale: make test ARGS='tests/docs/test_conformance_reference.py --rewrite'"


def test_stale_page_is_detected() -> None:
    page = PAGE.read_text(encoding="utf-8")
    stale = page.replace("| `path-case` |", "| `path` |")
    assert stale != page
    assert made(stale) == page


def test_pipes_in_cells_are_escaped() -> None:
    """A `|` in a cited text must not start a new cell."""
    page = PAGE.read_text(encoding="utf-8")
    rows = [text for text in page.split(BEGIN)[1].split(END)[0].splitlines() if text.startswith("| `")]
    assert [text for text in rows if text.count("|") != 5] == []
    assert len(rows) == len(RULES)


def test_python_of_the_page_runs() -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert SHOWN_URL in program
    with run_mock(MockEndpoint()) as url:
        exec(program.replace(f'"{SHOWN_URL}"', f'"{url}", pace=Pace(1000)'), {"Pace": Pace})
