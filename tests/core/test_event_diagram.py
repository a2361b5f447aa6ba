"""The table of event transitions in the documentation is generated from the code."""

from collections.abc import Iterator
from pathlib import Path

from forewarn.core.event import TRANSITIONS

PAGE = Path(__file__).parents[2] / "docs/explanation/event-life.md"
BEGIN, END = "<!-- transitions -->\n", "<!-- end of transitions -->\n"


def table() -> Iterator[str]:
    """Return the lines of the table."""
    yield "| state | can | next state | incarnation | journal entry |"
    yield "|---|---|---|---|---|"
    for (state, trigger), transition in TRANSITIONS.items():
        growth = f"+{transition.incarnation}" if transition.incarnation else "–"
        yield f"| {state.value} | {trigger.value} | {transition.to.value} | {growth} | {transition.entry_kind.value} |"


def generated(page: str) -> str:
    """Return the page with the table as it should be."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "".join(f"{line}\n" for line in table()) + END + after


def test_page_has_the_table_of_the_code(rewrite: bool) -> None:
    page = PAGE.read_text()
    if rewrite:
        PAGE.write_text(generated(page))
    else:
        assert page == generated(page)


def test_stale_table_is_found() -> None:
    page = PAGE.read_text()
    stale = page.replace("| Scheduled | be canceled |", "| Started | be canceled |")
    assert stale != page
    assert generated(stale) == page
