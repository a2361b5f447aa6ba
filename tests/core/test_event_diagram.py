"""The drawing of an event's life in the documentation is drawn from the table of moves."""

from collections.abc import Iterator
from pathlib import Path

from forewarn.core.event import TRANSITIONS, State

PAGE = Path(__file__).parents[2] / "docs/explanation/event-life.md"
BEGIN, END = "<!-- drawing -->\n", "<!-- end of drawing -->\n"


def drawing() -> Iterator[str]:
    """Draw the table as a diagram, and write it as a table."""
    yield "```mermaid"
    yield "stateDiagram-v2"
    for (state, move), step in TRANSITIONS.items():
        yield f"    {node(state)} --> {node(step.to)}: {move.value}"
    yield "```"
    yield ""
    yield "| an event that is | can | then it is | incarnation | the journal says |"
    yield "|---|---|---|---|---|"
    for (state, move), step in TRANSITIONS.items():
        growth = f"+{step.incarnation}" if step.incarnation else "–"
        yield f"| {state.value} | {move.value} | {step.to.value} | {growth} | {step.entry_kind.value} |"


def node(state: State) -> str:
    return "[*]" if state in (State.NONE, State.GONE) else state.value


def drawn(page: str) -> str:
    """Return the page with the drawing as it should be."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "".join(f"{line}\n" for line in drawing()) + END + after


def test_drawing_in_the_documentation_shows_the_table(rewrite: bool) -> None:
    page = PAGE.read_text()
    if rewrite:
        PAGE.write_text(drawn(page))
    else:
        assert page == drawn(page)


def test_stale_drawing_is_seen() -> None:
    page = PAGE.read_text()
    stale = page.replace("Scheduled --> [*]: be canceled", "Started --> [*]: be canceled")
    assert stale != page
    assert drawn(stale) == page
