"""The reference of the exam lists every check once and every scenario, as the code defines them."""

from collections.abc import Iterator
from pathlib import Path

from forewarn.testing.exam import ExamScenario, exam_scenarios
from forewarn.testing.exam.check_table import (
    EVENT,
    EVERYWHERE,
    USUALLY,
    check_rows,
    differences,
    own_events,
    usual_rows,
)
from forewarn.testing.scenario import library_names

PAGE = Path(__file__).parents[2] / "docs/reference/exam.md"
BEGIN, END = "<!-- from the code -->\n", "<!-- end of the code -->\n"


def tables() -> Iterator[str]:
    scenarios = exam_scenarios()
    yield "\n## Checks\n\n| check | the handler | in |\n|---|---|---|\n"
    for row, places in check_rows(scenarios):
        named = places if places in (EVERYWHERE, USUALLY) else f"`{places.replace(', ', '`, `')}`"
        yield f"| `{row.key}` | **{row.polarity}** {row.text} | {named} |\n"
    yield "\n## Scenarios\n\n| scenario | what happens | events | differences from most |\n|---|---|---|---|\n"
    usual = usual_rows(scenarios)
    for scenario in scenarios:
        found = differences(scenario, usual)
        parts = "; ".join(f"{word} {', '.join(f'`{key}`' for key in keys)}" for word, keys in found.items())
        yield f"| `{scenario.name}` | {title(scenario)} | {', '.join(own_events(scenario))} | {parts} |\n"
    yield "\n"


def title(scenario: ExamScenario) -> str:
    return scenario.scenario().title + ("" if scenario.name in library_names() else " Only in the exam.")


def made(page: str) -> str:
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}{''.join(tables())}{END}{after}"


def test_page_has_every_check_and_scenario(rewrite: bool) -> None:
    page = PAGE.read_text(encoding="utf-8")
    if rewrite:
        PAGE.write_text(made(page), encoding="utf-8")
    else:
        assert page == made(page), "stale: make test ARGS='tests/docs/test_exam_reference.py --rewrite'"


def test_page_explains_how_every_check_is_judged() -> None:
    judged = PAGE.read_text(encoding="utf-8").partition("## How checks are judged")[2].partition("\n## ")[0]
    keys = {EVENT.sub("E…", check.key) for scenario in exam_scenarios() for check in scenario.checks}
    assert {key for key in keys if f"`{key}`" not in judged} <= {"uses-proxy", "prepares-for-others"}
