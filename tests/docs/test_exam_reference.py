"""The reference of the exam has the table of every scenario, as the code says it."""

from collections.abc import Iterator
from pathlib import Path

from forewarn.testing.exam import ExamScenario, exam_scenarios
from forewarn.testing.scenario import library_names

PAGE = Path(__file__).parents[2] / "docs/reference/exam.md"
BEGIN, END = "<!-- from the code -->\n", "<!-- end of the code -->\n"


def tables() -> Iterator[str]:
    for sheet in exam_scenarios():
        yield from table(sheet)
    yield "\n"


def table(sheet: ExamScenario) -> Iterator[str]:
    origin = "" if sheet.name in library_names() else " Only in the exam."
    yield f"\n## {sheet.name}\n\n{sheet.scenario().title}{origin}\n\n| demand | the handler |\n|---|---|\n"
    for demand in sheet.checks:
        yield f"| `{demand.key}` | **{demand.polarity}** {demand.description} |\n"


def made(page: str) -> str:
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}{''.join(tables())}{END}{after}"


def test_page_has_every_table(rewrite: bool) -> None:
    page = PAGE.read_text(encoding="utf-8")
    if rewrite:
        PAGE.write_text(made(page), encoding="utf-8")
    else:
        assert page == made(page), "stale: make test ARGS='tests/docs/test_exam_reference.py --rewrite'"


def test_every_demand_has_its_figures() -> None:
    judged = PAGE.read_text(encoding="utf-8").partition("## How it is judged")[2].partition("\n## ")[0]
    keys = {demand.key.rpartition("-E")[0] or demand.key for sheet in exam_scenarios() for demand in sheet.checks}
    assert {key for key in keys if f"`{key}" not in judged} <= {"uses-proxy", "prepares-for-others"}
