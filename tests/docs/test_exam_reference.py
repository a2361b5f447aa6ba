"""The reference of the exam lists every check once and every scenario, as the code defines them."""

import re
from collections import Counter
from collections.abc import Iterator, Set
from pathlib import Path
from typing import NamedTuple

from forewarn.testing.exam import Check, ExamScenario, exam_scenarios
from forewarn.testing.scenario import library_names

PAGE = Path(__file__).parents[2] / "docs/reference/exam.md"
BEGIN, END = "<!-- from the code -->\n", "<!-- end of the code -->\n"
EVENT = re.compile(r"\bE\d\b")


def tables() -> Iterator[str]:
    scenarios = exam_scenarios()
    counts = Counter(row for scenario in scenarios for row in dict.fromkeys(map(check_row, scenario.checks)))
    usual = {row for row, count in counts.items() if count > len(scenarios) / 2}
    yield "\n## Checks\n\n| check | the handler | in |\n|---|---|---|\n"
    for row in sorted(counts, key=lambda row: row not in usual):
        names = [f"`{scenario.name}`" for scenario in scenarios if row in map(check_row, scenario.checks)]
        places = (
            "every scenario" if len(names) == len(scenarios) else "most scenarios" if row in usual else ", ".join(names)
        )
        yield f"| `{row.key}` | {row.text} | {places} |\n"
    yield "\n## Scenarios\n\n| scenario | what happens | events | differences from most |\n|---|---|---|---|\n"
    for scenario in scenarios:
        events = sorted({event for check in scenario.checks for event in EVENT.findall(check.key)})
        yield f"| `{scenario.name}` | {title(scenario)} | {', '.join(events)} | {differences(scenario, usual)} |\n"
    yield "\n"


class CheckRow(NamedTuple):
    """The key and the text of a check, the same for all events of a scenario."""

    key: str
    text: str


def check_row(check: Check) -> CheckRow:
    return CheckRow(EVENT.sub("E…", check.key), EVENT.sub("E…", f"**{check.polarity}** {check.description}"))


def differences(scenario: ExamScenario, usual: Set[CheckRow]) -> str:
    """Name the checks that a scenario adds, replaces and leaves out, compared with the usual ones."""
    own, usual_keys = dict.fromkeys(map(check_row, scenario.checks)), {row.key for row in usual}
    others = dict.fromkeys(row.key for row in own if row not in usual)
    differing = {
        "also": [key for key in others if key not in usual_keys],
        "another": [key for key in others if key in usual_keys],
        "without": sorted(usual_keys - {row.key for row in own}),
    }
    parts = [f"{word} {', '.join(f'`{key}`' for key in keys)}" for word, keys in differing.items() if keys]
    return "; ".join(parts)


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
