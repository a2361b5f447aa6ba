"""Explanation of the exam: every check once, and in which scenarios it differs from most."""

import re
from collections import Counter
from collections.abc import Sequence, Set
from typing import NamedTuple

from forewarn.testing.exam.catalog import ExamScenario
from forewarn.testing.exam.checks import Check

EVENT = re.compile(r"\bE\d+\b")
EVERYWHERE, USUALLY = "every scenario", "most scenarios"


class CheckRow(NamedTuple):
    """The key of a check and what it demands, the same for all events of a scenario."""

    key: str
    polarity: str
    text: str


def check_row(check: Check) -> CheckRow:
    """Return the row of a check."""
    return CheckRow(EVENT.sub("E…", check.key), check.polarity, EVENT.sub("E…", check.description))


def check_rows(scenarios: Sequence[ExamScenario]) -> list[tuple[CheckRow, str]]:
    """Return every check once, with the scenarios that have it: first the usual ones."""
    counts, usual = _counts(scenarios), usual_rows(scenarios)
    found = []
    for row in sorted(counts, key=lambda row: row not in usual):
        names = [scenario.name for scenario in scenarios if row in map(check_row, scenario.checks)]
        is_everywhere = len(names) == len(scenarios)
        found.append((row, EVERYWHERE if is_everywhere else USUALLY if row in usual else ", ".join(names)))
    return found


def usual_rows(scenarios: Sequence[ExamScenario]) -> frozenset[CheckRow]:
    """Return the checks of more than half of the scenarios."""
    return frozenset(row for row, count in _counts(scenarios).items() if count > len(scenarios) / 2)


def own_events(scenario: ExamScenario) -> list[str]:
    """Return the labels of the events that the scenario's checks are about."""
    return sorted({event for check in scenario.checks for event in EVENT.findall(check.key)})


def differences(scenario: ExamScenario, usual: Set[CheckRow]) -> dict[str, list[str]]:
    """Return the checks that a scenario adds (also), replaces (another) and leaves out (without)."""
    own, usual_keys = dict.fromkeys(map(check_row, scenario.checks)), {row.key for row in usual}
    others = dict.fromkeys(row.key for row in own if row not in usual)
    found = {
        "also": [key for key in others if key not in usual_keys],
        "another": [key for key in others if key in usual_keys],
        "without": sorted(usual_keys - {row.key for row in own}),
    }
    return {word: keys for word, keys in found.items() if keys}


def _counts(scenarios: Sequence[ExamScenario]) -> Counter[CheckRow]:
    return Counter(row for scenario in scenarios for row in dict.fromkeys(map(check_row, scenario.checks)))
