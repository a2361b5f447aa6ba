"""Which scenarios deserve a second try: where it may have been the machine that was slow, and not the program."""

import re
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from forewarn.testing.exam.demands import Finding, Mood, Verdict
from forewarn.testing.exam.sheets import Sheet
from forewarn.testing.exam.sitting import Result

IN_TIME = frozenset({"asks", "asks-often", "approves", "prepares", "recovers"})
"""The demands that are broken by doing nothing for a while, as programs do on a machine that is busy."""


def doubtful(sheets: Sequence[Sheet], results: Sequence[Result]) -> list[Sheet]:
    """Return where the time was over before the story, or the program too late for what it mostly does elsewhere.

    What it has done, and should not have, is never in doubt.
    """
    judged: dict[str, Counter[Verdict]] = {}
    for result in results:
        for finding in result.findings:
            judged.setdefault(_kind(finding), Counter())[finding.verdict] += 1
    usual = {kind for kind, counts in judged.items() if counts[Verdict.KEPT] > counts[Verdict.BROKEN]}
    return [sheet for sheet, result in zip(sheets, results, strict=True) if _is_doubtful(result, usual)]


def _is_doubtful(result: Result, usual: AbstractSet[str]) -> bool:
    if not result.broken:
        return not result.is_finished
    return all(finding.mood is Mood.MUST and _kind(finding) in usual & IN_TIME for finding in result.broken)


def _kind(finding: Finding) -> str:
    """Return what is demanded, whatever the event is called."""
    return re.sub(r"-E\d+$", "", finding.demand)
