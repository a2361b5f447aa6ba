"""The examination of a handler: the user's own program in one scenario after the other, graded on what can be seen."""

from forewarn.testing.exam.demands import Demand, Finding, Mood, Verdict
from forewarn.testing.exam.examining import Report, Watcher, examine
from forewarn.testing.exam.program import NotBegun, Way
from forewarn.testing.exam.reporting import cases
from forewarn.testing.exam.sheets import HANDLER, Sheet, sheets
from forewarn.testing.exam.sitting import LIMIT, Ask, Markers, Result
from forewarn.testing.exam.wishes import UnknownWish, Wish, Wishes, wishes_of
from forewarn.testing.reports import junit

__all__ = [
    "HANDLER",
    "LIMIT",
    "Ask",
    "Demand",
    "Finding",
    "Markers",
    "Mood",
    "NotBegun",
    "Report",
    "Result",
    "Sheet",
    "UnknownWish",
    "Verdict",
    "Watcher",
    "Way",
    "Wish",
    "Wishes",
    "cases",
    "examine",
    "junit",
    "sheets",
    "wishes_of",
]
